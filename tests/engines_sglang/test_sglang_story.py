"""A prefix whose hash is hit and which nobody can go on from, in SGLang's own code."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded, differences
from hkvtool.recorder.sglang.attach import attach
from hkvtool.recorder.sglang.hooks import Hooks

HEAD = list(range(1, 25))
LEFT, RIGHT = HEAD + list(range(1000, 1016)), HEAD + list(range(2000, 2016))
NEW = [*HEAD, 3000, 3001, 3002, 3003, 3004]


@pytest.mark.parametrize("core", CORES)
def test_a_full_hit_that_is_not_resumable(core: str, watched: tuple[Folded, Hooks]) -> None:
    folded, hooks = watched
    engine = Engine(core)
    for number, tokens in enumerate((HEAD, LEFT, RIGHT)):
        end(engine, begin(engine, f"r{number}", [*tokens, 9]))
    engine.match(LEFT)
    engine.match(RIGHT)
    assert engine.evict(swa=24).swa_num_tokens_evicted == 24
    end(engine, begin(engine, "new", NEW))
    end(engine, begin(engine, "again", NEW))
    assert not list(differences(folded, engine.cache, hooks.caches[0].pools))

    report = folded.checked()
    [veto] = report.findings
    assert (veto.code, veto.request, veto.group) == ("HKV308", "new", "swa")
    assert veto.tokens == (0, 24) and veto.actual["lost"] == 24
    ratios = report.ratios
    assert ratios.matched - ratios.resumable == 24
    told = {e["req"]: e for e in folded.events if e["ev"] == "lookup"}
    assert told["new"]["hit"] == {"full": 24, "swa": 0}
    assert told["again"]["hit"] == {"full": 24, "swa": 24}
    resumes = {e["req"]: e["at"] for e in folded.events if e["ev"] == "resume"}
    assert (resumes["r1"], resumes["new"], resumes["again"]) == (24, 0, 24)
    assert not folded.guard.count


@pytest.mark.parametrize("core", CORES)
def test_requests_at_random(core: str, watched: tuple[Folded, Hooks]) -> None:
    folded, hooks = watched
    engine, rng = Engine(core, slots=256, swa_slots=160), Random(5)
    heads = [[rng.randrange(1, 9) for _ in range(30)] for _ in range(3)]
    running: list[Any] = []
    for number in range(80):
        if running and (len(running) > 3 or rng.random() < 0.4):
            end(engine, running.pop(rng.randrange(len(running))))
        elif rng.random() < 0.3:
            engine.evict(swa=rng.randrange(1, 40), full=rng.choice((0, 0, 12)))
        else:
            head = rng.choice(heads)[: rng.randrange(4, 31)]
            tail = [rng.randrange(1, 9) for _ in range(rng.randrange(1, 12))]
            running.append(begin(engine, f"r{number}", head + tail, more=rng.randrange(8)))
        wrong = list(differences(folded, engine.cache, hooks.caches[0].pools))
        assert not wrong, (number, wrong)
    for req in running:
        end(engine, req)
    engine.cache.sanity_check()
    assert not folded.guard.count and folded.guard.off is None
    report = folded.checked()
    assert {f.code for f in report.findings} <= {"HKV308"}, report.findings[0]
    assert 0 < report.ratios.resumable <= report.ratios.matched
    kinds = {e["ev"] for e in folded.events}
    assert {"dispatch", "resume", "finish", "publish", "unpublish", "touch"} <= kinds


@pytest.mark.parametrize("core", CORES)
def test_the_core_is_the_one_that_the_engine_would_take(
    core: str, watched: tuple[Folded, Hooks]
) -> None:
    cache = Engine(core).cache
    name = type(cache.tree_core._core).__name__
    assert name == {"python": "UnifiedTreeCore", "rust": "RustUnifiedTreeCore"}[core]
    assert cache._tree_core_backend == core


def test_nothing_is_left_of_the_hooks() -> None:
    folded = Folded()
    hooks = attach(folded)
    kept = Engine("rust")
    kept.prefill(LEFT)
    hooks.remove()
    told = len(folded.events)
    assert told > 5
    kept.prefill(RIGHT)
    engine = Engine("rust")
    engine.prefill(LEFT)
    assert type(engine.cache.tree_core).__name__ == "RustUnifiedTreeCore"
    assert len(folded.events) == told


def test_a_hook_that_fails_is_off_and_the_engine_goes_on() -> None:
    events: list[dict[str, object]] = []

    def keyed(digest: bytes) -> str:
        raise RuntimeError("no key")

    hooks = attach(events.append, keyed=keyed)  # type: ignore[arg-type]
    try:
        engine = Engine("rust")
        engine.prefill(LEFT)
        engine.prefill(RIGHT)
        assert engine.match(RIGHT).device_prefix_len == len(RIGHT)
    finally:
        hooks.remove()
    assert list(hooks.failed) == ["insert"]
    said = [e for e in events if e["ev"] == "evidence"]
    assert len(said) == 1 and said[0]["evidence"] == ["step", "layout"]
