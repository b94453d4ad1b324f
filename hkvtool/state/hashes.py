"""Transitions of published hashes: which of them lead to which block, of which generation.

Written once, run plain and compiled; see `hkvtool.state.blocks`. An entry outlives the
generation it was published in until the engine withdraws it: that is how a stale one is seen.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import (
    COMPONENTS,
    COUNTED,
    ENTRIES,
    EPOCH,
    LIVE,
    PENDING,
    RECURRENT,
    USED,
    VAGUE,
)


def publish_one(st: Any, s: int, table: int, name: int, end: int, pos: int) -> None:
    """One hash now leads to one slot, whose content counts up to token `end`."""
    e = st.h[ENTRIES]
    st.h[ENTRIES] = e + 1
    st.e_hash[e] = name
    st.e_slot[e] = s
    st.e_table[e] = table
    st.e_gen[e] = st.gen[s]
    st.e_hi[e] = end
    st.e_live[e] = 1
    st.e_epoch[e] = st.h[EPOCH]
    st.e_pos[e] = pos
    st.e_next_hash[e] = st.first_of_hash[name]
    st.first_of_hash[name] = e
    st.e_next_slot[e] = st.first_entry[s]
    st.first_entry[s] = e
    st.live[s] += 1
    st.h[LIVE] += 1


def publish(
    st: Any, g: int, base: int, blk: Any, b0: int, b1: int, hsh: Any, h0: int, h1: int,
    t0: int, t1: int, version: int, pos: int,
) -> None:  # fmt: skip
    """Hashes now lead to these blocks, for every group of the table."""
    unit = st.g_tokens[g]
    table = st.g_table[g]
    width = st.h[COMPONENTS]
    first = MISSING
    if t0 != MISSING:
        first = t0 - t0 % unit
        if st.g_form[g] == RECURRENT:
            first = (t1 - 1) - (t1 - 1) % unit - (b1 - b0 - 1) * unit
    for i in range(b1 - b0):
        s = base + blk[b0 + i]
        if s < 0 or h0 + i >= h1:
            continue
        st.touch[s] = pos
        end = MISSING
        if first != MISSING:
            end = min(first + (i + 1) * unit, t1)
        else:
            c = s * width + st.g_comp[g]
            if st.cgen[c] == st.gen[s] and st.hi[c] > st.lo[c] and st.vague[c] == 0:
                end = st.lo[c] - st.lo[c] % unit + unit
            elif st.start[s] != MISSING:
                end = st.start[s] + unit
        if st.table[s] < 0:
            st.table[s] = table
        publish_one(st, s, table, hsh[h0 + i], end, pos)
        for k in range(st.h[USED]):
            c = s * width + k
            st.pgen[c] = st.gen[s]
            st.pub_hi[c] = end
            st.pver[c] = PENDING
            if version != MISSING and (k == st.g_comp[g] or st.cid[c] == 0):
                st.pver[c] = version
            elif st.cgen[c] == st.gen[s] and st.cid[c] > 0:
                whole = end == MISSING or st.vague[c] == VAGUE or st.hi[c] >= end
                if st.vague[c] == COUNTED and end != MISSING:
                    whole = (end - 1) % unit < st.hi[c]
                if whole:
                    st.pver[c] = st.ver[c]


def bury(st: Any, e: int) -> None:
    """An entry can no longer be hit."""
    if st.e_live[e] == 1:
        st.e_live[e] = 0
        st.live[st.e_slot[e]] -= 1
        st.h[LIVE] -= 1


def prune_slot(st: Any, s: int) -> None:
    """Drop dead entries from the head of a slot's chain, so that chains stay short."""
    e = st.first_entry[s]
    while e >= 0 and st.e_live[e] == 0:
        e = st.e_next_slot[e]
    st.first_entry[s] = e


def unpublish_blocks(st: Any, table: int, base: int, blk: Any, b0: int, b1: int, pos: int) -> None:
    """Every hash of these blocks is gone, of that table where one is named."""
    for i in range(b0, b1):
        s = base + blk[i]
        if s < 0:
            continue
        st.touch[s] = pos
        e = st.first_entry[s]
        while e >= 0:
            if table < 0 or st.e_table[e] == table:
                bury(st, e)
            e = st.e_next_slot[e]
        prune_slot(st, s)


def unpublish_hashes(st: Any, table: int, hsh: Any, h0: int, h1: int, pos: int) -> None:
    """These hashes are gone, of that table where one is named."""
    for i in range(h0, h1):
        name = hsh[i]
        e = st.first_of_hash[name]
        while e >= 0:
            if st.e_live[e] == 1 and (table < 0 or st.e_table[e] == table):
                bury(st, e)
                st.touch[st.e_slot[e]] = pos
                prune_slot(st, st.e_slot[e])
            e = st.e_next_hash[e]
        e = st.first_of_hash[name]
        while e >= 0 and st.e_live[e] == 0:
            e = st.e_next_hash[e]
        st.first_of_hash[name] = e


def unpublish_pairs(
    st: Any, table: int, base: int, blk: Any, b0: int, b1: int, hsh: Any, h0: int, pos: int
) -> None:
    """One hash of each block is gone."""
    for i in range(b1 - b0):
        s = base + blk[b0 + i]
        if s < 0:
            continue
        e = st.first_entry[s]
        while e >= 0:
            if st.e_hash[e] == hsh[h0 + i] and (table < 0 or st.e_table[e] == table):
                bury(st, e)
            e = st.e_next_slot[e]
        st.touch[s] = pos
        prune_slot(st, s)


def reset(st: Any, pool: int) -> None:
    """Every hash is gone, of that pool where one is named."""
    for e in range(st.h[ENTRIES]):
        if st.e_live[e] == 1 and (pool < 0 or st.slot_pool[st.e_slot[e]] == pool):
            bury(st, e)
            prune_slot(st, st.e_slot[e])


def forget_dead(st: Any) -> None:
    """Free the dead entries. The live ones keep their order: a chain leads from a later entry
    to earlier ones."""
    for e in range(st.h[ENTRIES]):
        st.first_of_hash[st.e_hash[e]] = -1
        st.first_entry[st.e_slot[e]] = -1
    n = 0
    for e in range(st.h[ENTRIES]):
        if st.e_live[e] != 1:
            continue
        st.e_hash[n] = st.e_hash[e]
        st.e_slot[n] = st.e_slot[e]
        st.e_table[n] = st.e_table[e]
        st.e_gen[n] = st.e_gen[e]
        st.e_hi[n] = st.e_hi[e]
        st.e_live[n] = 1
        st.e_epoch[n] = st.e_epoch[e]
        st.e_pos[n] = st.e_pos[e]
        st.e_next_hash[n] = st.first_of_hash[st.e_hash[n]]
        st.first_of_hash[st.e_hash[n]] = n
        st.e_next_slot[n] = st.first_entry[st.e_slot[n]]
        st.first_entry[st.e_slot[n]] = n
        n += 1
    st.h[ENTRIES] = n
