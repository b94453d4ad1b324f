"""The loop over columns: names to numbers, ids to slots, and `step` for every row.

Compiled in `hkvtool.state.compiled`; it refuses what `hkvtool.state.fold.Fold` refuses.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.state.arrays import IDLE
from hkvtool.state.codes import (
    ALLOC,
    COPY,
    FOLDED,
    FREE,
    LOAD_BEGIN,
    LOAD_END,
    PIN,
    PUBLISH,
    STORE_BEGIN,
    STORE_END,
    TOUCH,
    UNPIN,
    UNPUBLISH,
    USE,
    ZERO,
)
from hkvtool.state.step import step


def to_slots(
    st: Any, pool: int, reach: Any, mapped: Any, blk: Any, b0: int, b1: int, lenient: bool
) -> bool:
    """Turn block ids into slots in place; False where one is no block of the pool.

    Ids below zero are null rows: fine in a read, nowhere else.
    """
    if pool < 0:
        return b1 <= b0
    base = st.base[pool]
    none = -(1 << 40)
    good = True
    for i in range(b0, b1):
        block = blk[i]
        if block < 0:
            blk[i] = none
            good = good and lenient
        elif block >= reach[pool] or (block >= st.size[pool] and mapped[base + block] == 0):
            blk[i] = none
            good = False
        else:
            blk[i] = base + block
    return good


def run(
    st: Any, groups: Any, pools: Any, reach: Any, mapped: Any, pos: Any, ev: Any, number: Any,
    req: Any, group: Any, group2: Any, pool: Any, pool2: Any, handle: Any, t0: Any, t1: Any,
    version: Any, kver: Any, aux: Any, flags: Any, bo: Any, blk: Any, co: Any, blk2: Any, ho: Any,
    hsh: Any, first: int, end: int,
) -> int:  # fmt: skip
    """Fold rows `first` to `end`; returns how many were refused as impossible.

    `groups` and `pools` turn the numbers that names have in the trace into those of the fold, or
    -1. Numbers that no name has, which an altered file may hold, are refused as well: nothing
    here checks an index again.
    """
    refused = 0
    for i in range(first, end):
        kind = ev[i]
        if kind not in FOLDED:
            continue
        g, g2, far, who = -1, -1, -1, req[i]
        if group[i] >= 0:
            g = groups[group[i]] if group[i] < len(groups) else -1
            if g < 0:
                refused += 1
                continue
        near = st.g_pool[g] if g >= 0 else -1
        stated = -1
        if pool[i] >= 0:
            stated = pools[pool[i]] if pool[i] < len(pools) else -1
            near = stated
            if near < 0:
                refused += 1
                continue
        b0, b1, c0, c1 = bo[i], bo[i + 1], co[i], co[i + 1]
        if kind == COPY:
            far = near
            if group2[i] < 0:
                g2 = g
            if aux[i] != MISSING:
                g = groups[aux[i]] if 0 <= aux[i] < len(groups) else -1
                if g < 0:
                    refused += 1
                    continue
                near = st.g_pool[g]
            if group2[i] >= 0:
                g2 = groups[group2[i]] if group2[i] < len(groups) else -1
                if g2 < 0:
                    refused += 1
                    continue
                far = st.g_pool[g2]
            if near < 0 or far < 0:
                refused += 1
                continue
        elif kind == FREE:
            far = near
            if who < 0:
                who = group2[i]
        elif kind == TOUCH or kind == PIN or kind == UNPIN:  # noqa: SIM109
            if who < 0:
                who = group2[i]
        elif kind in (STORE_BEGIN, LOAD_BEGIN):
            if pool2[i] >= 0:
                far = pools[pool2[i]] if pool2[i] < len(pools) else -1
                if far < 0:
                    refused += 1
                    continue
            else:
                c1 = c0
            if g < 0 or not 0 <= handle[i] < len(st.t_state):
                refused += 1
                continue
        elif kind in (STORE_END, LOAD_END):
            known = 0 <= handle[i] < len(st.t_state)
            if not known or st.t_state[handle[i]] == IDLE:
                refused += 1
                continue
            near = st.g_pool[st.t_group[handle[i]]]
            b0, b1 = c0, c1
        if near < 0 and b1 > b0:
            if kind == UNPUBLISH:
                # Blocks without a group mean the device's pool, where there is just one.
                for p in range(len(st.base)):
                    if st.size[p] > 0 and st.tier[p] == 0:
                        near = p if near == -1 else -2
            if near < 0:
                refused += 1
                continue
        elif near < 0 and (kind in (ALLOC, TOUCH, FREE, PIN, UNPIN, ZERO)):  # fmt: skip
            refused += 1
            continue
        values = blk
        if kind in (STORE_END, LOAD_END):
            values = blk2
        good = to_slots(st, near, reach, mapped, values, b0, b1, kind == USE)
        if kind != STORE_END and kind != LOAD_END:
            good = to_slots(st, far, reach, mapped, blk2, c0, c1, False) and good
        if kind in (PUBLISH, UNPUBLISH):
            for j in range(ho[i], ho[i + 1]):
                good = good and 0 <= hsh[j] < len(st.first_of_hash)
        if not good or not NO_NAME <= who < len(st.own_head):
            refused += 1
            continue
        step(
            st, kind, pos[i], number[i], who, g, g2, stated, far, handle[i], t0[i], t1[i],
            version[i], kver[i], aux[i], flags[i], 0, 0, values, b0, b1, blk2, c0, c1, hsh,
            ho[i], ho[i + 1],
        )  # fmt: skip
    return refused
