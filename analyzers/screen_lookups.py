"""Whether lookups and resumes are surely right, group by group, and what they matched.

Runs compiled. 0 says that no rule has anything to say of one, and that it was taken in; any other
number that the rules are to be asked about it. A *record* is a lookup whose outcome is open.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import (
    ENGINES,
    FREE_RECORD,
    GONE,
    MATCHED,
    MOVED,
    NAMED,
    OPEN,
    OTHER,
    OVER,
    REQUEST,
    RESUMABLE,
    REUSE,
    RING,
    RINGED,
    SETTLED,
    TOKENS_ASKED,
    TOLD,
    UNTOLD,
    WAITED,
)
from hkvtool.analyzers.screen_content import hashed, judged, leads_here, serves, window_serves
from hkvtool.analyzers.screen_holders import entry
from hkvtool.analyzers.screen_reads import rows_in_step
from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import COMPRESSED, INDEXER, RECURRENT, SWA, TAIL


def slot_of(st: Any, reach: Any, pool: int, block: int) -> Any:
    """The slot of a block id; -1 where there is none."""
    if block < 0 or block >= reach[pool] or block >= st.size[pool]:
        return -1
    return st.base[pool] + block


def close(sc: Any, who: int) -> None:
    """What became of a request's last lookup is settled: `hkvtool.analyzers.ratios`."""
    r = sc.lookup[who]
    if r < 0:
        return
    best = sc.k_best[r]
    good = sc.k_at[r]
    if good == MISSING:
        good = sc.k_least[r]
    if good > best:
        good = best
    if good < best and sc.k_limit[r] >= 0:
        sc.lost[sc.k_limit[r]] += best - good
    sc.h[TOKENS_ASKED] += sc.k_asked[r]
    sc.h[MATCHED] += best
    sc.h[RESUMABLE] += good
    out = 4 * sc.h[SETTLED]
    sc.h[SETTLED] += 1
    sc.outcome[out] = sc.k_pos[r]
    sc.outcome[out + 1] = sc.k_asked[r]
    sc.outcome[out + 2] = best
    sc.outcome[out + 3] = good
    drop(sc, who)


def drop(sc: Any, who: int) -> None:
    """A request's record is free again."""
    r = sc.lookup[who]
    sc.lookup[who] = -1
    sc.k_next[r] = sc.h[FREE_RECORD]
    sc.h[FREE_RECORD] = r
    sc.h[OPEN] -= 1


def hits_serve(
    st: Any, q: Any, reach: Any, g: int, first: int, n: int, tokens: int, reader: int
) -> Any:
    """Whether every block of a hit serves its share, and hashes lead to it as it stands."""
    unit, pool = st.g_tokens[g], st.g_pool[g]
    start = (tokens - 1) // unit * unit - (n - 1) * unit
    for j in range(n):
        s = slot_of(st, reach, pool, q.blocks[first + j])
        if s < 0:
            return False
        low = max(0, start)
        if not judged(st, s):
            start += unit
            continue
        if not leads_here(st, s):
            return False
        if not serves(st, s, g, low, max(low, min(tokens, start + unit)), reader):
            return False
        start += unit
    return True


def looked_up(
    st: Any, sc: Any, q: Any, groups: Any, reach: Any, k: int, pos: int, who: int, tokens: int
) -> int:
    """Take lookup `k` of `q` in, where it is right."""
    if who < 0 or q.whole[k] == 0 or sc.named[who] & (GONE | TOLD) != 0:
        return 501
    reader = who if sc.named[who] & NAMED != 0 else -1
    width = len(groups)
    best, least, limit, ties = 0, -1, -1, 0
    best_joining, need = -1, width
    for c in range(width):
        g, at = groups[c], k * width + c
        hit = q.hit[at]
        if hit == MISSING or g < 0:
            continue
        best = max(best, hit)
        if sc.joins[g] != 0:
            best_joining = max(best_joining, hit)
            if least < 0 or hit < least:
                least, limit, ties = hit, g, 0
            elif hit == least:
                ties += 1
        if q.count[at] > 0:
            need += q.count[at]
            if hit > 0 and not hits_serve(st, q, reach, g, q.first[at], q.count[at], hit, reader):
                return 502
    if limit >= 0 and least < best and ties > 0:
        # Which of them limits is for the rules to say.
        return 503
    r = sc.h[FREE_RECORD]
    if need > RING or (r < 0 and sc.lookup[who] < 0):
        return 504
    close(sc, who)
    r = sc.h[FREE_RECORD]
    sc.h[FREE_RECORD] = sc.k_next[r]
    sc.h[OPEN] += 1
    sc.lookup[who] = r
    sc.k_pos[r] = pos
    sc.k_resume[r] = MISSING
    sc.k_at[r] = MISSING
    sc.k_best[r] = best
    sc.k_asked[r] = max(tokens, best) if tokens != MISSING else best
    sc.k_limit[r] = limit if least < best else -1
    sc.k_least[r] = least if limit >= 0 else best
    sc.k_joining[r] = best_joining
    sc.k_ring[r] = sc.h[RINGED]
    note_blocks(sc, q, k, width)
    sc.ended[who] = -1
    sc.checked[who] = pos
    sc.named[who] |= NAMED | REQUEST
    return 0


