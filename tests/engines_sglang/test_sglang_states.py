"""Recurrent states of SGLang's hybrid models: what was told of its own tree and pools is what they
have, whichever core the tree has."""

from __future__ import annotations

from typing import Any

import pytest

from engines_sglang.sglang_cache import CORES
from engines_sglang.sglang_state import Folded
from engines_sglang.sglang_states import (
    STRATEGIES,
    Contents,
    StateEngine,
    StateLoad,
    state_differences,
)
from engines_sglang.test_sglang_state import quiet
from hkvtool.recorder.sglang.hooks import Hooks

Watched = tuple[Folded, Hooks]


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
    load = drive(watched, StateEngine(core, strategy, slots=256), 1, 300)
    kinds: set[Any] = {event["ev"] for event in watched[0].events if event.get("group") == "mamba"}
    assert {"alloc", "free", "publish", "unpublish", "touch", "copy", "zero"} <= kinds
    assert {"begin", "decode", "checkpoint", "end", "preempt", "evict_states"} <= set(load.done)
