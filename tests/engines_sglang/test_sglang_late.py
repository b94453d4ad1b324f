"""A recording that begins while SGLang runs: what it begins with is the engine's state between two
steps, and what it then tells is the engine's."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from sglang.srt.managers.scheduler import Scheduler

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_host_load import HostLoad
from engines_sglang.sglang_state import Folded, differences
from engines_sglang.sglang_states import StateEngine
from hkvtool.recorder.patches import is_wrapped
from hkvtool.recorder.sglang import plugin
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.tree_core import Witness
from hkvtool.recorder.tell import _plain


class Recorded:
    """Stands for a recording; what is told is folded as it comes."""

    def __init__(self) -> None:
        self.folded = Folded()
        self.emitter = _plain(self.folded)

    def emit_dict(self, data: dict[str, Any]) -> bool:
        self.folded(data)
        return True

    def keyed(self, value: Any) -> str:
        return (value if isinstance(value, bytes) else str(value).encode()).hex()[:40]


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    # Requests that an earlier test has left hold nothing of the cache of this one.
    gc.collect()
    yield
    plugin.stop(None)


def served(engine: Any) -> Any:
    """A scheduler that has the cache, and nothing else."""
    scheduler = Scheduler.__new__(Scheduler)
    scheduler.tree_cache = engine.cache
    return scheduler


def step_begins() -> None:
    """SGLang's scheduler looks what to do next, and finds nothing."""
    scheduler = MagicMock()
    scheduler.process_pending_chunked_abort.side_effect = StopIteration
    with pytest.raises(StopIteration):
        Scheduler.get_next_batch_to_run(scheduler, None, None)


def begun() -> tuple[Recorded, Hooks]:
    """Somebody asks for a recording, and gets it at the next step."""
    recorded = Recorded()
    plugin.start(recorded)
    assert not recorded.folded.events
    step_begins()
    hooks = plugin._begun[0]._hooks
    assert hooks is not None and recorded.folded.events
    return recorded, hooks


def quiet(recorded: Recorded, hooks: Hooks) -> None:
    assert not hooks.failed, hooks.failed
    folded = recorded.folded
    assert not folded.guard.count and folded.guard.off is None
    loud = [f for f in folded.checked().findings if f.code not in ("HKV308", "HKV502")]
    assert not loud, (loud[0].code, loud[0].message, loud[0].events)


class Requests(HostLoad):
    """Requests on a cache that has only the device."""

    def kinds(self) -> dict[Any, float]:
        """What may happen, and how often."""
        return {
            self.begin: 6, self.end: 5, self.preempt: 1, self.evict: 3, self.evict_window: 2,
            self.reset: 0.1,
        }  # fmt: skip


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("core", CORES)
def test_attached_detached_and_attached_again(core: str, page: int) -> None:
    load = Requests(Engine(core, slots=256, swa_slots=128, page=page), 1)
    cache, scheduler = load.engine.cache, served(load.engine)
    own = cache.tree_core
    for _ in range(2):
        for _ in range(100):
            load.step()
        recorded, hooks = begun()
        [state] = [s for s in hooks.caches if s.cache is cache]
        assert isinstance(cache.tree_core, Witness)
        for number in range(100):
            wrong = list(differences(recorded.folded, cache, state.pools))
            assert not wrong, (number, wrong[:3])
            load.step()
        quiet(recorded, hooks)
        plugin.stop(recorded)
        assert cache.tree_core is own and not is_wrapped(type(cache), "insert")
        assert not is_wrapped(Scheduler, "get_next_batch_to_run")
    cache.sanity_check()
    assert scheduler.tree_cache is cache


def test_what_cannot_be_described_is_said() -> None:
    engine = StateEngine("rust", "no_buffer")
    scheduler = served(engine)
    recorded, hooks = begun()
    assert not [s for s in hooks.caches if s.cache is scheduler.tree_cache]
    notes = [e.get("note", "") for e in recorded.folded.events]
    assert any("a cache that was there before, of FULL, MAMBA" in note for note in notes)
