"""Hooks on scheduler and batches: requests that end, steps with what they write and read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from hkvtool.recorder.transformers.cache_state import CacheState, GroupState
from hkvtool.recorder.transformers.hooks import Hooks

Wrapper = Callable[..., Any]

_WARM_UP = "__warmup_"


def finish(hooks: Hooks, original: Any) -> Wrapper:
    """A request is over, or makes room and comes back."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        state = self.active_requests.get(request_id)
        result = original(self, request_id, *args, **kwargs)
        try:
            if hooks.preempting:
                hooks.end(request_id, "preempt")
            else:
                hooks.end(request_id, "abort" if getattr(state, "error", None) else "finish")
        except Exception as e:
            hooks.fail("finish", e)
        return result

    return wrapper


def cancel(hooks: Hooks, original: Any) -> Wrapper:
    """Requests are given up."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        states = original(self, *args, **kwargs)
        try:
            for state in states:
                hooks.end(state.request_id, "abort")
        except Exception as e:
            hooks.fail("cancel", e)
        return states

    return wrapper


def prepare(hooks: Hooks, original: Any) -> Wrapper:
    """A batch is made ready: from here on it stands what the step writes and reads."""

    def wrapper(self: Any, requests_in_batch: list[Any], *args: Any, **kwargs: Any) -> Any:
        batch = [(f.state.request_id, f.state.position_offset, f.query_length)
                 for f in requests_in_batch]  # fmt: skip
        result = original(self, requests_in_batch, *args, **kwargs)
        try:
            state = hooks.cache(self.cache)
            if state is not None and not batch[0][0].startswith(_WARM_UP):
                _dispatch(hooks, state, batch, bool(self.use_block_table or self.max_kv_read))
        except Exception as e:
            hooks.fail("dispatch", e)
        return result

    return wrapper


def _dispatch(
    hooks: Hooks, state: CacheState, batch: list[tuple[str, int, int]], reads: bool
) -> None:
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
        out += [i, int(anew), len(now)]
        for number, table in enumerate(now):
            fresh = table if anew or told is None else table[len(told[number]) :]
            out.append(len(fresh))
            out += fresh
        state.told[req] = now
    return out


def _ring(
    hooks: Hooks, group: GroupState, step: int, batch: list[tuple[str, int, int]], reads: bool
) -> None:
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


def update(hooks: Hooks, original: Any) -> Wrapper:
    """The oldest step is known to be done."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            state = hooks.cache(self.cache)
            if state is not None and state.out:
                hooks.tell.retire(state.out.popleft())
        except Exception as e:
            hooks.fail("retire", e)
        return original(self, *args, **kwargs)

    return wrapper
