"""Who holds which blocks, in which of its tables: `hkvtool.state.requests` for the screen.

Runs compiled. An entry is one holder and one slot; it counts for the generation it was made in.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import ENTRIES
from hkvtool.state.arrays import TABLES


def place_of(sc: Any, who: int, s: int) -> Any:
    """Where an entry is, or should be, in the hash table."""
    mask = len(sc.bucket) - 1
    at = (who * 0x9E3779B1 + s * 0x85EBCA6B) & mask
    while True:
        e = sc.bucket[at]
        if e < 0 or (sc.e_req[e] == who and sc.e_slot[e] == s):
            return at
        at = (at + 1) & mask


def entry(sc: Any, who: int, s: int) -> Any:
    """The entry of a holder and a slot, or -1."""
    return sc.bucket[place_of(sc, who, s)]


def chain(st: Any, sc: Any, e: int, table: int) -> None:
    """Put a slot at the end of its holder's table."""
    t = sc.e_req[e] * st.h[TABLES] + table
    tail = sc.last[t]
    sc.e_table[e] = table
    sc.e_out[e] = -1
    sc.e_prev[e] = tail
    sc.e_next[e] = -1
    if tail >= 0:
        sc.e_next[tail] = e
    else:
        sc.first[t] = e
    sc.last[t] = e


def unchain(st: Any, sc: Any, e: int) -> None:
    """Take a slot out of its holder's list."""
    t = sc.e_req[e] * st.h[TABLES] + sc.e_table[e]
    before, after = sc.e_prev[e], sc.e_next[e]
    if before >= 0:
        sc.e_next[before] = after
    else:
        sc.first[t] = after
    if after >= 0:
        sc.e_prev[after] = before
    else:
        sc.last[t] = before
    sc.e_table[e] = -1


def take(st: Any, sc: Any, who: int, s: int, table: int) -> Any:
    """One more reference of a holder, which lists the slot in a table; False where it already
    lists it in another."""
    at = place_of(sc, who, s)
    e = sc.bucket[at]
    if e < 0:
        e = sc.h[ENTRIES]
        sc.h[ENTRIES] = e + 1
        sc.bucket[at] = e
        sc.e_req[e] = who
        sc.e_slot[e] = s
        sc.e_gen[e] = -1
        sc.e_table[e] = -1
        sc.e_out[e] = -1
    if sc.e_gen[e] != st.gen[s]:
        sc.e_gen[e] = st.gen[s]
        sc.e_held[e] = 0
    sc.e_held[e] += 1
    sc.e_released[e] = -1
    if table >= 0:
        if sc.e_table[e] < 0:
            chain(st, sc, e, table)
        elif sc.e_out[e] >= 0:
            unchain(st, sc, e)
            chain(st, sc, e, table)
        elif sc.e_table[e] != table:
            return False
    return True


def leave(sc: Any, e: int, pos: int) -> None:
    """The slot drops out of the table; steps that were handed out before still name it."""
    if sc.e_table[e] >= 0 and sc.e_out[e] < 0:
        sc.e_out[e] = pos


def release(st: Any, sc: Any, who: int, s: int, pos: int) -> None:
    """One reference less."""
    e = entry(sc, who, s)
    if e < 0 or sc.e_gen[e] != st.gen[s]:
        return
    sc.e_held[e] -= 1
    if sc.e_held[e] <= 0:
        sc.e_held[e] = 0
        sc.e_released[e] = pos
        leave(sc, e, pos)


def forget_released(st: Any, sc: Any, before: int) -> None:
    """Free the entries of what was given back before some position, or handed out since: no step
    in flight names it."""
    for at in range(len(sc.bucket)):
        sc.bucket[at] = -1
    n = 0
    for e in range(sc.h[ENTRIES]):
        s, who, table, out = sc.e_slot[e], sc.e_req[e], sc.e_table[e], sc.e_out[e]
        gone = sc.e_held[e] == 0 and sc.e_released[e] < before
        if table >= 0:
            unchain(st, sc, e)
        listed = table >= 0 and out < 0
        if (sc.e_gen[e] != st.gen[s] or gone) and not listed:
            continue
        held, released, gen = sc.e_held[e], sc.e_released[e], sc.e_gen[e]
        sc.e_req[n] = who
        sc.e_slot[n] = s
        sc.e_gen[n] = gen
        sc.e_held[n] = held
        sc.e_released[n] = released
        sc.e_table[n] = -1
        sc.e_out[n] = -1
        sc.bucket[place_of(sc, who, s)] = n
        if table >= 0:
            chain(st, sc, n, table)
            sc.e_out[n] = out
        n += 1
    sc.h[ENTRIES] = n
