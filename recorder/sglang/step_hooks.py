"""Hooks on steps: what a batch reads and writes, when the device begins it, and when it is over.

A batch is told when it is ready, with what changed in its requests' pages; what is read and written
follows from that. The device's own begin comes later, behind the loads that it waits for.
"""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.cache_hooks import resumed
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.locks import name
from hkvtool.recorder.sglang.steps import RESULT, Besides


def to_go_on(hooks: Hooks, batch: Any, *args: Any, **kw: Any) -> None:
    """Requests get slots for what they have to compute: from where they go on is decided."""
    hooks.batch = [(str(req.rid), int(req.extend_len)) for req in batch.reqs]
    hooks.overlaps = bool(batch.enable_overlap)
    state = hooks.cache(batch.tree_cache)
    if state is None:
        return
    for req in batch.reqs:
        # A later part of a long prompt goes on from what the request holds itself.
        if not req.kv.holds_kv and state.asked.pop(req.rid, None) is not None:
            resumed(hooks, state, str(req.rid), int(req.prefix_len), req.last_node)
            name(hooks, state, req)


def went_on(hooks: Hooks, seen: None, result: Any, batch: Any, *args: Any, **kw: Any) -> None:
    """A batch is ready: what it will do is told here. Slots that are taken from here on are for
    others."""
    taken, hooks.batch = hooks.batch, []
    state = hooks.cache(batch.tree_cache)
    if state is None:
        return
    if sum(count for _, count in taken) != len(batch.out_cache_loc):
        state.loses_steps("batches that take more or less than a slot a token")
        return
    starts = [int(start) for start in batch.prefix_lens]
    besides: Besides = ((), ())
    if state.states is not None:
        chosen = batch.mamba_prefill_track_mask_cpu
        left = state.states.snapshots(batch, starts, chosen, decoded=False)
        besides = list(state.states.prepared(batch)), list(left)
    _plan(state, batch, starts, [count for _, count in taken], besides)


def to_decode(hooks: Hooks, batch: Any, *args: Any, **kw: Any) -> None:
    """Each request of a batch gets a slot for its next token."""
    hooks.batch = [(str(req.rid), 1) for req in batch.reqs]
    hooks.overlaps = bool(batch.enable_overlap)


def decoded(hooks: Hooks, seen: None, result: Any, batch: Any, *args: Any, **kw: Any) -> None:
    """A batch is ready in which each request writes its next token."""
    hooks.batch = []
    state, slots = hooks.cache(batch.tree_cache), batch.out_cache_loc
    if state is None:
        return
    if not batch.spec_algorithm.is_none():
        state.loses_steps("what speculative decoding writes and reads")
    elif slots is None or len(slots) != len(batch.reqs):
        state.loses_steps("batches that take more or less than a slot a request")
    else:
        starts = [int(length) - 1 for length in batch.seq_lens_cpu.tolist()]
        besides: Besides = ((), ())
        if state.states is not None:
            chosen = batch.mamba_track_mask_cpu
            besides = (), list(state.states.snapshots(batch, starts, chosen, decoded=True))
        _plan(state, batch, starts, [1] * len(starts), besides)


def _plan(
    state: CacheState, batch: Any, starts: list[int], counts: list[int], besides: Besides
) -> None:
    """Tell a step: whom it runs, from where, how far, and what pages they have by now."""
    slots = batch.out_cache_loc
    fulls = slots.tolist()
    places = [fulls] if state.swa is None else [fulls, state.mapping[slots].tolist()]
    rows, at = [], 0
    for req, start, count in zip(batch.reqs, starts, counts, strict=True):
        if state.steps.knows(str(req.rid)):
            # A page begins where its first slot is taken.
            first = -start % state.page
            taken = slice(at + first, at + count, state.page)
            rows.append((False, [[s // state.page for s in p[taken]] for p in places]))
        else:
            rows.append((True, _row(state, batch, req, start + count)))
        at += count
    names = [str(req.rid) for req in batch.reqs]
    state.steps.plan(names, starts, counts, rows, besides)


def _row(state: CacheState, batch: Any, req: Any, length: int) -> list[list[int]]:
    """Every page that a request has, in each group."""
    row = batch.req_to_token_pool.req_to_token[req.kv.req_pool_idx, : length : state.page]
    groups = [row] if state.swa is None else [row, state.mapping[row.long()]]
    pages = [(slots // state.page).tolist() for slots in groups]
    return pages if state.states is None else [*pages, [int(req.kv.mamba_pool_idx)]]


def checked_in(hooks: Hooks, seen: None, result: None, cache: Any, req: Any, **kw: Any) -> None:
    """The tree has what a request has computed so far, and may have given it pages for its own."""
    state = hooks.cache(cache)
    if state is not None:
        state.steps.forget(str(req.rid))
        name(hooks, state, req)


# --- on the device -------------------------------------------------------------------------


def to_run(hooks: Hooks, scheduler: Any, batch: Any, *args: Any, **kw: Any) -> CacheState | None:
    """A batch is handed to the worker. With loads about, each step says where it begins: behind
    those that it waits for."""
    state = hooks.cache(batch.tree_cache)
    if state is not None and state.tier is None:
        state.steps.begin()
    return state


def ran(hooks: Hooks, state: CacheState | None, result: Any, *args: Any, **kw: Any) -> None:
    """The worker has handed all of it to the device."""
    if state is not None:
        state.steps.begin()
        if result is not None:
            setattr(result, RESULT, (state, state.steps.handed_out()))


def to_process(hooks: Hooks, scheduler: Any, batch: Any, result: Any, *a: Any, **kw: Any) -> None:
    """What a batch came to is read: it is over."""
    told = getattr(result, RESULT, None)
    if told is not None:
        state, steps = told
        if state.hooks is hooks:
            state.steps.retire(steps)


def refused(
    hooks: Hooks, seen: None, result: Any, adder: Any, req: Any, *args: Any, **kw: Any
) -> None:
    """A request was not admitted, for there is no room for it."""
    state = hooks.cache(adder.tree_cache)
    if state is None or state.full is None or result.name != "NO_TOKEN":
        return
    if str(req.rid) in state.refused:
        return
    state.refused.add(str(req.rid))
    free = state.full.allocator.available_size() + state.cache.full_evictable_size()
    hooks.tell.event({
        "ev": "refuse", "req": str(req.rid), "reason": "no room", "pool": state.full.name,
        "free": int(free) // state.page,
    })  # fmt: skip
