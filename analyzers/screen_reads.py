"""Whether a `use` is surely right, and a `seal` has its tokens: the reads of the screen.

Runs compiled. 0 says that no rule can have anything to say of it; any other number which check it
did not pass.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import GROUPS, HASHES, HORIZON, LOADED, MEMO, NAMED
from hkvtool.analyzers.screen_content import judged, read_span, serves, window_serves
from hkvtool.analyzers.screen_holders import entry
from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.state.arrays import (
    ALLOCATED,
    COMPONENTS,
    COMPRESSED,
    INDEXER,
    PENDING,
    RECURRENT,
    SWA,
    TABLES,
    TAIL,
)
from hkvtool.state.blocks import dispatched, generation


def right_to(st: Any, sc: Any, who: int, s: int, at: int) -> Any:
    """Whether a holder held a slot when its step was handed out at `at`, in the generation that
    it has now."""
    e = entry(sc, who, s)
    if e < 0 or sc.e_gen[e] != st.gen[s]:
        return False
    return sc.e_held[e] > 0 or sc.e_released[e] > at


def unchanged(st: Any, sc: Any, who: int, s: int, c: int) -> Any:
    """Whether a slot surely is as the holder's last lookup saw it."""
    since = sc.checked[who]
    if since < 0:
        return True
    if sc.told_at[s] > since:
        return False
    if st.alloc_pos[s] > since and st.owner[s] != who:
        return False
    return st.cpos[c] <= since or (st.cid[c] > 0 and st.origin[c] == who)


def moved_usefully(st: Any, sc: Any, s: int, g: int) -> None:
    """Content that is read was not moved in vain."""
    if sc.h[LOADED] == 0:
        return
    e = st.first_entry[s]
    if e >= 0 and st.e_live[e] == 1:
        sc.trips[g * sc.h[HASHES] + st.e_hash[e]] = 0
    else:
        sc.block_trips[s * st.h[COMPONENTS] + st.g_comp[g]] = 0


def rows_in_step(st: Any, sc: Any, s: int, g: int) -> Any:
    """Whether indexer rows are of the version of the data that they route to."""
    m = sc.index_of[g]
    if m == -1:
        return True
    if m < 0:
        return False
    width = st.h[COMPONENTS]
    row, data = s * width + st.g_comp[g], s * width + m
    if st.kver[row] == MISSING or st.cgen[data] != st.gen[s] or st.cid[data] <= 0:
        return True
    return st.vague[data] != 0 or st.kver[row] == st.ver[data]


def blocks_serve(
    st: Any, sc: Any, pos: int, g: int, slots: Any, b0: int, b1: int, t0: int, t1: int, reader: int
) -> Any:
    """Whether slots serve what is read of them, block by block."""
    unit, form = st.g_tokens[g], st.g_form[g]
    width, comp = st.h[COMPONENTS], st.g_comp[g]
    start = 0
    end = t1
    if t0 != MISSING:
        start = (t1 - 1) // unit * unit - (b1 - b0 - 1) * unit
        if form in (COMPRESSED, INDEXER):
            if t0 < min(start, t1):
                return False
            end = t1 - t1 % sc.ratio[g]
    for j in range(b0, b1):
        s = slots[j]
        if t0 == MISSING:
            low, high = read_span(st, s, g, j < b1 - 1)
            if low >= high and judged(st, s):
                return False
        else:
            low = max(t0, start)
            high = min(end, start + unit)
            start += unit
            if low >= high:
                continue
        if not judged(st, s):
            continue
        m = (s * width + comp) * MEMO
        if sc.memo[m] > 0 and sc.memo[m + 2] <= low and high <= sc.memo[m + 3]:
            continue
        if not serves(st, s, g, low, high, reader):
            return False
        if form != RECURRENT:
            sc.memo[m] = pos
            sc.memo[m + 2] = low
            sc.memo[m + 3] = high
    return True


def window_is_read(
    st: Any, sc: Any, pos: int, g: int, slots: Any, b0: int, b1: int, t0: int, t1: int, reader: int
) -> Any:
    """Whether slots that hold a window in order serve it, by what was found right of them before;
    False where that does not say."""
    width, comp = st.h[COMPONENTS], st.g_comp[g]
    at = t0
    for j in range(b0, b1):
        s = slots[j]
        c = s * width + comp
        m = c * MEMO
        if sc.memo[m] == 0:
            lo, hi = st.lo[c], st.hi[c]
            if st.vague[c] != 0 or hi <= lo or st.hi2[c] > st.lo2[c]:
                return False
            if not serves(st, s, g, lo, hi, reader):
                return False
            sc.memo[m] = pos
            sc.memo[m + 2] = lo
            sc.memo[m + 3] = hi
        if sc.memo[m + 2] <= at < sc.memo[m + 3]:
            at = sc.memo[m + 3]
    return at >= t1


def found_right(st: Any, sc: Any, pos: int, s: int, c: int, who: int, at: int) -> Any:
    """Whether a slot was found right for a reader before, and only reads have named it since."""
    if st.touch[s] != sc.read_at[s]:
        sc.still[s] = pos
    sc.read_at[s] = pos
    then = sc.memo[c * MEMO]
    if then == 0 or then < sc.still[s] or sc.memo[c * MEMO + 1] != who or st.alloc_pos[s] > at:
        return False
    owner = st.owner[s]
    if owner >= 0 and sc.rolled[owner] >= then:
        return False
    return who < 0 or sc.checked[who] <= then


