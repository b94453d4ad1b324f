"""A recording that begins while SGLang runs above memory of the host, with copies under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_host_load import HostLoad, host_differences
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_storage import one_rank
from engines_sglang.sglang_storage_load import StorageLoad, storage_differences
from engines_sglang.test_sglang_late import begun, nobody, quiet, served
from hkvtool.recorder.patches import is_wrapped
from hkvtool.recorder.sglang import plugin
from hkvtool.recorder.sglang.cache_state import CacheState

__all__ = ["nobody"]

SMALL = {"slots": 160, "swa_slots": 96, "host": 1.5}


def settle(load: HostLoad) -> None:
    """What is handed over is over, and what that hands over."""
    for _ in range(3):
        load.poll(land=True)


def files_too(folded: Folded, state: CacheState, *, locks: bool) -> Iterator[str]:
    """Of the storage nobody has told which files there are."""
    return storage_differences(folded, state, None, locks=locks)


def drive(load: HostLoad, before: int, steps: int, compare: Any, settle: Any = settle) -> None:
    """Attached, detached and attached again, each time in the middle of what is under way."""
    scheduler = served(load.engine)
    # The Rust core does not tell how far a lock on a window reaches.
    exact = load.engine.cache._tree_core_backend == "python"
    for _ in range(2):
        for _ in range(before):
            load.step()
        recorded, hooks = begun()
        [state] = [s for s in hooks.caches if s.cache is scheduler.tree_cache]
        for number in range(steps):
            wrong = list(compare(recorded.folded, state, locks=exact))
            assert not wrong, (number, wrong[:3])
            kind = load.step()
            assert not hooks.failed, (number, kind, hooks.failed)
        settle(load)
        quiet(recorded, hooks)
        plugin.stop(recorded)
    for entry in load.engine.cache.cache_controller.mem_pool_host.entries:
        kept = entry.device_alloc_fn
        assert kept is None or not is_wrapped(type(kept.__self__), kept.__name__)
        assert kept is None or kept.__func__ is getattr(type(kept.__self__), kept.__name__)
    settle(load)
    load.engine.cache.sanity_check()


@pytest.mark.parametrize(("core", "policy"), [("python", "write_back"), ("rust", "write_through")])
def test_above_memory_of_the_host(core: str, policy: str) -> None:
    load = HostLoad(Engine(core, policy=policy, **SMALL), 2)
    drive(load, 60, 40, host_differences)
    assert {"begin", "end", "evict", "evict_host", "land"} <= set(load.done)


@pytest.mark.parametrize("core", CORES)
def test_above_a_storage(core: str, tmp_path: Path) -> None:
    with one_rank():
        load = StorageLoad(
            Engine(core, storage=str(tmp_path), files=160, **SMALL), 4, str(tmp_path)
        )
        drive(load, 60, 40, files_too, StorageLoad.settle)
        assert {"arrive", "admit", "read", "write"} <= set(load.done)


@pytest.mark.soak
@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("core", CORES)
def test_long_above_memory_of_the_host(core: str, policy: str, page: int) -> None:
    for seed in range(3, 13):
        drive(
            HostLoad(Engine(core, policy=policy, page=page, **SMALL), seed), 50, 150,
            host_differences,
        )  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("policy", ["write_through", "write_back"])
@pytest.mark.parametrize("core", CORES)
def test_long_above_a_storage(core: str, policy: str, tmp_path: Path) -> None:
    for seed in range(3, 13):
        folder = tmp_path / str(seed)
        folder.mkdir()
        with one_rank():
            shape = {"policy": policy, "storage": str(folder), "files": 160, **SMALL}
            drive(
                StorageLoad(Engine(core, **shape), seed, str(folder)), 50, 150, files_too,
                StorageLoad.settle,
            )  # fmt: skip
