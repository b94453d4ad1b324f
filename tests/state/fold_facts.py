"""Everything two folds of one trace must agree on, in terms that hang on neither's layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hkvtool.model.rows import NO_NAME
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Pool
from hkvtool.state.fold import Fold

Facts = dict[Any, Any]

_LINKS = {"first_entry", "free_prev", "free_next", "own_prev", "own_next", "slot_pool", "owner"}
"""Slot arrays that hold places of another array; told apart below, by what they lead to."""

_SLOT = [n for n, e in a.EXTENTS.items() if e.per == "slot" and n not in _LINKS]
_COMPONENT = [n for n, e in a.EXTENTS.items() if e.per == "component" and n != "origin"]
_HEADER = (a.NEXT_CID, a.USED, a.LIVE, a.MOVING, a.EPOCH, a.MAPPED)


def facts(fold: Fold, blocks: Iterable[int]) -> Facts:
    """The state of `blocks` in every pool, and of all that is not a block."""
    wanted = sorted(set(blocks))
    found: Facts = {
        "gaps": sorted(fold.gaps),
        "header": [int(fold.st.h[i]) for i in _HEADER],
        "steps": [int(x) for x in fold.st.steps],
        "hashes": _hashes(fold),
        "transfers": _transfers(fold),
        "requests": _requests(fold),
    }
    for pool in fold.declared.pools.values():
        found["free", pool.name] = free_order(fold, pool)
        for block in wanted:
            slot = fold.find(pool, block)
            found[pool.name, block] = None if slot is None else _slot(fold, slot)
    return found


def place(fold: Fold, slot: int) -> tuple[str, int]:
    """Pool and block id of a slot."""
    return fold.pool_of(slot).name, int(fold.block_of[slot])


def free_order(fold: Fold, pool: Pool) -> list[int]:
    """The free list of a pool, next to be reused first; both ways of reading it must agree."""
    st = fold.st
    forward, slot = [], st.free_head[pool.id]
    while slot >= 0:
        forward.append(int(fold.block_of[slot]))
        slot = st.free_next[slot]
    backward, slot = [], st.free_tail[pool.id]
    while slot >= 0:
        backward.append(int(fold.block_of[slot]))
        slot = st.free_prev[slot]
    assert forward == backward[::-1]
    return forward


def owned(fold: Fold, request: int) -> list[tuple[str, int]]:
    """What a request allocated last, the latest first."""
    found, slot = [], fold.st.own_head[request]
    while slot >= 0:
        found.append(place(fold, slot))
        slot = fold.st.own_next[slot]
    return found


def _slot(fold: Fold, slot: int) -> Facts:
    st = fold.st
    found: Facts = {name: int(getattr(st, name)[slot]) for name in _SLOT}
    found["owner"] = _name(fold, "req", st.owner[slot])
    entry, chain = st.first_entry[slot], []
    while entry >= 0:
        if st.e_live[entry] == 1:
            chain.append(_entry(fold, entry))
        entry = st.e_next_slot[entry]
    found["chain"] = chain
    for k in range(st.h[a.USED]):
        c = slot * st.h[a.COMPONENTS] + k
        for name in _COMPONENT:
            found[name, k] = int(getattr(st, name)[c])
        found["origin", k] = _name(fold, "req", st.origin[c])
    return found


def _hashes(fold: Fold) -> Facts:
    """The live entries of each hash, the latest first."""
    st, found = fold.st, {}
    names = [int(st.e_hash[e]) for e in range(st.h[a.ENTRIES]) if st.e_live[e] == 1]
    for number in names:
        entry, chain = st.first_of_hash[number], []
        while entry >= 0:
            if st.e_live[entry] == 1:
                chain.append(_entry(fold, entry))
            entry = st.e_next_hash[entry]
        found[_name(fold, "hash", number)] = chain
    assert sum(map(len, found.values())) == len(names)
    return found


def _entry(fold: Fold, entry: int) -> tuple[Any, ...]:
    st = fold.st
    kept = (st.e_table, st.e_gen, st.e_hi, st.e_epoch, st.e_pos)
    name = _name(fold, "hash", st.e_hash[entry])
    return (name, *place(fold, st.e_slot[entry]), *(int(column[entry]) for column in kept))


def _transfers(fold: Fold) -> Facts:
    st, found = fold.st, {}
    for handle in range(fold.names.count("handle")):
        state = int(st.t_state[handle])
        if state == a.IDLE:
            continue
        records = []
        for i in range(st.t_len[handle] if state == a.RUNNING else 0):
            r = st.t_off[handle] + i * a.RECORD
            near, gen, far, far_gen, *content = (int(x) for x in st.arena[r : r + a.RECORD])
            origin = _name(fold, "req", content.pop(7)) if content[0] else None
            sides = [place(fold, s) if s >= 0 else None for s in (near, far)]
            records.append((*sides, gen, far_gen, origin, content))
        name = str(fold.names.name("handle", handle))
        found[name] = (state, int(st.t_store[handle]), int(st.t_group[handle]), records)
    return found


def _requests(fold: Fold) -> Facts:
    """What each request owns, and where each of its tables goes on."""
    st, found = fold.st, {}
    tables = len(fold.declared.tables)
    for number in range(fold.names.count("req")):
        first = number * st.h[a.TABLES]
        goes_on = [int(x) for x in st.next_token[first : first + tables]]
        chain = owned(fold, number)
        if chain or any(goes_on):
            found[fold.names.name("req", number)] = (chain, goes_on)
    return found


def _name(fold: Fold, domain: str, number: int) -> str | int | None:
    return None if number == NO_NAME else fold.names.name(domain, int(number))
