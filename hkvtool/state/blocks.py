"""Transitions of blocks as space: free list, owners, references, pins.

Written once: plain Python on lists, and the very same source compiled on numpy arrays
(`hkvtool.state.compiled`). Integers and indexable arrays only. A block id that is none is so
negative that ``base + id`` stays below 0.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import ALLOCATED, STEPS, TABLES, UNKNOWN


def unlink_free(st: Any, s: int) -> None:
    """Take a slot out of its pool's free list, if it is in it."""
    p = st.slot_pool[s]
    before, after = st.free_prev[s], st.free_next[s]
    if before < 0 and after < 0 and st.free_head[p] != s:
        return
    if before >= 0:
        st.free_next[before] = after
    else:
        st.free_head[p] = after
    if after >= 0:
        st.free_prev[after] = before
    else:
        st.free_tail[p] = before
    st.free_prev[s] = -1
    st.free_next[s] = -1


def append_free(st: Any, s: int) -> None:
    """Put a slot at the end of the free list: it is reused last."""
    p = st.slot_pool[s]
    tail = st.free_tail[p]
    st.free_prev[s] = tail
    st.free_next[s] = -1
    if tail >= 0:
        st.free_next[tail] = s
    else:
        st.free_head[p] = s
    st.free_tail[p] = s


def prepend_free(st: Any, s: int) -> None:
    """Put a slot at the head of the free list: it is reused next."""
    p = st.slot_pool[s]
    head = st.free_head[p]
    st.free_next[s] = head
    st.free_prev[s] = -1
    if head >= 0:
        st.free_prev[head] = s
    else:
        st.free_tail[p] = s
    st.free_head[p] = s


def dispatch(st: Any, number: int, pos: int) -> None:
    """A step is handed out: what it names, it names as it stands here."""
    i = 2 * (number % STEPS)
    st.steps[i] = number
    st.steps[i + 1] = pos


def dispatched(st: Any, number: int) -> Any:
    """Where a step was dispatched, or `MISSING`."""
    if number == MISSING:
        return MISSING
    i = 2 * (number % STEPS)
    return st.steps[i + 1] if st.steps[i] == number else MISSING


def generation(st: Any, s: int, number: int) -> Any:
    """The generation of a slot that an access of step `number` means: the one that was current
    when the step was dispatched. Engines free and re-issue blocks while a step is in flight."""
    at = dispatched(st, number)
    if at == MISSING or st.alloc_pos[s] <= at:
        return st.gen[s]
    if st.last_alloc[s] <= at:
        return st.gen[s] - 1
    return st.gen[s] - 2


def set_owner(st: Any, s: int, req: int) -> None:
    """Chain a slot to the request that now owns it, and off the one that did."""
    before, after, last = st.own_prev[s], st.own_next[s], st.owner[s]
    if before >= 0:
        st.own_next[before] = after
    elif last >= 0 and st.own_head[last] == s:
        st.own_head[last] = after
    if after >= 0:
        st.own_prev[after] = before
    st.own_prev[s] = -1
    st.own_next[s] = -1
    st.owner[s] = req
    if req >= 0:
        head = st.own_head[req]
        st.own_next[s] = head
        if head >= 0:
            st.own_prev[head] = s
        st.own_head[req] = s


def alloc(
    st: Any, g: int, base: int, blk: Any, b0: int, b1: int, t0: int, req: int, pos: int
) -> None:
    """Next generation, one reference; the content of the last one is nobody's."""
    unit = st.g_tokens[g] if g >= 0 else 0
    table = st.g_table[g] if g >= 0 else -1
    at = MISSING
    if g >= 0:
        if t0 != MISSING:
            at = t0 - t0 % unit
        elif req >= 0:
            at = st.next_token[req * st.h[TABLES] + table]
    for i in range(b0, b1):
        s = base + blk[i]
        if s < 0:
            continue
        unlink_free(st, s)
        st.gen[s] += 1
        st.refs[s] = 1
        st.known[s] = ALLOCATED
        st.unsure[s] = 0
        st.unhashed[s] = 0
        st.loads[s] = 0
        st.last_alloc[s] = st.alloc_pos[s]
        st.alloc_pos[s] = pos
        st.free_pos[s] = -1
        st.touch[s] = pos
        st.table[s] = table
        st.start[s] = at
        if at != MISSING:
            at += unit
        set_owner(st, s, req)
    if g >= 0 and req >= 0 and at != MISSING:
        st.next_token[req * st.h[TABLES] + table] = at


def touch(st: Any, g: int, base: int, blk: Any, b0: int, b1: int, req: int, pos: int) -> None:
    """One more reference; a free block leaves the free list."""
    for i in range(b0, b1):
        s = base + blk[i]
        if s < 0:
            continue
        if st.refs[s] <= 0:
            unlink_free(st, s)
        st.refs[s] += 1
        st.free_pos[s] = -1
        st.touch[s] = pos
        if req >= 0 and g >= 0 and st.start[s] != MISSING:
            place = req * st.h[TABLES] + st.g_table[g]
            end = st.start[s] + st.g_tokens[g]
            if st.next_token[place] < end:
                st.next_token[place] = end


def free(
    st: Any, base: int, blk: Any, b0: int, b1: int, front: Any, f0: int, f1: int, pos: int
) -> None:
    """One reference less; at 0 the block is free and keeps its content.

    Of a block that nothing was said of, the count is unknown: it takes part in no free list.
    """
    for i in range(b0, b1):
        s = base + blk[i]
        if s < 0:
            continue
        st.touch[s] = pos
        if st.known[s] == UNKNOWN:
            continue
        st.refs[s] -= 1
        if st.refs[s] == 0:
            st.free_pos[s] = pos
            append_free(st, s)
    for i in range(f1 - 1, f0 - 1, -1):
        s = base + front[i]
        if s < 0:
            continue
        st.touch[s] = pos
        if st.refs[s] == 0 and st.known[s] != UNKNOWN:
            unlink_free(st, s)
            prepend_free(st, s)


def pin(st: Any, base: int, blk: Any, b0: int, b1: int, by: int, pos: int) -> None:
    """One pin more or less."""
    for i in range(b0, b1):
        s = base + blk[i]
        if s >= 0:
            st.pins[s] += by
            st.touch[s] = pos


def used(st: Any, base: int, blk: Any, b0: int, b1: int, pos: int) -> None:
    """These blocks were named."""
    for i in range(b0, b1):
        s = base + blk[i]
        if s >= 0:
            st.touch[s] = pos


def forget_request(st: Any, req: int) -> None:
    """A request that gives its blocks back starts its tables anew."""
    for t in range(st.h[TABLES]):
        st.next_token[req * st.h[TABLES] + t] = 0
