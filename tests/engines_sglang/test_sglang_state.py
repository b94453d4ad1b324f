"""What is recorded of SGLang's cache rebuilds its state, whichever core the tree has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_load import Load
from engines_sglang.sglang_state import Folded, differences
from hkvtool.recorder.sglang.hooks import Hooks


def quiet(folded: Folded) -> None:
    """Neither check nor guard has anything to say, but for what the engine rightly threw away."""
    assert not folded.guard.count and folded.guard.off is None
    loud = [f for f in folded.checked().findings if f.code != "HKV308"]
    assert not loud, (loud[0].code, loud[0].message, loud[0].events)


def drive(watched: tuple[Folded, Hooks], core: str, seed: int, steps: int, **shape: Any) -> Load:
    folded, hooks = watched
    load = Load(Engine(core, **shape), seed)
    pools = hooks.caches[-1].pools
    for number in range(steps):
        kind = load.step()
        wrong = list(differences(folded, load.engine.cache, pools))
        assert not wrong, (number, kind, wrong[:3])
    load.engine.cache.sanity_check()
    quiet(folded)
    return load


@pytest.mark.parametrize("core", CORES)
def test_random_load(core: str, watched: tuple[Folded, Hooks]) -> None:
    load = drive(watched, core, 1, 300, slots=256, swa_slots=128)
    kinds = Counter(event["ev"] for event in watched[0].events)
    assert kinds["publish"] > 50 and kinds["unpublish"] > 20 and kinds["touch"] > 50
    assert {"begin", "finish", "evict_window", "slide", "let_go", "group"} <= set(load.done)


@pytest.mark.soak
@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("core", CORES)
def test_long_random_load(
    core: str, seed: int, page: int, watched: tuple[Folded, Hooks]
) -> None:  # fmt: skip
    drive(watched, core, seed, 5000, slots=256, swa_slots=128, page=page)


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("core", CORES)
def test_random_load_without_a_window(core: str, page: int, watched: tuple[Folded, Hooks]) -> None:
    drive(watched, core, 2, 200, slots=192, window=None, page=page)


@pytest.mark.parametrize("core", CORES)
def test_random_load_of_single_slots(core: str, watched: tuple[Folded, Hooks]) -> None:
    drive(watched, core, 3, 300, slots=256, swa_slots=160, page=1)
