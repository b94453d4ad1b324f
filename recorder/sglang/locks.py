"""Locks on the path to a node: all of its full-attention pages, a window's of the others, and the
state at its end."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, Lock, PoolState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.paths import full_pages, state_of, window_pages

OWNER = "lock"
"""Who holds what is locked, where that is no request, or not yet."""


def _component(state: CacheState) -> Any:
    return state.components["swa"]


def _key(node: int, receipt: Any, state: CacheState) -> tuple[int, Any]:
    uuids = receipt.component_lock_uuids
    return node, uuids.get(_component(state)) if state.swa is not None else None


def locked(
    hooks: Hooks, witness: Any, core: Any, receipt: Any, node_id: int,
    skip_lock_components: Any = (), **kw: Any,
) -> None:  # fmt: skip
    """A path may not be evicted."""
    state = hooks.by_core(witness)
    if state is None:
        return
    lock = Lock(node_id, full_pages(state, core, node_id))
    if state.swa is not None and _component(state) not in skip_lock_components:
        runs, lock.covered = window_pages(
            state.swa, core, _component(state), node_id, state.window or 0
        )
        lock.swa = [p for _, pages in runs for p in pages]
    if state.states is not None and state.components["mamba"] not in skip_lock_components:
        lock.states = state_of(state, core, node_id)
    state.locks.setdefault(_key(node_id, receipt, state), []).append(lock)
    for pool, pages in _held(state, lock):
        _count(hooks, pool, pages, 1)


def name(hooks: Hooks, state: CacheState, req: Any) -> None:
    """Whom a lock is for: the engine locks first, and hands it to a request then."""
    if req.lock is None:
        return
    receipt = req.lock.receipt
    alike = state.locks.get(_key(req.lock.node, receipt, state), ())
    if any(lock.receipt is receipt for lock in alike):
        return
    lock = next((lock for lock in alike if lock.receipt is None), None)
    if lock is None:
        return
    for pool, pages in _held(state, lock):
        if pool is not None and pages:
            hooks.tell.touch(pages, pool.name, str(req.rid), None, None)
            hooks.tell.free(pages, pool.name, None, None, OWNER, None)
    lock.req, lock.receipt = str(req.rid), receipt


def unlocked(
    hooks: Hooks, witness: Any, core: Any, result: Any, node_id: int, params: Any,
    skip_swa: bool = False, **kw: Any,
) -> None:  # fmt: skip
    """A lock is given up."""
    state = hooks.by_core(witness)
    if state is None:
        return
    if state.components["full"] in params.skipped_lock_components:
        state_unlocked(hooks, state, node_id, params)
        return
    lock = _of(state, node_id, params, window=not skip_swa)
    if lock is not None:
        _drop(state, lock, params)
        for pool, pages in reversed(_held(state, lock)):
            _count(hooks, pool, pages, -1, lock.req)


def state_unlocked(hooks: Hooks, state: CacheState, node: int, receipt: Any) -> None:
    """A state is let go early, when it was copied: the receipt is one made of that of the lock."""
    held = [lock for lock in state.locks.get(_key(node, receipt, state), ()) if lock.states]
    uuids = receipt.component_lock_uuids
    mine = [one for one in held if one.receipt and one.receipt.component_lock_uuids is uuids]
    for lock in (mine or held)[:1]:
        _count(hooks, state.states, lock.states or [], -1, lock.req)
        lock.states = None


def window_unlocked(
    hooks: Hooks, witness: Any, core: Any, result: Any, node_id: int, params: Any, **kw: Any
) -> None:
    """The window has moved on: what was locked of it may go, and the rest may not."""
    state = hooks.by_core(witness)
    lock = None if state is None else _of(state, node_id, params, window=True)
    if state is not None and lock is not None:
        _count(hooks, state.swa, lock.swa, -1, lock.req)
        lock.swa, lock.covered = [], 0


def extend(hooks: Hooks, state: CacheState, core: Any) -> None:
    """A window was filled again under locks that are held: they count on its new pages too."""
    if state.swa is None:
        return
    for held in state.locks.values():
        for lock in held:
            if not lock.covered:
                continue
            runs, _ = window_pages(state.swa, core, _component(state), lock.node, lock.covered)
            now = [p for _, pages in runs for p in pages]
            had = set(lock.swa)
            fresh = [p for p in now if p not in had]
            # Not in place: what was told is kept by whoever was told.
            lock.swa = lock.swa + fresh
            _count(hooks, state.swa, fresh, 1, lock.req)


def state_kept(hooks: Hooks, state: CacheState, node: int, slot: int) -> None:
    """A node has a state that had none: locks on it that are held count on it too."""
    for held in state.locks.values():
        for lock in held:
            if lock.node == node and lock.states is not None and slot not in lock.states:
                lock.states = [slot]
                _count(hooks, state.states, lock.states, 1, lock.req)


def _held(state: CacheState, lock: Lock) -> list[tuple[PoolState | None, list[int]]]:
    pairs = (state.full, lock.full), (state.swa, lock.swa), (state.states, lock.states or [])
    return list(pairs)


def _of(state: CacheState, node: int, receipt: Any, *, window: bool) -> Lock | None:
    """The lock that a receipt is of; several may be alike but for whether they have their window
    still."""
    held = state.locks.get(_key(node, receipt, state), ())
    mine = [lock for lock in held if lock.receipt is receipt]
    held = mine or [lock for lock in held if lock.receipt is None] or held
    return next((lock for lock in held if bool(lock.covered) == window), next(iter(held), None))


def _drop(state: CacheState, lock: Lock, receipt: Any) -> None:
    key = _key(lock.node, receipt, state)
    state.locks[key].remove(lock)
    if not state.locks[key]:
        del state.locks[key]


def _count(
    hooks: Hooks, pool: PoolState | None, pages: list[int], by: int, req: str | None = None
) -> None:
    if pool is None or not pages:
        return
    owner = OWNER if req is None else None
    if by > 0:
        hooks.tell.touch(pages, pool.name, req, None, owner)
    else:
        hooks.tell.free(pages, pool.name, req, None, owner, None)


def drop_all(hooks: Hooks, state: CacheState) -> None:
    """Nothing is locked any more."""
    for held in state.locks.values():
        for lock in held:
            for pool, pages in reversed(_held(state, lock)):
                _count(hooks, pool, pages, -1, lock.req)
    state.locks.clear()
