"""What the screen does about an event that is not surely right: the rules are asked of it, later,
and the screen goes on.

Runs compiled. What it keeps of a block's content is the fold's, which holds whatever the rules say
of an event. What it keeps of accesses is its own, and coarser: a block of which one access was not
surely ordered is *doubted*, and the rules are asked of every later event that names it.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import (
    ASKED,
    CAP,
    CONCERNED,
    DOUBTED,
    DOUBTS,
    FLOOR,
    FREED,
    LANES,
    LOADED,
    MEMO,
    RECOVERING,
    SNAPS,
    SNAPSHOTS,
    WRITTEN,
)
from hkvtool.analyzers.screen_moves import travels_on
from hkvtool.analyzers.screen_races import access
from hkvtool.analyzers.screen_reads import moved_usefully
from hkvtool.state.arrays import COMPONENTS
from hkvtool.state.codes import (
    ALLOC,
    COPY,
    FREE,
    INDEX,
    LOAD_BEGIN,
    SEAL,
    STORE_BEGIN,
    USE,
    WRITE,
    ZERO,
)

WHOLE = (4, 5, 13, 231, 233, 242, 251, 252, 306)
"""What only the rules over the whole trace can look into: blocks that no pool has, caps and
thrash, transfers that fail, run twice or join sides that differ, copies from group to group, steps
of long ago where events were lost."""


RACED = (304, 305, 308)
"""Accesses that may have raced: some of their blocks may be taken into account already."""

REFUSED = 6
"""What the fold refuses."""

COUNTED = (232, 310)
"""What is not right with a load whose blocks are counted already."""


def ask(sc: Any, pos: int) -> None:
    """The rules are to be asked of the event at `pos`."""
    n = sc.h[ASKED]
    if n == 0 or sc.asked[n - 1] != pos:
        sc.asked[n] = pos
        sc.h[ASKED] = n + 1


def floor_of(sc: Any, lane: int) -> Any:
    """A position before which whatever was done to blocks has surely ended for a lane."""
    n = sc.h[LANES]
    taken = sc.h[SNAPS]
    for back in range(1, min(taken, SNAPSHOTS) + 1):
        k = (taken - back) % SNAPSHOTS
        known = True
        for other in range(n):
            if other != lane and sc.snap_index[k * n + other] > sc.clk[lane * n + other]:
                known = False
        if known:
            # One further back: what led there is looked at as well.
            before = (k - 1) % SNAPSHOTS
            return sc.snap_pos[before] if back < min(taken, SNAPSHOTS) else 0
    return 0


def concern(st: Any, sc: Any, slots: Any, b0: int, b1: int, written: bool) -> None:
    """The rules will need what happened to slots, from when they were last handed out."""
    for j in range(b0, b1):
        s = slots[j]
        since = max(st.alloc_pos[s], -1) + 2
        if sc.since[s] == 0 or since < sc.since[s]:
            sc.since[s] = since
        if written:
            sc.doubt[s] |= WRITTEN


def accessed(
    st: Any, sc: Any, slots: Any, b0: int, b1: int, k: int, table: int, write: bool, lane: int,
    why: int,
) -> None:  # fmt: skip
    """Take accesses of slots into account; what may have raced is doubted from here on. How far
    writes that may have raced were taken into account nobody knows: all of theirs are."""
    raced = write and why in RACED
    for j in range(b0, b1):
        s = slots[j]
        if sc.reserved[s] == 0:
            if raced or not access(st, sc, s, k, table, write, lane, lane, sc.idx[lane]):
                sc.doubt[s] |= DOUBTED
                sc.h[DOUBTS] = 1


def doubted(
    st: Any, sc: Any, kind: int, why: int, pos: int, lane: int, who: int, g: int, far: int,
    slots: Any, n: int, m: int,
) -> int:  # fmt: skip
    """Take in an event that is not surely right, as far as the screen keeps account of it; the
    number of what only the rules over the whole trace can look into, else 0."""
    if why in WHOLE:
        return why
    moves = kind in (STORE_BEGIN, LOAD_BEGIN)
    if kind == LOAD_BEGIN:
        if why not in COUNTED:
            sc.h[RECOVERING] += n
        if sc.h[RECOVERING] > sc.h[CAP]:
            return 231
    ask(sc, pos)
    if who >= 0:
        sc.named[who] |= CONCERNED
    writes = kind in (WRITE, SEAL, INDEX, ZERO)
    concern(st, sc, slots, 0, n, writes or kind in (ALLOC, LOAD_BEGIN))
    concern(st, sc, slots, n, m, kind in (COPY, STORE_BEGIN))
    floor = floor_of(sc, lane)
    if sc.h[FLOOR] < 0 or floor < sc.h[FLOOR]:
        sc.h[FLOOR] = floor
    width = st.h[COMPONENTS]
    comp = st.g_comp[g] if g >= 0 else -1
    table = st.g_table[g] if g >= 0 else -1
    if why == REFUSED:
        # All that it touches was found right, and is taken into account.
        return 0
    if kind == FREE:
        for j in range(n):
            if st.refs[slots[j]] == 1:
                sc.h[FREED] = pos
    elif kind == USE and g >= 0:
        for j in range(n):
            sc.memo[(slots[j] * width + comp) * MEMO] = 0
            moved_usefully(st, sc, slots[j], g)
        accessed(st, sc, slots, 0, n, comp, table, False, lane, why)
    elif writes:
        for j in range(n):
            sc.read_at[slots[j]] = -2
        accessed(st, sc, slots, 0, n, comp, table, True, lane, why)
    elif kind == COPY:
        accessed(st, sc, slots, 0, n, comp, table, False, lane, why)
        accessed(st, sc, slots, n, m, comp, table, True, lane, why)
    elif moves:
        return moved(st, sc, kind == STORE_BEGIN, g, slots, n, m)
    return 0


def moved(st: Any, sc: Any, store: bool, g: int, slots: Any, n: int, m: int) -> int:
    """The same of a transfer's begin, whose blocks are all doubted."""
    width = st.h[COMPONENTS]
    thrash = False
    for j in range(n):
        s = slots[j]
        peer = slots[n + j] if n + j < m else -1
        if store:
            sc.stored[s * width + st.g_comp[g]] = st.gen[s] + 1
        if not travels_on(st, sc, store, g, s, peer):
            thrash = True
    if not store:
        sc.h[LOADED] = 1
    for j in range(m):
        sc.doubt[slots[j]] |= DOUBTED
    sc.h[DOUBTS] = 1
    return 233 if thrash else 0


def doubtful(sc: Any, who: int, slots: Any, m: int) -> int:
    """0, or why the rules are to be asked of an event whatever the screen finds: something was
    not right with its request or with one of its blocks."""
    if who >= 0 and sc.named[who] & DOUBTED != 0:
        return 702
    for j in range(m):
        if sc.doubt[slots[j]] & DOUBTED != 0:
            return 701
    return 0
