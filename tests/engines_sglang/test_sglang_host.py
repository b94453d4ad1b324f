"""SGLang's HiCache on its own code: what is copied to the host and back is told, and judged."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engines_sglang import device
from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_host_load import HostLoad, host_differences
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded
from hkvtool.recorder.sglang.hooks import Hooks

TOKENS = list(range(1, 41))


def drive(
    watched: tuple[Folded, Hooks], core: str, seed: int, steps: int, **shape: Any
) -> HostLoad:
    folded, hooks = watched
    load = HostLoad(Engine(core, **shape), seed)
    state = hooks.caches[-1]
    for number in range(steps):
        kind = load.step()
        wrong = list(host_differences(folded, state))
        assert not wrong, (number, kind, wrong[:3])
    load.poll(land=True)
    load.engine.cache.sanity_check()
    assert not folded.guard.count and folded.guard.off is None
    loud = [f for f in folded.checked().findings if f.code != "HKV308"]
    assert not loud, (loud[0].code, loud[0].message, loud[0].events)
    return load


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("core", CORES)
def test_random_load(core: str, policy: str, watched: tuple[Folded, Hooks]) -> None:
    load = drive(watched, core, 1, 250, slots=160, swa_slots=96, host=1.5, policy=policy)
    kinds = Counter(event["ev"] for event in watched[0].events)
    assert kinds["store_end"] == kinds["store_begin"] > 10
    assert kinds["load_end"] == kinds["load_begin"] > 5
    assert {"begin", "end", "preempt", "evict", "evict_host", "land"} <= set(load.done)


def away(engine: Engine) -> None:
    """A sequence is computed, copied to the host, and leaves the device."""
    end(engine, begin(engine, "first", [*TOKENS, 7]))
    engine.cache.check_hicache_events()
    device.land()
    engine.cache.check_hicache_events()
    engine.evict(full=100, swa=100)


@pytest.mark.parametrize("core", CORES)
def test_a_load_that_is_waited_for(core: str, watched: tuple[Folded, Hooks]) -> None:
    folded, _ = watched
    engine = Engine(core, slots=256, host=2.0)
    away(engine)
    end(engine, begin(engine, "second", [*TOKENS, 8]))
    report = folded.checked()
    assert not report.findings, report.findings[0]
    [told] = [e for e in folded.events if e["ev"] == "resume" and e["req"] == "second"]
    assert told["at"] == 40 and told["route"] == {"full": "load", "swa": "load"}
    assert report.ratios.resumable == report.ratios.matched == 40


@pytest.mark.parametrize("core", CORES)
def test_a_load_that_is_read_before_anybody_waited_for_it(
    core: str, watched: tuple[Folded, Hooks]
) -> None:
    folded, _ = watched
    engine = Engine(core, slots=256, host=2.0)
    away(engine)
    begin(engine, "second", [*TOKENS, 8], wait=False)
    assert device.under_way()
    roots = [f for f in folded.checked().findings if f.cause is None]
    assert {f.code for f in roots} == {"HKV305"}, [(f.code, f.message) for f in roots]
    assert {(f.request, f.group) for f in roots} == {("second", "full"), ("second", "swa")}


@pytest.mark.parametrize("core", CORES)
def test_a_cache_that_is_forgotten_with_copies_under_way(
    core: str, watched: tuple[Folded, Hooks]
) -> None:
    folded, hooks = watched
    engine = Engine(core, slots=256, host=2.0)
    end(engine, begin(engine, "first", [*TOKENS, 7]))
    engine.cache.check_hicache_events()
    assert device.under_way()
    engine.cache.reset()
    engine.allocator.clear()
    assert not list(host_differences(folded, hooks.caches[0]))
    begun = [e["handle"] for e in folded.events if e["ev"] == "store_begin"]
    ended = {e["handle"]: e.get("ok", True) for e in folded.events if e["ev"] == "store_end"}
    assert begun and ended == dict.fromkeys(begun, False)


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("core", CORES)
def test_long_random_load(
    core: str, page: int, policy: str, watched: tuple[Folded, Hooks]
) -> None:  # fmt: skip
    shape = {"slots": 160, "swa_slots": 96, "host": 1.5, "policy": policy, "page": page}
    drive(watched, core, 2, 5000, **shape)


@pytest.mark.parametrize("core", CORES)
def test_random_load_without_a_window(core: str, watched: tuple[Folded, Hooks]) -> None:
    load = drive(watched, core, 3, 150, slots=160, window=None, host=1.2)
    assert {"begin", "end", "evict_host", "land"} <= set(load.done)


def test_steps_that_are_not_followed_are_no_evidence(watched: tuple[Folded, Hooks]) -> None:
    folded, hooks = watched
    engine = Engine("rust")
    begin(engine, "first", TOKENS)
    hooks.caches[-1].loses_steps("guesses")
    assert hooks.evidence == ["host", "layout"]
    assert folded.events[-1]["evidence"] == ["host", "layout"]
