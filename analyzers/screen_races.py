"""Whether an access is surely ordered after all that it could race with.

Runs compiled. Coarser than the rules: a block is read and written whole, whoever does it, and an
access that some other lane's chain might reach late is suspicious.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import BUFFER_READS, MIXED, NOBODY, READS, STREAM
from hkvtool.analyzers.screen_order import over
from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import COMPONENTS, USED


def ordered(sc: Any, c: int, lane: int, write: bool) -> Any:
    """Whether what was done to a component has ended before an access of `lane`."""
    if sc.w_index[c] > 0 and not over(sc, sc.w_lane[c], sc.w_index[c], lane):
        return False
    if write:
        for j in range(c * READS, (c + 1) * READS):
            if sc.r_index[j] == 0:
                break
            if not over(sc, sc.r_lane[j], sc.r_index[j], lane):
                return False
    return True


def forget(sc: Any, c: int) -> None:
    """Nothing done to a component matters any more."""
    sc.w_index[c] = 0
    sc.r_index[c * READS] = 0


def note(sc: Any, c: int, lane: int, write: bool, by: int, index: int) -> Any:
    """Remember an access; False where there is no room.

    Whoever comes after a read has come after the reads that were over before it, and whoever
    comes after a write after all that was.
    """
    if write:
        sc.w_lane[c] = by
        sc.w_index[c] = index
        sc.r_index[c * READS] = 0
        return True
    kept = 0
    first = c * READS
    for j in range(READS):
        if sc.r_index[first + j] == 0:
            break
        if over(sc, sc.r_lane[first + j], sc.r_index[first + j], lane):
            continue
        sc.r_lane[first + kept] = sc.r_lane[first + j]
        sc.r_index[first + kept] = sc.r_index[first + j]
        kept += 1
    if kept == READS:
        return False
    sc.r_lane[first + kept] = by
    sc.r_index[first + kept] = index
    if kept + 1 < READS:
        sc.r_index[first + kept + 1] = 0
    return True


def access(
    st: Any, sc: Any, s: int, k: int, table: int, write: bool, lane: int, by: int, index: int
) -> Any:
    """One access of one component `k` of a slot (all, where negative) by a group of `table`.

    Components of one table lie side by side; those of others lie in the same bytes. `by` and
    `index` stand for when the access is over. False where it may race.
    """
    width = st.h[COMPONENTS]
    if k >= 0 and not write and by == lane and sc.history[s] == table:
        r = (s * width + k) * READS
        if sc.r_index[r] > 0 and sc.r_lane[r] == lane and sc.r_index[r + 1] == 0:
            # The lane has read it since it was written, and nobody else has.
            sc.r_index[r] = index
            return True
    if k >= 0 and (sc.history[s] == table or sc.history[s] == NOBODY):
        sc.history[s] = table
        c = s * width + k
        return ordered(sc, c, lane, write) and note(sc, c, lane, write, by, index)
    places = st.slot_pool[s] * width
    fine = True
    for m in range(st.h[USED]):
        if k < 0 or m == k or sc.c_table[places + m] != table:
            c = s * width + m
            fine = fine and ordered(sc, c, lane, write)
            if k < 0 or m == k:
                fine = fine and note(sc, c, lane, write, by, index)
            elif write:
                forget(sc, c)
    if write:
        sc.history[s] = NOBODY if k < 0 else table
    elif k >= 0:
        sc.history[s] = MIXED
    return fine


def buffered(sc: Any, b: int, write: bool, lane: int, index: int, valid: int, extent: int) -> int:
    """0, or why an access of buffer `b` may be wrong; where it is right, it is remembered."""
    told = sc.h[STREAM] != 0
    if told and sc.b_index[b] > 0 and not over(sc, sc.b_lane[b], sc.b_index[b], lane):
        return 601
    if not write and extent != MISSING and sc.b_index[b] > 0:
        if sc.b_valid[b] != MISSING and extent > sc.b_valid[b]:
            return 602
    first, kept = b * BUFFER_READS, 0
    for j in range(first, first + BUFFER_READS):
        if sc.b_read_index[j] == 0:
            break
        if not over(sc, sc.b_read_lane[j], sc.b_read_index[j], lane):
            if write and told:
                return 603
            sc.b_read_lane[first + kept] = sc.b_read_lane[j]
            sc.b_read_index[first + kept] = sc.b_read_index[j]
            kept += 1
    if write:
        sc.b_lane[b] = lane
        sc.b_index[b] = index
        sc.b_valid[b] = valid
        sc.b_read_index[first] = 0
        return 0
    if kept == BUFFER_READS:
        if told:
            return 604
        kept -= 1
    sc.b_read_lane[first + kept] = lane
    sc.b_read_index[first + kept] = index
    if kept + 1 < BUFFER_READS:
        sc.b_read_index[first + kept + 1] = 0
    return 0