def note_blocks(sc: Any, q: Any, k: int, width: int) -> None:
    """Keep which blocks a lookup found: how many by group, then their ids."""
    to = sc.h[RINGED]
    for c in range(width):
        sc.ring[(to + c) % RING] = max(0, q.count[k * width + c])
    to += width
    for c in range(width):
        at = k * width + c
        for j in range(q.count[at]):
            sc.ring[(to + j) % RING] = q.blocks[q.first[at] + j]
        to += max(0, q.count[at])
    sc.h[RINGED] = to


def found_so(sc: Any, q: Any, r: int, c: int, width: int, first: int, n: int) -> Any:
    """Whether the lookup of record `r` found blocks just as they are brought, or named none."""
    at = sc.k_ring[r]
    if sc.h[RINGED] - at > RING:
        return False
    count = sc.ring[(at + c) % RING]
    if count == 0:
        return True
    if n > count:
        return False
    to = at + width
    for other in range(c):
        to += sc.ring[(at + other) % RING]
    j = 0
    while j < n and sc.ring[(to + j) % RING] == q.blocks[first + j]:
        j += 1
    return j == n


def brought(st: Any, sc: Any, q: Any, k: int, width: int, g: int) -> Any:
    """The column whose blocks are brought for a group: its own, else of one that shares its table;
    -1 where there is none."""
    c = sc.column[g]
    if c >= 0 and q.count[k * width + c] >= 0:
        return c
    for other in range(len(sc.column)):
        c = sc.column[other]
        if c >= 0 and st.g_table[other] == st.g_table[g] and st.g_pool[other] == st.g_pool[g]:
            if q.count[k * width + c] >= 0:
                return c
    return -1


def route_for(st: Any, sc: Any, q: Any, k: int, width: int, g: int) -> Any:
    """The number of the route stated for a group, or for one that shares its table."""
    c = sc.column[g]
    if c >= 0 and (q.route[k * width + c] >= 0 or q.count[k * width + c] >= 0):
        return q.route[k * width + c]
    for other in range(len(sc.column)):
        c = sc.column[other]
        if c >= 0 and st.g_table[other] == st.g_table[g] and st.g_pool[other] == st.g_pool[g]:
            if q.route[k * width + c] >= 0:
                return q.route[k * width + c]
    return -1


def resumed(
    st: Any, sc: Any, q: Any, groups: Any, reach: Any, k: int, pos: int, who: int, at: int
) -> int:
    """Take resume `k` of `q` in, where every group can resume from what is brought."""
    if who < 0 or q.whole[k] == 0 or sc.named[who] & (GONE | TOLD) != 0:
        return 511
    r = sc.lookup[who]
    if r < 0 or at == MISSING or sc.h[WAITED] != 0:
        return 512
    if sc.k_joining[r] >= 0 and sc.k_joining[r] > max(at, sc.k_least[r]):
        return 513
    width = len(groups)
    engine = UNTOLD
    for c in range(width):
        g = groups[c]
        if g >= 0 and q.route[k * width + c] == OTHER:
            return 514
        if g >= 0 and q.count[k * width + c] >= 0:
            if engine != UNTOLD and sc.engine[g] != engine:
                return 516
            engine = sc.engine[g]
    if q.whole[k] == 1:
        if engine == UNTOLD and sc.h[ENGINES] != 0:
            return 517
        for g in range(len(sc.column)):
            if sc.joins[g] != 0 and (engine == UNTOLD or sc.engine[g] == engine):
                if sc.column[g] < 0:
                    return 515
                why = group_resumes(st, sc, q, reach, k, width, g, at, who, r)
                if why != 0:
                    return why
    sc.k_at[r] = at
    sc.k_resume[r] = pos
    if sc.checked[who] < 0:
        sc.checked[who] = pos
    sc.h[MOVED] = pos
    return 0


