"""Hooks on recurrent states: slots that are taken and given back, and for whom."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.states import StatePool
from hkvtool.recorder.sglang.steps import DEVICE


def _pool(hooks: Hooks, owner: Any) -> StatePool | None:
    pool = hooks.pool(owner)
    return pool if isinstance(pool, StatePool) else None


def allocated(hooks: Hooks, seen: None, slots: Any, allocator: Any, *args: Any, **kw: Any) -> None:
    """Slots were handed out."""
    pool = _pool(hooks, allocator)
    if pool is not None and slots is not None:
        pool.taken_now(pool.pages(slots))


def freed(hooks: Hooks, seen: None, result: None, allocator: Any, free_index: Any) -> None:
    """Slots are there again."""
    pool = _pool(hooks, allocator)
    if pool is not None:
        pool.give_back(pool.pages(free_index))


# --- for whom --------------------------------------------------------------------------------


def to_admit(hooks: Hooks, requests: Any, reqs: Any, *args: Any, **kw: Any) -> StatePool | None:
    """Each of these requests gets what it lacks: a slot to compute in, others for snapshots."""
    pool = _pool(hooks, requests.mamba_allocator)
    if pool is not None:
        for req in reqs:
            if not req.kv.holds_mamba:
                pool.takers.append(str(req.rid))
            if requests.enable_mamba_extra_buffer and req.kv.mamba_ping_pong_track_buffer is None:
                pool.takers.append(str(req.rid))
    return pool


def taken(hooks: Hooks, pool: StatePool | None, *args: Any, **kw: Any) -> None:
    """What is taken from here on is for others."""
    if pool is not None:
        pool.takers.clear()
        pool.copies = False


def to_snapshot(hooks: Hooks, component: Any, req: Any, *args: Any, **kw: Any) -> StatePool | None:
    """The tree is to get the state of a request, which may take another slot for that."""
    pool = _pool(hooks, component.cache.req_to_token_pool.mamba_allocator)
    if pool is not None:
        pool.takers.append(str(req.rid))
        pool.copies = True
    return pool


def to_bring(hooks: Hooks, component: Any, req: Any, *args: Any, **kw: Any) -> StatePool | None:
    """A request gets a slot, into which its state is to come from elsewhere."""
    pool = _pool(hooks, component.cache.req_to_token_pool.mamba_allocator)
    if pool is not None:
        pool.takers.append(str(req.rid))
    return pool


def to_follow(hooks: Hooks, requests: Any, req: Any, idx: int, value: Any) -> None:
    """A request has another slot for snapshots."""
    pool = _pool(hooks, requests.mamba_allocator)
    if pool is not None and not isinstance(value, int):
        pool.hand_over(int(value), str(req.rid))


def to_copy(hooks: Hooks, states: Any, src_indices: Any, dst_indices: Any) -> None:
    """States are copied: here those for the tree. What a batch copies before it runs is told with
    the batch."""
    pool = next((s.states for s in hooks.caches if s.states is not None
                 and s.states.copies and s.states.requests.mamba_pool is states), None)  # fmt: skip
    if pool is not None:
        event: dict[str, Any] = {
            "ev": "copy", "group": pool.name,
            "src": pool.pages(src_indices), "dst": pool.pages(dst_indices),
        }  # fmt: skip
        if not hooks.overlaps:
            event["actor"] = DEVICE
        hooks.tell.event(event)


def to_mix(hooks: Hooks, batch: Any, running_batch: Any) -> None:
    """Requests that were to write their next token do so beside others, and leave no snapshot."""
    state = hooks.cache(batch.tree_cache)
    if state is not None and state.states is not None:
        state.steps.without_snapshots({str(req.rid) for req in running_batch.reqs})
