"""Recurrent states of SGLang's hybrid models: what was told of its own tree and pools is what they
have, whichever core the tree has."""

from __future__ import annotations

from typing import Any

import pytest
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType

from engines_sglang.sglang_cache import CORES
from engines_sglang.sglang_request_load import prepare_for_decode
from engines_sglang.sglang_requests import admit, begin, end, plan, serve
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_states import (
    INTERVAL,
    STRATEGIES,
    Contents,
    StateEngine,
    StateLoad,
    state_differences,
)
from engines_sglang.test_sglang_state import quiet
from hkvtool.analyzers.verdict import Verdict, Why, why
from hkvtool.model.event import Event
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.store.derive_reads import derive_reads

Watched = tuple[Folded, Hooks]


HEAD = list(range(1, 17))
LEFT, RIGHT = [*HEAD, *range(100, 108)], [*HEAD, *range(200, 208)]


def drive(watched: Watched, engine: StateEngine, seed: int, steps: int) -> StateLoad:
    folded, hooks = watched
    load = StateLoad(engine, seed)
    pools, contents = hooks.caches[-1].pools, Contents(folded)
    for number in range(steps):
        kind = load.step()
        wrong = list(state_differences(folded, engine, pools, contents))
        assert not wrong, (number, kind, wrong[:3])
    engine.cache.sanity_check()
    quiet(folded)
    return load


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("core", CORES)
def test_random_load(core: str, strategy: str, watched: Watched) -> None:
    load = drive(watched, StateEngine(core, strategy, slots=256), 1, 100)
    kinds: set[Any] = {event["ev"] for event in watched[0].events if event.get("group") == "mamba"}
    assert {"alloc", "free", "publish", "unpublish", "touch", "copy", "zero"} <= kinds
    assert {"begin", "decode", "checkpoint", "end", "preempt", "evict_states"} <= set(load.done)


@pytest.mark.parametrize("core", CORES)
def test_random_load_of_pages_and_few_states_a_path(core: str, watched: Watched) -> None:
    drive(watched, StateEngine(core, "extra_buffer", page=4, slots=256, per_path=2), 2, 80)


@pytest.mark.soak
@pytest.mark.parametrize(("strategy", "page"), [*((s, 1) for s in STRATEGIES), ("extra_buffer", 4)])
@pytest.mark.parametrize("core", CORES)
def test_long_random_load(core: str, strategy: str, page: int, watched: Watched) -> None:
    drive(watched, StateEngine(core, strategy, page=page, slots=256, states=18), 3, 5000)


def asked(folded: Folded, req: str) -> Why:
    """What `hkvtool why` says of a request."""
    events = (Event.of(pos, data) for pos, data in enumerate(folded.events, 1))
    return why(derive_reads(events), req)


def filled(core: str) -> StateEngine:
    """A tree that forks where a state is kept."""
    engine = StateEngine(core, "no_buffer")
    for number, tokens in enumerate((HEAD, LEFT, RIGHT)):
        end(engine, begin(engine, f"r{number}", tokens))
    return engine


@pytest.mark.parametrize("core", CORES)
def test_a_full_hit_whose_state_is_gone(core: str, watched: Watched) -> None:
    folded, hooks = watched
    engine, contents = filled(core), Contents(folded)
    engine.match(LEFT)
    engine.match(RIGHT)
    assert engine.evict_states(1).mamba_num_evicted == 1
    end(engine, begin(engine, "new", [*HEAD, 300, 301]))
    end(engine, begin(engine, "again", [*HEAD, 300, 301, 302]))
    assert not list(state_differences(folded, engine, hooks.caches[0].pools, contents))

    report = folded.checked()
    [veto] = report.findings
    assert (veto.code, veto.request, veto.group) == ("HKV308", "new", "mamba")
    assert veto.tokens == (0, 16) and veto.actual["lost"] == 16
    told = {e["req"]: e["hit"] for e in folded.events if e["ev"] == "lookup"}
    assert told["r1"] == {"full": 16, "mamba": 16} and told["new"] == {"full": 16, "mamba": 0}
    assert told["again"] == {"full": 18, "mamba": 18}
    resumes = {e["req"]: (e["at"], list(e["blocks"])) for e in folded.events if e["ev"] == "resume"}
    assert (resumes["new"], resumes["again"]) == ((0, []), (18, ["full", "mamba"]))
    answer = asked(folded, "new")
    assert answer.verdict is Verdict.RECOMPUTED and "group mamba" in answer.sentence
    assert not folded.guard.count


def test_going_on_from_a_state_that_is_gone_is_found(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cache that forgot to ask for the state would do: the pages are there, and what the
    request computes in begins with nothing."""
    folded, _ = watched
    engine = filled("python")
    engine.match(LEFT)
    engine.match(RIGHT)
    assert engine.evict_states(1).mamba_num_evicted == 1
    component = type(engine.cache.components[ComponentType.MAMBA])
    monkeypatch.setattr(component, "create_match_validator", lambda *a, **kw: lambda node: True)
    monkeypatch.setattr(engine, "compute", lambda batch: None)
    end(engine, begin(engine, "new", [*HEAD, 300, 301]))
    loud = [f for f in folded.checked().findings if f.request == "new"]
    assert {(f.code, f.group) for f in loud} >= {("HKV306", "mamba")}, loud
    assert asked(folded, "new").verdict is Verdict.RESUMED_WRONGLY


def test_states_that_go_to_the_host_too_are_said_not_to_be_seen(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    folded, hooks = watched
    monkeypatch.setattr(CacheState, "staged", True)
    engine = filled("rust")
    end(engine, begin(engine, "again", [*LEFT, 300, 301]))
    assert {e["group"] for e in folded.events if e["ev"] == "group"} == {"full"}
    [note] = [e["note"] for e in folded.events if "states that go to" in e.get("note", "")]
    assert note.startswith("not seen: ") and hooks.caches[0].states is None
    quiet(folded)


def test_a_mixed_batch_leaves_no_snapshot_of_who_decodes(watched: Watched) -> None:
    """Where a request decodes beside others' prompts, SGLang writes no state for the tree, though
    it has come to where one would be due; the one of its prompt is still there."""
    folded, hooks = watched
    engine = StateEngine("rust", "extra_buffer", overlap=False)
    contents, pools = Contents(folded), hooks.caches[0].pools
    first, running = admit(engine, "first", HEAD[: INTERVAL - 1])
    first.output_ids.append(50)
    prepare_for_decode(running)
    assert running.mamba_track_mask_cpu == [True]
    second, batch = plan(engine, "second", [60, 61, 62, 63, 64])
    batch.mix_with_running(running)
    serve(engine, batch)
    told = [e for e in folded.events if e["ev"] == "write" and e["group"] == "mamba"]
    assert [(e["req"], e["tokens"]) for e in told] == [("first", [0, 4]), ("second", [0, 4])]
    for req in (first, second):
        end(engine, req)
        assert not list(state_differences(folded, engine, pools, contents))
    assert sorted(pools[-1].place[slot] + 1 for slot in pools[-1].hash_of) == [4, 4]
    quiet(folded)