def group_resumes(
    st: Any, sc: Any, q: Any, reach: Any, k: int, width: int, g: int, at: int, who: int, r: int
) -> int:
    """0, or why a group may not be able to resume at `at`."""
    route = route_for(st, sc, q, k, width, g)
    if route > REUSE or at <= 0:
        return 0
    form, unit = st.g_form[g], st.g_tokens[g]
    low, high, sink = 0, at, 0
    if form == TAIL:
        low = max(0, at - at % sc.served[g] - sc.overlap[g])
    elif form == SWA:
        if sc.replayed[g] != 0:
            return 0
        low = max(0, at - sc.window[g] + 1 - sc.slack[g])
        if sc.chunked[g] != 0:
            low = at - at % sc.window[g] if sc.window[g] > 0 else 0
        sink = min(sc.sink[g], low)
    elif form == RECURRENT:
        low = at - 1
    else:
        high = at - at % sc.ratio[g]
    if low >= high and sink <= 0:
        return 0
    c = brought(st, sc, q, k, width, g)
    if c < 0 or q.count[k * width + c] == 0:
        return 521
    first, n = q.first[k * width + c], q.count[k * width + c]
    if n > len(sc.room):
        return 522
    for j in range(n):
        s = slot_of(st, reach, st.g_pool[g], q.blocks[first + j])
        if s < 0 or sc.reserved[s] != 0 or st.loads[s] > 0:
            return 523
        if judged(st, s) and st.table[s] >= 0 and st.table[s] != st.g_table[g]:
            return 524
        sc.room[j] = s
    if form == RECURRENT:
        last = sc.room[n - 1]
        if judged(st, last) and not serves(st, last, g, low, high, who):
            return 525
    elif form in (SWA, TAIL):
        if low < high and not window_serves(st, g, sc.room, 0, n, low, high, who):
            return 526
        if sink > 0 and not window_serves(st, g, sc.room, 0, n, 0, sink, who):
            return 527
    else:
        if (at - 1) // unit != n - 1:
            return 528
        for j in range(n):
            start = j * unit
            if start < high and judged(st, sc.room[j]):
                if not serves(st, sc.room[j], g, start, min(start + unit, high), who):
                    return 529
    if form == INDEXER:
        return index_is_of_data(st, sc, q, k, width, g, c, n)
    own = sc.column[g]
    for j in range(n):
        s = sc.room[j]
        if not judged(st, s):
            continue
        if st.owner[s] == who:
            e = entry(sc, who, s)
            if e >= 0 and sc.e_gen[e] == st.gen[s] and sc.e_held[e] > 0:
                continue
        if st.live[s] <= 0 or not hashed(st, s, st.g_table[g]):
            return 531
    if form == COMPRESSED and not found_so(sc, q, r, own, width, first, n):
        return 532
    return 0


def index_is_of_data(st: Any, sc: Any, q: Any, k: int, width: int, g: int, c: int, n: int) -> int:
    """0, or why indexer rows may not be of the data that is brought with them."""
    if sc.index_of[g] == -1:
        return 0
    d = brought(st, sc, q, k, width, sc.serves[g])
    if d < 0 or q.count[k * width + d] == 0:
        return 0
    if sc.index_of[g] < 0 or q.count[k * width + d] != n:
        return 541
    mine, theirs = q.first[k * width + c], q.first[k * width + d]
    for j in range(n):
        if q.blocks[mine + j] != q.blocks[theirs + j]:
            return 542
        if not rows_in_step(st, sc, sc.room[j], g):
            return 543
    return 0


def end_lookup(sc: Any, who: int) -> None:
    """A request has ended: so has its lookup, and whoever resumes from it is looked at closely."""
    if sc.lookup[who] >= 0:
        close(sc, who)
    sc.lookup[who] = OVER
