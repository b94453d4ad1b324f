"""SGLang's HiCache with a storage below it, on its own code: what its threads write and read is
told, and judged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_storage import one_rank
from engines_sglang.sglang_storage_load import StorageLoad, storage_differences
from hkvtool.recorder.sglang.hooks import Hooks

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