def use_is_right(
    st: Any, sc: Any, pos: int, step: int, who: int, g: int, slots: Any, b0: int, b1: int, t0: int,
    t1: int,
) -> int:  # fmt: skip
    """0, or why a use is suspicious."""
    at = pos
    if step != MISSING:
        at = dispatched(st, step)
        if at == MISSING or at < sc.h[HORIZON]:
            return 101
    if who >= 0:
        if sc.named[who] & NAMED == 0:
            return 102
        if step != MISSING and 0 <= sc.ended[who] <= at:
            return 103
    width, comp = st.h[COMPONENTS], st.g_comp[g]
    for j in range(b0, b1):
        s = slots[j]
        c = s * width + comp
        if found_right(st, sc, pos, s, c, who, at):
            continue
        sc.memo[c * MEMO] = 0
        sc.memo[c * MEMO + 1] = who
        if sc.reserved[s] != 0 or st.loads[s] != 0:
            return 104
        if not judged(st, s):
            moved_usefully(st, sc, s, g)
            continue
        if st.table[s] >= 0 and st.table[s] != st.g_table[g]:
            return 105
        if st.dirt[s] >= 0 and sc.alike[st.dirt[s] * sc.h[GROUPS] + g] == 0:
            return 106
        if generation(st, s, step) != st.gen[s]:
            return 107
        if who >= 0:
            if st.known[s] == ALLOCATED and not right_to(st, sc, who, s, at):
                return 108
            e = entry(sc, who, s)
            if e < 0 or sc.e_held[e] == 0:
                sc.memo[c * MEMO + 1] = NO_NAME - 1
            if not unchanged(st, sc, who, s, c):
                return 109
        if st.g_form[g] == INDEXER and not rows_in_step(st, sc, s, g):
            return 110
        moved_usefully(st, sc, s, g)
    form = st.g_form[g]
    if b1 > b0:
        if t0 != MISSING and form in (SWA, TAIL):
            if not window_is_read(st, sc, pos, g, slots, b0, b1, t0, t1, who):
                if not window_serves(st, g, slots, b0, b1, t0, t1, who):
                    return 111
        elif not blocks_serve(st, sc, pos, g, slots, b0, b1, t0, t1, who):
            return 112
    return 0


def tail_is_there(
    st: Any, sc: Any, pos: int, step: int, who: int, g: int, tail: int, t0: int, t1: int, found: Any
) -> int:
    """0, or why a seal may lack tokens that its request's tail should hold."""
    if sc.named[who] & NAMED == 0 or st.g_table[g] == st.g_table[tail]:
        return 121
    sent = pos
    if step != MISSING:
        sent = dispatched(st, step)
        if sent == MISSING or sent < sc.h[HORIZON]:
            return 122
    n = 0
    e = sc.first[who * st.h[TABLES] + st.g_table[tail]]
    while e >= 0:
        if sc.e_out[e] < 0 or sc.e_out[e] > sent:
            s = sc.e_slot[e]
            if n == len(found) or sc.e_gen[e] != st.gen[s]:
                return 123
            if generation(st, s, step) != st.gen[s] or st.table[s] != st.g_table[tail]:
                return 124
            found[n] = s
            n += 1
        e = sc.e_next[e]
    if n == 0:
        return 0
    return 0 if window_serves(st, tail, found, 0, n, t0, t1, who) else 125


def write_is_private(
    st: Any, sc: Any, pos: int, step: int, who: int, g: int, slots: Any, b0: int, b1: int, t0: int
) -> int:
    """0, or why a write may reach what others hold or hit."""
    recurrent = st.g_form[g] == RECURRENT
    alone = t0 == MISSING or (recurrent and who < 0)
    at = pos
    if step != MISSING:
        at = dispatched(st, step)
        if at == MISSING or at < sc.h[HORIZON]:
            return 130
    unit, width = st.g_tokens[g], st.h[COMPONENTS]
    first = t0 - t0 % unit
    for j in range(b0, b1):
        s = slots[j]
        if sc.reserved[s] != 0:
            return 131
        if not judged(st, s):
            continue
        if who >= 0 and st.known[s] == ALLOCATED and st.refs[s] == 1 and st.alloc_pos[s] < at:
            if not right_to(st, sc, who, s, at):
                return 135
        if alone or generation(st, s, step) != st.gen[s]:
            continue
        c = s * width + st.g_comp[g]
        published = st.pgen[c] == st.gen[s] and st.live[s] > 0 and st.pver[c] != PENDING
        if who >= 0 and st.owner[s] == who and sc.named[who] & NAMED != 0:
            if recurrent and published:
                return 132
            continue
        if st.refs[s] > 1:
            return 133
        low = max(t0, first + (j - b0) * unit)
        end = st.pub_hi[c]
        behind = not recurrent and end != MISSING and low >= end and end % unit != 0
        if published and not behind:
            return 134
    return 0
