"""Transitions of what blocks hold: token runs, versions, whose bytes they are.

Written once, run plain and compiled; see `hkvtool.state.blocks`. A token stands in slot
``token mod block_tokens`` of its block, so a ring is a block that is written on another lap.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.state.arrays import (
    COMPONENTS,
    COUNTED,
    EPOCH,
    NEXT_CID,
    PENDING,
    RECURRENT,
    TAIL,
    UNKNOWN,
    USED,
    VAGUE,
    VOIDED,
)
from hkvtool.state.blocks import generation, used


def fresh(st: Any) -> Any:
    """A content id never used before: equal ids mean equal bytes."""
    st.h[NEXT_CID] += 1
    return st.h[NEXT_CID]


def void(st: Any, c: int) -> None:
    """The component holds nothing."""
    st.cid[c] = 0
    st.lo[c] = 0
    st.hi[c] = 0
    st.lo2[c] = 0
    st.hi2[c] = 0
    st.vague[c] = 0
    st.kver[c] = MISSING


def covers(st: Any, c: int, gen: int, a: int, b: int, unit: int) -> bool:
    """Whether the component holds tokens [a, b), written in generation `gen`."""
    if b <= a:
        return True
    if st.cgen[c] != gen or st.cid[c] == 0:
        return False
    if st.vague[c] == VAGUE:
        return True
    if st.vague[c] == COUNTED:
        return bool((b - 1) % unit < st.hi[c])
    if st.lo[c] <= a and b <= st.hi[c]:
        return True
    return bool(st.lo2[c] <= a and b <= st.hi2[c])


def add_run(st: Any, c: int, a: int, b: int, unit: int) -> None:
    """Tokens [a, b) are now held; what stood in their slots is not.

    Two runs are kept, the one just written first. A third one makes the component *vague*: from
    then on nothing is claimed of what it lacks, until every slot is known again.
    """
    simple = st.hi2[c] <= st.lo2[c] and st.vague[c] == 0 and b - a <= unit
    if simple and st.hi[c] <= st.lo[c]:
        st.lo[c] = a
        st.hi[c] = b
    elif simple and st.lo[c] <= a <= st.hi[c] and b - st.lo[c] <= unit:
        st.hi[c] = max(st.hi[c], b)
    else:
        overwrite(st, c, a, b, unit)


def overwrite(st: Any, c: int, a: int, b: int, unit: int) -> None:
    """`add_run` where slots change hands."""
    if st.vague[c] == COUNTED:
        # The first write says where the slots that were only counted stand, if it goes on behind.
        count = min(st.hi[c], unit)
        st.vague[c] = 0 if a % unit >= count else VAGUE
        st.lo[c] = a - a % unit
        st.hi[c] = st.lo[c] + (count if st.vague[c] == 0 else 0)
    if b - a > unit:
        a = b - unit
    lo, hi, lo2, hi2 = a, b, 0, 0
    for i in range(2):
        p, q = (st.lo[c], st.hi[c]) if i == 0 else (st.lo2[c], st.hi2[c])
        # Tokens of a run whose slots are not written: between two places where the write, moved
        # by whole laps, would lie; a run is no longer than a lap, so that it meets two of them.
        lap = (p - a) // unit * unit
        for j in range(2):
            first = max(p, b + lap + j * unit)
            last = min(q, a + lap + (j + 1) * unit)
            if last <= first:
                continue
            if last == lo:
                lo = first
            elif first == hi:
                hi = last
            elif hi2 <= lo2:
                lo2, hi2 = first, last
            else:
                st.vague[c] = VAGUE
    st.lo[c] = lo
    st.hi[c] = hi
    st.lo2[c] = lo2
    st.hi2[c] = hi2
    if hi - lo + hi2 - lo2 >= unit:
        st.vague[c] = 0


def settle_published(st: Any, c: int, s: int, form: int) -> None:
    """An early hash takes the version of the write that fills its block."""
    if st.pver[c] == PENDING and st.pgen[c] == st.gen[s]:
        end = st.pub_hi[c]
        if end == MISSING or st.hi[c] == end or (form != RECURRENT and st.hi[c] > end):
            st.pver[c] = st.ver[c]


def mark_bytes(st: Any, s: int, g: int, whole: bool) -> None:
    """Remember whose bytes lie in the slot, and whose still lie under a partial overwrite."""
    last = st.by[s]
    if whole:
        st.dirt[s] = -1
    elif last >= 0 and st.g_table[last] != st.g_table[g]:
        st.dirt[s] = last
    st.by[s] = g


def write_slot(
    st: Any, s: int, g: int, a: int, b: int, version: int, kver: int, req: int, step: int, pos: int
) -> None:
    """Content of tokens [a, b) of group `g` is written into a slot."""
    c = s * st.h[COMPONENTS] + st.g_comp[g]
    unit = st.g_tokens[g]
    form = st.g_form[g]
    gen = generation(st, s, step)
    if st.cgen[c] > gen:
        # A step of an earlier generation writes over what a later one holds.
        void(st, c)
        st.cpos[c] = pos
        return
    if st.cgen[c] != gen:
        void(st, c)
        st.ver[c] = 0
    elif st.cid[c] > 0 and a < st.hi[c] and req != st.origin[c]:
        st.cpos[c] = pos
    # Of a block that a snapshot names it is not known how full it is, nor who fills it.
    unseen = st.cgen[c] == gen and st.vague[c] == VAGUE and st.origin[c] == NO_NAME
    if form == RECURRENT:
        void(st, c)
        st.lo[c] = a
        st.hi[c] = b
    else:
        add_run(st, c, a, b, unit)
    st.cgen[c] = gen
    st.cid[c] = fresh(st)
    st.ver[c] = st.ver[c] + 1 if version == MISSING else version
    if kver != MISSING:
        st.kver[c] = kver
    if st.pver[c] >= 0 and st.pgen[c] == gen:
        # Appending behind a partial entry, or a sequence writing its own tokens again, is no
        # change of what was published; another's write is.
        behind = st.pub_hi[c] != MISSING and a >= st.pub_hi[c]
        if behind or unseen or req == st.origin[c]:
            st.pver[c] = st.ver[c]
    st.origin[c] = req
    st.epoch[c] = st.h[EPOCH]
    st.wpos[c] = pos
    mark_bytes(st, s, g, form == RECURRENT or st.hi[c] - st.lo[c] >= unit)
    if gen == st.gen[s]:
        if st.table[s] < 0:
            st.table[s] = st.g_table[g]
        if form not in (RECURRENT, TAIL):
            st.start[s] = a - a % unit
        settle_published(st, c, s, form)
    st.touch[s] = pos


def write(
    st: Any, g: int, base: int, blk: Any, b0: int, b1: int, t0: int, t1: int,
    version: int, kver: int, req: int, step: int, pos: int,
) -> None:  # fmt: skip
    """Spread tokens [t0, t1) over blocks in token order; a list too short for them is a ring."""
    unit = st.g_tokens[g]
    n = b1 - b0
    if n == 0 or unit <= 0:
        return
    first = t0 - t0 % unit
    pieces = 1 if t1 == t0 else max(0, (t1 - first + unit - 1) // unit)
    skip = 0
    if pieces > n:
        # Only what the blocks can hold stays: the last lap of a ring, the last states.
        skip = pieces - n
    for i in range(skip, pieces):
        place = i - skip if st.g_form[g] == RECURRENT else i % n
        s = base + blk[b0 + place]
        if s < 0:
            continue
        a = max(first + i * unit, t0)
        b = min(first + (i + 1) * unit, t1)
        write_slot(st, s, g, a, b, version, kver, req, step, pos)
    if pieces < n:
        used(st, base, blk, b0 + pieces, b1, pos)


def cut(st: Any, c: int, to: int, pos: int) -> None:
    """Tokens from `to` on are void in this component, and a hash that covers them is too."""
    if st.vague[c] == COUNTED:
        return
    if st.hi[c] > to and st.pver[c] >= 0 and st.pub_hi[c] != MISSING and st.pub_hi[c] > to:
        st.pver[c] = VOIDED
    if st.hi[c] > to:
        st.cpos[c] = pos
        st.hi[c] = max(st.lo[c], to)
        st.cid[c] = fresh(st)
    if st.hi2[c] > to:
        st.hi2[c] = max(st.lo2[c], to)
    if st.hi[c] <= st.lo[c]:
        st.lo[c] = st.lo2[c]
        st.hi[c] = st.hi2[c]
        st.lo2[c] = 0
        st.hi2[c] = 0
    if st.hi[c] <= st.lo[c] and st.vague[c] == 0:
        void(st, c)


def rollback(st: Any, req: int, to: int, pos: int) -> None:
    """Rejected tokens are void in every block the request allocated."""
    width = st.h[COMPONENTS]
    s = st.own_head[req]
    while s >= 0:
        for k in range(st.h[USED]):
            c = s * width + k
            if st.cgen[c] == st.gen[s] and st.cid[c] > 0:
                if st.recur[st.slot_pool[s] * width + k] == 0:
                    cut(st, c, to, pos)
                elif st.vague[c] == 0 and st.hi[c] > to:
                    void(st, c)
                    st.cpos[c] = pos
        s = st.own_next[s]


def copy_content(st: Any, src: int, dst: int, gen: int, pos: int) -> None:
    """The destination component holds what the source does, in generation `gen` of its own."""
    st.cid[dst] = st.cid[src]
    st.ver[dst] = st.ver[src]
    st.kver[dst] = st.kver[src]
    st.lo[dst] = st.lo[src]
    st.hi[dst] = st.hi[src]
    st.lo2[dst] = st.lo2[src]
    st.hi2[dst] = st.hi2[src]
    st.vague[dst] = st.vague[src]
    st.origin[dst] = st.origin[src]
    st.epoch[dst] = st.epoch[src]
    st.cgen[dst] = gen
    st.wpos[dst] = pos


def copy(
    st: Any, g: int, g2: int, base: int, base2: int, blk: Any, b0: int, b1: int,
    blk2: Any, c0: int, c1: int, step: int, pos: int,
) -> None:  # fmt: skip
    """Blocks copied whole, pair by pair. Without a group every component comes along."""
    width = st.h[COMPONENTS]
    to = g2 if g2 >= 0 else g
    for i in range(min(b1 - b0, c1 - c0)):
        s, d = base + blk[b0 + i], base2 + blk2[c0 + i]
        if s < 0 or d < 0:
            continue
        gen = generation(st, d, step)
        told = st.known[s] != UNKNOWN and st.unsure[s] == 0
        for k in range(st.h[USED]):
            if g >= 0 and k != st.g_comp[g]:
                continue
            src = s * width + k
            dst = d * width + (st.g_comp[to] if to >= 0 else k)
            if st.cgen[src] == generation(st, s, step) and st.cid[src] > 0:
                copy_content(st, src, dst, gen, pos)
                partial = g < 0 or st.hi[src] - st.lo[src] < st.g_tokens[g]
                if not told and partial:
                    if st.recur[st.slot_pool[s] * width + k] == 0:
                        st.vague[dst] = VAGUE
            elif not told:
                # What the source holds is not known, so nothing is claimed of the copy.
                void(st, dst)
                st.cid[dst] = fresh(st)
                st.cgen[dst] = gen
                st.vague[dst] = VAGUE
                st.epoch[dst] = st.h[EPOCH]
            else:
                void(st, dst)
        if to >= 0:
            mark_bytes(st, d, to, True)
            if st.start[s] != MISSING and st.g_form[to] != RECURRENT:
                st.start[d] = st.start[s]
        st.touch[s] = pos
        st.touch[d] = pos


def zero(st: Any, g: int, base: int, blk: Any, b0: int, b1: int, pos: int) -> None:
    """Bytes cleared, of one component where a group is named."""
    width = st.h[COMPONENTS]
    for i in range(b0, b1):
        s = base + blk[i]
        if s < 0:
            continue
        for k in range(st.h[USED]):
            if g < 0 or k == st.g_comp[g]:
                c = s * width + k
                if st.cgen[c] == st.gen[s] and st.cid[c] > 0:
                    st.cpos[c] = pos
                void(st, c)
                st.wpos[c] = pos
        st.by[s] = -1
        st.dirt[s] = -1
        st.touch[s] = pos
