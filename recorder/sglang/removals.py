"""What leaves the tree: evicted nodes, tombstones of a window, all of it."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.locks import drop_all, window_unlocked


def removed(hooks: Hooks, witness: Any, core: Any, result: Any, *args: Any, **kw: Any) -> None:
    """A step of an eviction dropped what these slots held; the cache frees them next."""
    state = hooks.by_core(witness)
    if state is None:
        return
    for pool in state.pools:
        for slots in result.device_frees.get(state.components[pool.kind], ()):
            if pool.kind == "swa":
                # The window's are named by the slots that lead to them.
                slots = state.mapping[slots]
            pool.unpublish(pool.pages(slots), "evict")


def cleared(hooks: Hooks, witness: Any, core: Any, result: Any, *args: Any, **kw: Any) -> None:
    """The tree was emptied, and nothing in it is locked."""
    state = hooks.by_core(witness)
    if state is None:
        return
    drop_all(hooks, state)
    for pool in state.pools:
        pool.forget_hashes()


def window_left(hooks: Hooks, witness: Any, core: Any, result: Any, *args: Any, **kw: Any) -> None:
    """A window that is locked no more may be dropped in the same breath."""
    window_unlocked(hooks, witness, core, result, *args, **kw)
    removed(hooks, witness, core, result)
