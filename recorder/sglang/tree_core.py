"""The engine's tree core with a witness in front: what it is asked, and what comes of it.

It stands where the engine lets a tree core of one's own stand, so it sees the Rust core as it sees
the Python one: hooks on the latter's methods see nothing where the former runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.host_hooks import adopted, load_over
from hkvtool.recorder.sglang.locks import locked, unlocked
from hkvtool.recorder.sglang.removals import cleared, removed, window_left
from hkvtool.recorder.sglang.storage_hooks import committed, grafted

BACKEND = "hkvtool"
"""The name under which the engine knows it."""


def registry() -> Any:
    """Where the engine finds tree cores by name."""
    return importlib.import_module("sglang.srt.mem_cache.unified_cache.tree_core_registry")


Then = Callable[..., None]

THEN: dict[str, Then] = {
    "inc_lock_ref": locked,
    "dec_lock_ref": unlocked,
    "dec_swa_lock_only": window_left,
    "reset": cleared,
    "commit_load_back": adopted,
    "finish_load_back": load_over,
    "insert_host": grafted,
    "commit_hicache_transfers": committed,
    **dict.fromkeys(
        (
            "evict_device_next_node", "evict_device_leaf", "demote", "drop_subtree_no_host",
            "finish_swa_state_eviction", "finish_mamba_state_eviction",
        ),
        removed,
    ),
}  # fmt: skip
"""What is told after a call, by the function of the interface."""


def put_in_front(cache: Any, core: Any, hooks: Hooks) -> None:
    """Have a cache that is there ask a core by way of a witness."""
    _replace(cache, Witness(core, hooks))


def take_away(cache: Any) -> None:
    """Have it ask its core itself again."""
    if isinstance(cache.tree_core, Witness):
        _replace(cache, cache.tree_core._core)


def _replace(cache: Any, core: Any) -> None:
    before = cache.tree_core
    for owner in (cache, *cache.components.values(), cache.session_refs):
        for name, value in list(vars(owner).items()):
            if value is before:
                setattr(owner, name, core)


class Witness:
    """Hands every call on to the core, and tells of those that change what is held or locked."""

    def __init__(self, core: Any, hooks: Hooks) -> None:
        object.__setattr__(self, "_core", core)
        object.__setattr__(self, "_hooks", hooks)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._core, name)
        then = THEN.get(name)
        if then is None:
            return found
        call = self._told(name, found, then)
        object.__setattr__(self, name, call)
        return call

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._core, name, value)

    def _told(self, name: str, function: Any, then: Then) -> Callable[..., Any]:
        hooks, core = self._hooks, self._core

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if name not in hooks.failed and not hooks.off:
                try:
                    then(hooks, self, core, result, *args, **kwargs)
                except Exception as e:
                    hooks.fail(name, e)
            return result

        return call
