"""A recording that begins while an engine runs: what it begins with is the engine's state between
two steps, whatever the engine was doing when somebody asked."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.worker.worker_base import WorkerBase

from engines.engine_state import Folded, differences
from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, random_load
from hkvtool.recorder.patches import is_wrapped
from hkvtool.recorder.tell import Prepare, _plain
from hkvtool.recorder.vllm import plugin
from hkvtool.recorder.vllm.hooks import Hooks


class Recorded:
    """Stands for a recording; what is told is folded as it comes."""

    def __init__(self) -> None:
        self.folded = Folded()
        self.emitter: Prepare = _plain(self.folded)

    def emit_dict(self, data: dict[str, Any]) -> bool:
        self.folded(data)
        return True

    def emit(self, ev: str, **keys: Any) -> bool:
        return self.emit_dict({"ev": ev, **keys})


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    recording = Recorded()
    yield recording
    plugin.stop(recording)


def elsewhere(call: Callable[[], object]) -> None:
    """Do it in another thread, as what answers `hkvtool attach` does, and wait."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed, failed


def wrong(recorded: Recorded, scheduler: Any) -> list[str]:
    """Where the allocator's folded state is not the engine's. What requests hold that took blocks
    or gave them back unseen, a `state` does not tell."""
    hooks: Hooks | None = plugin._begun[0]._hooks
    assert hooks is not None
    found = differences(recorded.folded, hooks, scheduler)
    unseen = ("table of", "only in the folded state")
    return [one for one in found if not any(words in one for words in unseen)]


def states(recorded: Recorded, scheduler: Any) -> int:
    """How often what it has was told of this engine; others of the process are told of too."""
    hooks = plugin._begun[0]._hooks
    assert hooks is not None
    mine = hooks.pool(scheduler.kv_cache_manager.block_pool).name
    return sum(e["ev"] == "state" and e["pool"] == mine for e in recorded.folded.events)


def with_an_engine(folder: Path, overlapped: bool) -> tuple[Any, Drive]:
    made = make_scheduler(folder, gemma_like(), overlapped=overlapped)
    drive = Drive(made.scheduler, 2 if overlapped else 1)
    for _ in random_load(drive, random.Random(4), 150, longest=120, output=100):
        pass
    return made.scheduler, drive


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
def test_asked_for_in_the_middle_of_a_step(
    tmp_path: Path, recorded: Recorded, monkeypatch: pytest.MonkeyPatch, overlapped: bool
) -> None:
    scheduler, drive = with_an_engine(tmp_path, overlapped)
    pool = scheduler.kv_cache_manager.block_pool
    evict = type(pool)._maybe_evict_cached_block
    asked: list[int] = []

    def in_between(self: Any, block: Any) -> Any:
        # The block has left the free list, and nobody counts a reference to it yet.
        if self is pool and not asked:
            asked.append(block.block_id)
            elsewhere(lambda: plugin.start(recorded))
        return evict(self, block)

    monkeypatch.setattr(type(pool), "_maybe_evict_cached_block", in_between)
    steps = random_load(drive, random.Random(5), 200, longest=120, output=100)
    while not asked:
        next(steps)
    monkeypatch.undo()
    assert recorded.folded.events == [], "the step that is under way is not told of"
    for step in steps:
        assert not wrong(recorded, scheduler)[:5], step
    drive.drain()
    assert not wrong(recorded, scheduler)
    kinds = [event["ev"] for event in recorded.folded.events]
    assert kinds[:3] == ["trace", "pool", "group"] and states(recorded, scheduler) == 1
    assert kinds.index("state") < kinds.index("dispatch")


def test_a_worker_that_another_engine_has_left_says_nothing_of_this_one(
    tmp_path: Path, recorded: Recorded
) -> None:
    _, drive = with_an_engine(tmp_path, False)
    left = object.__new__(WorkerBase)
    parallel = SimpleNamespace(data_parallel_index=3)
    left.vllm_config = SimpleNamespace(parallel_config=parallel, kv_events_config=None)
    elsewhere(lambda: plugin.start(recorded))
    for _ in random_load(drive, random.Random(5), 20, longest=120, output=100):
        pass
    pools = [event["pool"] for event in recorded.folded.events if event["ev"] == "pool"]
    assert pools and not [pool for pool in pools if "@dp" in pool]
    assert left.vllm_config.parallel_config is parallel


def test_given_up_before_the_next_step(tmp_path: Path, recorded: Recorded) -> None:
    _, drive = with_an_engine(tmp_path, False)
    elsewhere(lambda: plugin.start(recorded))
    assert is_wrapped(Scheduler, "schedule")
    elsewhere(lambda: plugin.stop(recorded))
    assert not is_wrapped(Scheduler, "schedule")
    for _ in random_load(drive, random.Random(5), 20, longest=120, output=100):
        pass
    assert recorded.folded.events == []


def test_again_after_a_pause(tmp_path: Path, recorded: Recorded) -> None:
    scheduler, drive = with_an_engine(tmp_path, False)
    for seed in (5, 6):
        elsewhere(lambda: plugin.start(recorded))
        for _ in random_load(drive, random.Random(seed), 60, longest=120, output=100):
            assert not wrong(recorded, scheduler)
        told = states(recorded, scheduler)
        elsewhere(lambda: plugin.stop(recorded))
        drive.drain()
    assert told == 2


def test_an_engine_made_while_another_stands_still(tmp_path: Path, recorded: Recorded) -> None:
    idle, _ = with_an_engine(tmp_path, False)
    elsewhere(lambda: plugin.start(recorded))
    scheduler, drive = with_an_engine(tmp_path, False)
    assert not wrong(recorded, scheduler)
    groups = [e for e in recorded.folded.events if e["ev"] == "group"]
    hooks = plugin._begun[0]._hooks
    assert hooks is not None
    for one in (idle, scheduler):
        known = hooks.pool(one.kv_cache_manager.block_pool)
        mine = {e["group"]: e["form"] for e in groups if e["pool"] == known.name}
        assert list(known.groups.values()) == list(mine)
        assert set(mine.values()) == {"compressed", "swa"}
    drive.drain()
    assert not wrong(recorded, scheduler)
