"""SGLang's HiCache with a storage below it, on its own code: what its threads write and read is
told, and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang.srt.mem_cache import utils
from sglang.srt.mem_cache.hicache_storage import HiCacheFile

from engines_sglang import device
from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_storage import Turns, one_rank, wait_for
from engines_sglang.sglang_storage_load import StorageLoad, storage_differences
from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import confirm
from hkvtool.replay.whole import replay
from hkvtool.store.derive_reads import derive_reads

TOKENS = list(range(1, 41))

RIGHTLY = ("HKV308", "HKV502")
"""What is told of these loads and is so: a prefix that its window is missing of, and content that
comes from the storage again and again and leaves unused."""


def drive(
    watched: tuple[Folded, Hooks], folder: Path, core: str, seed: int, steps: int, **shape: Any
) -> StorageLoad:
    folded, hooks = watched
    with one_rank():
        load = StorageLoad(Engine(core, storage=str(folder), **shape), seed, str(folder))
        state = hooks.caches[-1]
        for number in range(steps):
            kind = load.step()
            assert not hooks.failed, (number, kind, hooks.failed)
            wrong = list(storage_differences(folded, state, str(folder)))
            assert not wrong, (number, kind, wrong[:3])
        load.settle()
        load.engine.cache.sanity_check()
    assert not folded.guard.count and folded.guard.off is None
    loud = [f for f in folded.checked().findings if f.code not in RIGHTLY]
    assert not loud, (loud[0].code, loud[0].message, loud[0].events)
    return load


SMALL = {"slots": 160, "swa_slots": 96, "host": 1.5}


@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("core", CORES)
def test_random_load(
    core: str, policy: str, watched: tuple[Folded, Hooks], tmp_path: Path
) -> None:  # fmt: skip
    load = drive(watched, tmp_path, core, 1, 400, policy=policy, files=160, **SMALL)
    kinds = Counter(e["ev"] for e in watched[0].events if "cpu" in str(e.get("group")))
    print(load.done, kinds)
    assert kinds["store_begin"] > 10 and kinds["load_begin"] > 5


@pytest.mark.soak
@pytest.mark.parametrize("prefetch", ["wait_complete", "best_effort", "timeout"])
@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("core", CORES)
def test_long_random_load(
    core: str, policy: str, prefetch: str, watched: tuple[Folded, Hooks], tmp_path: Path
) -> None:  # fmt: skip
    shape = {"policy": policy, "prefetch": prefetch, "files": 160, **SMALL}
    drive(watched, tmp_path, core, 2, 5000, **shape)


def stored(engine: Engine, turns: Turns) -> None:
    """A sequence is computed, written to the storage, and leaves the device and the host."""
    end(engine, begin(engine, "first", [*TOKENS, 7]))
    settle(engine, turns)
    engine.evict(full=500, swa=500)
    for component in engine.cache.tree_components:
        engine.cache.evict_host(500, component)


def settle(engine: Engine, turns: Turns) -> None:
    for _ in range(2):
        device.land()
        engine.cache.check_hicache_events()
        turns.all(engine)
        engine.cache.check_hicache_events()


def prefetched(engine: Engine, turns: Turns, name: str = "second", **kwargs: Any) -> bool:
    """One more request of the same beginning waits until its prefetch is over."""
    waits = wait_for(engine, name, [*TOKENS, 8], **kwargs)
    turns.all(engine)
    return bool(engine.cache.check_prefetch_progress(waits.cache_request_handle))


def roots(folded: Folded) -> list[Any]:
    return [f for f in folded.checked().findings if f.cause is None]


def without_an_edge(folded: Folded) -> Iterator[set[str]]:
    """What is found of a right trace that lacks what makes one wait for another: the storage's
    thread for the copy to the host, the copy to the device for what the scheduler has heard, that
    for what the prefetch has read, and the step for the copy."""
    waits = [e for e in folded.events if e["ev"] == "wait"]
    lanes = [(e.get("actor"), e["event"].rstrip("0123456789")) for e in waits]
    edges = ("backup", "to backup "), ("device", "copies."), (None, "prefetch ")
    for edge in edges:
        gone = [e for e, lane in zip(waits, lanes, strict=True) if lane == edge]
        assert gone
        yield found_in([e for e in folded.events if e not in gone])
    yield found_in([e for e in folded.events if not str(e.get("event")).endswith(" is over")])


def found_in(events: list[dict[str, Any]]) -> set[str]:
    """The codes of findings in fewer events than there were, which nothing else has led to."""
    told = derive_reads(Event.of(pos, data) for pos, data in enumerate(events, 1))
    return {f.code for f in check(told).findings if f.cause is None and f.code != "HKV702"}


def replayed(folded: Folded) -> list[str]:
    """Whether real bytes on real caches go wrong for each thing that is found, and not without."""
    told = derive_reads(Event.of(pos, data) for pos, data in enumerate(folded.events, 1))
    events = [Event.of(pos, dict(event.data)) for pos, event in enumerate(told, 1)]
    assert not replay(Setting(events, survey(events))).account.wrong
    report = check(iter(events))
    found = [f for f in report.findings if f.cause is None]
    return [confirm(Setting(events, survey(events), runs=1), report, f).verdict for f in found]


@pytest.mark.parametrize("core", CORES)
def test_pages_come_back_from_the_storage(
    core: str, watched: tuple[Folded, Hooks], tmp_path: Path
) -> None:  # fmt: skip
    folded, _ = watched
    with one_rank():
        engine = Engine(core, slots=256, host=2.0, storage=str(tmp_path))
        turns = Turns(engine)
        stored(engine, turns)
        assert prefetched(engine, turns)
        end(engine, begin(engine, "second", [*TOKENS, 8]))
        settle(engine, turns)
    report = folded.checked()
    assert not report.findings, report.findings[0]
    assert report.ratios.resumable == report.ratios.matched == 40
    assert list(without_an_edge(folded)) == [{"HKV103"}] * 4
    [read] = [e for e in folded.events if e["ev"] == "load_begin" and e["group"] == "full.cpu"]
    assert read["from"] == "full.disk" and len(read["peer"]) == 10 and read["req"] == "second"
    lanes = {e["actor"] for e in folded.events if "cpu" in e.get("group", "") and "actor" in e}
    assert lanes == {"backup", "prefetch"}


@pytest.mark.parametrize("core", CORES)
def test_pages_that_are_used_before_the_prefetch_is_heard_of(
    core: str, watched: tuple[Folded, Hooks], tmp_path: Path, monkeypatch: Any
) -> None:
    """The scheduler takes what it was promised for what has come: nothing orders its copies to the
    device behind the reads."""
    folded, _ = watched
    with one_rank():
        engine = Engine(core, slots=256, host=2.0, storage=str(tmp_path))
        turns, cache = Turns(engine), engine.cache
        stored(engine, turns)
        waits = wait_for(engine, "second", [*TOKENS, 8])
        turns.ask()
        cache.check_hicache_events()
        turns.read()
        operation = cache.ongoing_prefetch[waits.cache_request_handle].operation
        operation.completed_tokens = len(operation.host_indices)
        operation.pool_storage_result.update_extra_pool_hit_pages({"swa": 2})
        cache._handle_prefetch_result(operation)
        begin(engine, "second", [*TOKENS, 8])
    found = roots(folded)
    print([(f.code, f.message, f.edge) for f in found])
    assert {f.code for f in found} == {"HKV103"}
    assert replayed(folded) == ["confirmed", "confirmed"]


def meanwhile(monkeypatch: Any, function: str, happens: Callable[[], None]) -> None:
    """Something happens once, while a thread is at its second file."""
    inner, left = getattr(HiCacheFile, function), 2

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            happens()
        return inner(*args, **kwargs)

    monkeypatch.setattr(HiCacheFile, function, wrapped)


def others(engine: Engine, count: int) -> None:
    """Other requests come, whose pages are copied to the host; the copies have begun."""
    for number in range(count):
        begun = 1000 * (number + 1)
        end(engine, begin(engine, f"other{number}", list(range(begun, begun + 33))))
    engine.cache.check_hicache_events()


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("core", CORES)
def test_pages_of_an_aborted_prefetch_belong_to_its_reader_until_it_is_done(
    core: str, faulty: bool, watched: tuple[Folded, Hooks], tmp_path: Path, monkeypatch: Any
) -> None:
    folded, _ = watched
    with one_rank():
        engine = Engine(core, slots=128, host=0.5, window=None, storage=str(tmp_path))
        turns, cache = Turns(engine), engine.cache
        stored(engine, turns)
        waits = wait_for(engine, "second", [*TOKENS, 8])

        def abort() -> None:
            pages = cache.ongoing_prefetch[waits.cache_request_handle].host_indices
            cache.release_aborted_request(waits.cache_request_handle)
            if faulty:
                cache.cache_controller.mem_pool_host.free(pages)
            others(engine, 2)

        turns.ask()
        cache.check_hicache_events()
        meanwhile(monkeypatch, "get", abort)
        turns.read()
        if not faulty:
            settle(engine, turns)
    found = roots(folded)
    print([(f.code, f.message, f.edge) for f in found])
    assert {f.code for f in found} == ({"HKV703"} if faulty else set())


@pytest.mark.parametrize("faulty", [False, True])
@pytest.mark.parametrize("core", CORES)
def test_pages_are_locked_while_they_are_written_to_the_storage(
    core: str, faulty: bool, watched: tuple[Folded, Hooks], tmp_path: Path, monkeypatch: Any
) -> None:
    folded, _ = watched
    with one_rank():
        engine = Engine(core, slots=128, host=0.5, window=None, storage=str(tmp_path))
        turns, cache = Turns(engine), engine.cache
        end(engine, begin(engine, "first", [*TOKENS, 7]))
        cache.check_hicache_events()
        device.land()
        cache.check_hicache_events()

        def evict() -> None:
            if faulty:
                for node, receipt in cache.ongoing_backup.values():
                    cache.dec_host_lock_ref(node, receipt)
                cache.ongoing_backup.clear()
            engine.evict(full=500)
            cache.evict_host(500)
            others(engine, 2)

        meanwhile(monkeypatch, "set", evict)
        turns.write()
        settle(engine, turns)
    found = roots(folded)
    print([(f.code, f.message, f.edge) for f in found])
    assert {f.code for f in found} == ({"HKV702"} if faulty else set())
    assert set(replayed(folded)) == ({"confirmed"} if faulty else set())


@pytest.mark.parametrize("core", CORES)
def test_what_the_storage_was_found_to_have_and_what_came_of_it(
    core: str, watched: tuple[Folded, Hooks], tmp_path: Path
) -> None:  # fmt: skip
    """A file is deleted by another program after the request was looked up and before it is read:
    the engine takes what has come, rightly."""
    folded, _ = watched
    with one_rank():
        engine = Engine(core, slots=256, host=2.0, window=None, storage=str(tmp_path))
        turns = Turns(engine)
        stored(engine, turns)
        waits = wait_for(engine, "second", [*TOKENS, 8])
        turns.ask()
        keys = turns.controller.prefetch_hit_queue.queue[0].hash_value
        backend = turns.controller.storage_backend
        (tmp_path / f"{backend._get_suffixed_key(keys[6])}.bin").unlink()
        settle(engine, turns)
        assert engine.cache.check_prefetch_progress(waits.cache_request_handle)
        end(engine, begin(engine, "second", [*TOKENS, 8]))
        settle(engine, turns)
    [over] = [e for e in folded.events if e["ev"] == "load_end" and e.get("ok") is False]
    assert len(over["failed"]) == 4
    hit = [e["hit"] for e in folded.events if e["ev"] == "lookup"][-1]
    assert hit == {"full": 24, "full.cpu": 24, "full.disk": 40}
    report = folded.checked()
    assert not report.findings
    assert [(loss.code, loss.tokens) for loss in report.ratios.lost_by] == [("HKV308", 16)]
    assert report.ratios.matched == 40 and report.ratios.resumable == 24


@pytest.mark.parametrize("core", CORES)
def test_a_key_that_leaves_out_the_namespace(
    core: str, watched: tuple[Folded, Hooks], tmp_path: Path, monkeypatch: Any
) -> None:
    folded, _ = watched
    monkeypatch.setattr(utils, "storage_namespace_seed", lambda *args: None)
    with one_rank():
        engine = Engine(core, slots=256, host=2.0, window=None, storage=str(tmp_path))
        turns = Turns(engine)
        stored(engine, turns)
        waits = wait_for(engine, "second", [*TOKENS, 8], "another adapter")
        turns.all(engine)
        assert engine.cache.check_prefetch_progress(waits.cache_request_handle)
    found = roots(folded)
    assert [f.code for f in found] == ["HKV104"], found
    assert "namespace=" in found[0].message
