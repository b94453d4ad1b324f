"""Hooks on scheduler and batches: requests that end, steps with what they write and read."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hkvtool.recorder.transformers.cache_state import CacheState, GroupState
from hkvtool.recorder.transformers.hooks import WARM_UP, Hooks

Batch = list[tuple[str, int, int]]
"""Requests of a step, each with its first token and how many."""


def to_finish(hooks: Hooks, scheduler: Any, request_id: str, *args: Any, **kw: Any) -> str:
    """How the request ends."""
    if hooks.preempting:
        return "preempt"
    failed = getattr(scheduler.active_requests.get(request_id), "error", None)
    return "abort" if failed else "finish"


def finished(
    hooks: Hooks, how: str, result: None, scheduler: Any, request_id: str, *args: Any, **kw: Any
) -> None:
    """A request is over, or made room and comes back."""
    hooks.end(request_id, how)


def cancelled(hooks: Hooks, seen: None, states: Any, scheduler: Any) -> None:
    """Requests were given up."""
    for state in states:
        hooks.end(state.request_id, "abort")


def to_prepare(
    hooks: Hooks, batch: Any, requests_in_batch: Any, *args: Any, **kw: Any
) -> Batch:  # fmt: skip
    """The requests of the batch, before their positions are moved on."""
    return [(f.state.request_id, f.state.position_offset, f.query_length)
            for f in requests_in_batch]  # fmt: skip


def prepared(
    hooks: Hooks, requests: Batch, result: None, batch: Any, *args: Any, **kw: Any
) -> None:
    """A batch is ready: from here on it stands what the step writes and reads."""
    state = hooks.cache(batch.cache)
    if state is not None and not requests[0][0].startswith(WARM_UP):
        _dispatch(hooks, state, requests, bool(batch.use_block_table or batch.max_kv_read))


def _dispatch(hooks: Hooks, state: CacheState, batch: Batch, reads: bool) -> None:
    hooks.steps += 1
    step = hooks.steps
    state.out.append(step)
    reqs = [req for req, _, _ in batch]
    full = [g for g in state.groups.values() if g.table_index is not None]
    hooks.tell.dispatch(
        step, reqs, [start for _, start, _ in batch], [count for _, _, count in batch],
        _deltas(state, full, reqs), None, None,
    )  # fmt: skip
    for group in state.groups.values():
        if group.table_index is None and group.told:
            _ring(hooks, group, step, batch, reads)


def _deltas(state: CacheState, groups: list[GroupState], reqs: list[str]) -> list[int]:
    """What changed in the block tables since the last dispatch, as `dispatch.tables` has it."""
    out: list[int] = []
    for i, req in enumerate(reqs):
        told = state.told.get(req)
        now = [group.table(req) for group in groups]
        if told == now:
            continue
        anew = told is None or any(
            table[: len(old)] != old for old, table in zip(told, now, strict=True)
        )
        first = groups[0].table_index if groups else None
        if first is None:
            continue
        out += [i, int(anew), first, len(now)]
        for number, table in enumerate(now):
            fresh = table if anew or told is None else table[len(told[number]) :]
            out.append(len(fresh))
            out += fresh
        state.told[req] = now
    return out


def _ring(hooks: Hooks, group: GroupState, step: int, batch: Batch, reads: bool) -> None:
    """What a step reads of each request's ring, and then writes over it: the token at position p
    lies at p modulo the window."""
    window = group.window
    assert window is not None
    for req, start, _ in batch:
        table = group.table(req)
        low = max(0, start - window + 1)
        if reads and low < start:
            blocks = _of_ring(group, table, low, start)
            hooks.tell.event({
                "ev": "use", "step": step, "req": req, "group": group.name, "blocks": blocks,
                "tokens": [low, start],
            })  # fmt: skip
    for req, start, count in batch:
        table = group.table(req)
        end = start + count
        first = max(start, end - window)
        # Where its two ends lie in one block, the later is written over what the earlier leaves.
        turn = (end - 1) // group.unit * group.unit
        cuts = [first, turn, end] if turn - first >= window - group.unit else [first, end]
        for low, high in pairwise(cuts):
            if low < high:
                units = range(low // group.unit, -(-high // group.unit))
                hooks.tell.event({
                    "ev": "write", "step": step, "req": req, "group": group.name,
                    "blocks": [table[u % group.laps] for u in units], "tokens": [low, high],
                })  # fmt: skip


def _of_ring(group: GroupState, table: list[int], low: int, high: int) -> list[int]:
    """Blocks that hold tokens [low, high), the one with the last token last."""
    units = range(low // group.unit, -(-high // group.unit))
    places = [u % group.laps for u in units]
    latest = dict.fromkeys(reversed(places))
    return [table[place] for place in reversed(latest)]


def to_update(hooks: Hooks, processor: Any, *args: Any, **kw: Any) -> None:
    """The oldest step is known to be done."""
    state = hooks.cache(processor.cache)
    if state is not None and state.out:
        hooks.tell.retire(state.out.popleft())
