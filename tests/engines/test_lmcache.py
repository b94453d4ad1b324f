"""The adapter that the page "Add an engine" is written after, on LMCache's real backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hkvtool_lmcache import ADAPTER

from hkvtool.conformance import AdapterConformance, Moment
from hkvtool.conformance.drives import Told, attached
from hkvtool.conformance.properties import judge
from hkvtool.conformance.suite import fold_is_engine
from tests.engines import lmcache_backend as lm


class TestLmcache(AdapterConformance):
    adapter = ADAPTER

    def drive(self) -> Iterator[Moment]:
        return lm.drive()


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 12))]
)
def test_fold_is_engine_over_random_work(seed: int) -> None:
    told = fold_is_engine(ADAPTER, lambda: lm.drive(seed, 500))
    assert all(verdict.holds for verdict in judge(told.events).values())


def test_a_late_attach_begins_with_what_is_there() -> None:
    cache = lm.Cache()
    assert cache.store(1) and cache.store(2) and cache.fetch(2)
    assert cache.backend.contains(cache.key(1), pin=True)
    with attached(ADAPTER, Told()) as told:
        assert [e["ev"] for e in told.events] == ["trace", "pool", "group", "state", "pin"]
        assert not list(lm.differences(told, cache))
        cache.backend.unpin(cache.key(1))
        cache.let_go()
        assert cache.backend.remove(cache.key(2))
        assert not list(lm.differences(told, cache)) and not told.impossible
    cache.close()


def test_a_pin_that_was_timed_out_is_let_go_of_twice() -> None:
    """As LMCache 0.5.6 does it, nothing injected: what holds a lookup's chunks for too long is
    unpinned by the monitor, and by the lookup when it ends, which may be another lookup's pin."""
    with attached(ADAPTER, Told()) as told:
        cache = lm.Cache()
        monitor = lm.PinMonitor.GetOrCreate()
        patience, monitor._pin_timeout_sec = monitor._pin_timeout_sec, -1.0
        try:
            cache.store(1)
            assert cache.backend.contains(cache.key(1), pin=True)
            assert monitor._check_timeouts() == (1, 1, 1)
            cache.backend.unpin(cache.key(1))
        finally:
            monitor._pin_timeout_sec = patience
            cache.close()
    (found,) = judge(told.events)["check and use"].broken
    assert found.code == "HKV704" and "unpinned more often than it was pinned" in found.message


def test_a_chunk_that_is_let_go_of_twice_is_found() -> None:
    """Injected: the engine counts below zero, sets the count back and asks for the bug."""
    with attached(ADAPTER, Told()) as told:
        cache = lm.Cache()
        cache.store(1)
        obj = cache.backend.hot_cache[cache.key(1)]
        obj.ref_count_down()
        obj.ref_count_down()
        cache.close()
    assert "HKV704" in {f.code for f in judge(told.events)["check and use"].broken}
