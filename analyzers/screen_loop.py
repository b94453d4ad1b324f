"""The loop of the screen over columns: each row is looked at, folded, and remembered.

Runs compiled, around the very loop that folds (`hkvtool.state.loop.run`). What it does not surely
find right it leaves: then the rules themselves look at the whole trace.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import (
    ASK,
    BLIND,
    CONCERNED,
    DOUBTED,
    DOUBTS,
    DUE,
    DUE_SINCE,
    GONE,
    HORIZON,
    INSTANCES,
    JUDGED,
    MOVED,
    NAMED,
    REQUEST,
    STOP,
    STRANGE,
    TOLD,
    TRANSFER,
    UNSIGNALLED,
    WAITED,
    WHY,
)
from hkvtool.analyzers.screen_doubts import ask, doubted, doubtful
from hkvtool.analyzers.screen_holders import entry, leave, release, take
from hkvtool.analyzers.screen_lookups import end_lookup, looked_up, resumed
from hkvtool.analyzers.screen_moves import (
    alloc_is_right,
    begin_is_right,
    end_is_right,
    free_is_right,
    load_is_right,
    store_is_right,
    unpin_is_right,
    unpublish_is_right,
)
from hkvtool.analyzers.screen_order import feed
from hkvtool.analyzers.screen_races import access, buffered
from hkvtool.analyzers.screen_reads import tail_is_there, use_is_right, write_is_private
from hkvtool.model.rows import FAILED, MISSING, NO_NAME, PAD
from hkvtool.state.arrays import COMPONENTS
from hkvtool.state.blocks import dispatched
from hkvtool.state.codes import (
    ABORT,
    ADMIT,
    ALLOC,
    BUFFER,
    COPY,
    DISPATCH,
    FINISH,
    FREE,
    INDEX,
    LAUNCH,
    LOAD_BEGIN,
    LOAD_END,
    LOOKUP,
    PIN,
    PUBLISH,
    RESET,
    RESUME,
    RETIRE,
    ROLLBACK,
    SEAL,
    SELECT,
    SIGNAL,
    SLIDE,
    STORE_BEGIN,
    STORE_END,
    TOUCH,
    UNPIN,
    UNPUBLISH,
    USE,
    WAIT,
    WRITE,
    ZERO,
)
from hkvtool.state.loop import run

UNDERSTOOD = (
    TOUCH, ALLOC, SLIDE, PUBLISH, WRITE, SEAL, INDEX, ZERO, USE, DISPATCH, ROLLBACK, UNPUBLISH,
    STORE_END, LOAD_END, ADMIT, ABORT, FINISH, RESET, PIN, UNPIN,
)  # fmt: skip
"""Events that the loop knows what to make of, transfers' begins and copies aside."""


def lane_of(kind: int, actor: int, step: int, lanes: Any) -> Any:
    """The lane of an event; the last two of `lanes` are those of events that name none."""
    if actor >= 0:
        return lanes[actor]
    if step != MISSING and kind in (WRITE, SEAL, INDEX, ZERO, COPY, USE, BUFFER, SELECT):
        return lanes[len(lanes) - 1]
    return lanes[len(lanes) - 2]


def found(st: Any, reach: Any, pool: int, blk: Any, b0: int, b1: int, slots: Any, to: int) -> Any:
    """Whether ids are all blocks of a pool; their slots are put into `slots` from `to` on."""
    if pool < 0:
        return b1 <= b0
    for j in range(b1 - b0):
        block = blk[b0 + j]
        if block < 0 or block >= reach[pool] or block >= st.size[pool]:
            return False
        slots[to + j] = st.base[pool] + block
    return True


def touched(
    st: Any, sc: Any, slots: Any, b0: int, b1: int, k: int, table: int, write: bool, lane: int,
    by: int, index: int,
) -> Any:  # fmt: skip
    """Whether an access of slots surely races with nothing; reserved ones are nobody's."""
    for j in range(b0, b1):
        s = slots[j]
        if sc.reserved[s] == 0 and not access(st, sc, s, k, table, write, lane, by, index):
            return False
    return True


def looked_at(
    st: Any, sc: Any, kind: int, pos: int, lane: int, step: int, who: int, g: int, g2: int,
    near: int, far: int, handle: int, t0: int, t1: int, aux: int, slots: Any, n: int, m: int,
    hashes: int, spare: Any,
) -> int:  # fmt: skip
    """0 where no rule can have anything to say of an event as the state stands before it.

    ``slots[:n]`` are its blocks, ``slots[n:m]`` those of its second list.
    """
    index = sc.idx[lane]
    comp = st.g_comp[g] if g >= 0 else -1
    table = st.g_table[g] if g >= 0 else -1
    if kind == USE:
        if g < 0 or st.tier[near] != 0:
            return 301
        why = use_is_right(st, sc, pos, step, who, g, slots, 0, n, t0, t1)
        if why != 0:
            return why
        return 0 if touched(st, sc, slots, 0, n, comp, table, False, lane, lane, index) else 302
    if kind in (WRITE, SEAL, INDEX):
        if g < 0:
            return 303
        why = write_is_private(
            st, sc, pos, step, who, g, slots, 0, n, MISSING if kind == INDEX else t0
        )
        if why != 0:
            return why
        if kind == SEAL and g2 >= 0 and t0 != MISSING and who >= 0:
            why = tail_is_there(st, sc, pos, step, who, g, g2, t0, t1, spare)
            if why != 0:
                return why
        for j in range(n):
            # What an overtaken write does to a block shows in no touch of it.
            sc.read_at[slots[j]] = -2
        return 0 if touched(st, sc, slots, 0, n, comp, table, True, lane, lane, index) else 304
    if kind == ALLOC:
        return alloc_is_right(st, sc, pos, slots, 0, n)
    if kind == FREE:
        return free_is_right(st, sc, pos, slots, 0, n)
    if kind == UNPIN:
        return unpin_is_right(st, sc, pos, slots, 0, n)
    if kind == UNPUBLISH:
        return unpublish_is_right(st, slots, 0, n)
    if kind == ZERO:
        return 0 if touched(st, sc, slots, 0, n, comp, table, True, lane, lane, index) else 305
    if kind == COPY:
        if aux != MISSING or g2 >= 0:
            return 306
        for j in range(n, m):
            if st.live[slots[j]] > 0:
                return 307
        reads = touched(st, sc, slots, 0, n, comp, table, False, lane, lane, index)
        writes = touched(st, sc, slots, n, m, comp, table, True, lane, lane, index)
        return 0 if reads and writes else 308
    if kind in (STORE_BEGIN, LOAD_BEGIN):
        if g < 0:
            return 309
        store = kind == STORE_BEGIN
        why = begin_is_right(st, sc, store, g, far, handle, slots, 0, n, t0, t1, hashes)
        if why == 0 and store:
            why = store_is_right(st, sc, step, who, g, slots, 0, n, m, t0, t1)
        elif why == 0:
            why = load_is_right(st, sc, g, slots, 0, n, slots, n, m)
        if why != 0:
            return why
        there = -1
        if far >= 0:
            there = sc.far[g * len(st.base) + far]
        their_table = sc.c_table[far * st.h[COMPONENTS] + there] if there >= 0 else -1
        by = sc.h[INSTANCES]
        fine = touched(st, sc, slots, n, m, there, their_table, store, lane, TRANSFER, by)
        fine = touched(st, sc, slots, 0, n, comp, table, not store, lane, TRANSFER, by) and fine
        return 0 if fine else 310
    return 0


def remembered(st: Any, sc: Any, kind: int, pos: int, who: int, g: int, slots: Any, n: int) -> int:
    """Take an event into account that was folded; 0, or what was suspicious about it."""
    if who < 0:
        return 0
    if kind in (ALLOC, TOUCH):
        for j in range(n):
            table = st.g_table[g] if g >= 0 else st.table[slots[j]]
            if not take(st, sc, who, slots[j], table):
                return 401
    elif kind == FREE:
        for j in range(n):
            release(st, sc, who, slots[j], pos)
    elif kind == SLIDE:
        for j in range(n):
            e = entry(sc, who, slots[j])
            if e >= 0:
                leave(sc, e, pos)
    return 0


def put_off(st: Any, sc: Any, kind: int, who: int, step: int) -> Any:
    """Whether a resume is to be settled before an event."""
    if sc.h[DUE] == 0:
        return False
    if kind == RETIRE:
        at = dispatched(st, step)
        return at == MISSING or at >= sc.h[DUE_SINCE]
    return who >= 0 and sc.due[who] != 0 and kind in (USE, WRITE, SEAL, INDEX)


def lived(sc: Any, kind: int, pos: int, who: int) -> int:
    """Take in that a request begins or ends; 0, or what is suspicious about it."""
    if who < 0:
        return 9
    if kind == ADMIT:
        sc.named[who] &= ~GONE
        sc.ended[who] = -1
    else:
        if sc.named[who] & GONE != 0:
            return 10
        sc.named[who] |= GONE
        sc.ended[who] = pos
        end_lookup(sc, who)
    if kind != ABORT:
        sc.h[MOVED] = pos
    return 0


def misnumbered(
    sc: Any, lanes: Any, groups: Any, pools: Any, kind: int, actor: int, who: int, group: int,
    other: int, pool: int, far: int,
) -> Any:  # fmt: skip
    """Whether a row holds a number that no name has, as an altered file may."""
    others = len(sc.named) if kind in (FREE, TOUCH, PIN, UNPIN) else len(groups)
    return (
        actor >= len(lanes) - 2
        or who >= len(sc.named)
        or group >= len(groups)
        or other >= others
        or pool >= len(pools)
        or far >= len(pools)
    )


def lost_sight(st: Any, sc: Any, step: int, said: int, slots: Any, n: int) -> int:
    """Events were lost. What names blocks in a step whose dispatch was among them is uncertain;
    13 where nobody remembers whether it was."""
    if said == STRANGE:
        for j in range(n):
            st.unsure[slots[j]] = 1
    elif n > 0:
        at = dispatched(st, step)
        if at == MISSING or at < sc.h[HORIZON]:
            return 13
    return 0


def to_be_told(sc: Any, who: int) -> Any:
    """Whether the rules keep account of what becomes of a request."""
    return sc.h[WAITED] != 0 or (who >= 0 and (sc.due[who] != 0 or sc.named[who] & TOLD != 0))


def watched(
    st: Any, sc: Any, q: Any, spare: Any, slots: Any, lanes: Any, said: Any, stops: Any, actor: Any,
    part: Any, groups: Any, pools: Any, reach: Any, mapped: Any, pos: Any, ev: Any, number: Any,
    req: Any, group: Any, group2: Any, pool: Any, pool2: Any, handle: Any, t0: Any, t1: Any,
    version: Any, kver: Any, aux: Any, flags: Any, bo: Any, blk: Any, co: Any, blk2: Any, ho: Any,
    hsh: Any, first: int, end: int,
) -> int:  # fmt: skip
    """Look at rows `first` to `end` and fold them. Returns the row that it stops at: where
    ``stops[row]`` says so or the rules are to be told or asked of it (then ``h[ASK]`` is set, and
    the order has taken it in), where a resume is to be settled, or where something is suspicious
    (then ``h[WHY]`` is set); else `end`.

    `said` are the numbers of the events that signals and waits name, and of buffers; `slots` and
    `spare` are room for the blocks of one event.
    """
    for i in range(first, end):
        kind, who = ev[i], req[i]
        if misnumbered(
            sc, lanes, groups, pools, kind, actor[i], who, group[i], group2[i], pool[i], pool2[i]
        ):
            sc.h[WHY] = 8
            return i
        if sc.h[JUDGED] != pos[i] and stops[i] != STOP and put_off(st, sc, kind, who, number[i]):
            return i
        lane = lane_of(kind, actor[i], number[i], lanes)
        feed(sc, kind, pos[i], lane, number[i], said[i], handle[i])
        if stops[i] == STOP:
            return i
        suspect = who >= 0 and sc.named[who] & DOUBTED != 0
        if kind in (ADMIT, ABORT, FINISH) and (suspect or to_be_told(sc, who)):
            sc.h[ASK] = 551
            return i
        if kind == BUFFER:
            if sc.b_doubt[said[i]] == 0:
                sc.b_doubt[said[i]] = buffered(
                    sc, said[i], q.writes[i] != 0, lane, sc.idx[lane], q.valid[i], q.extent[i]
                ) != 0  # fmt: skip
            if sc.b_doubt[said[i]] != 0:
                ask(sc, pos[i])
            continue
        if kind == LAUNCH:
            continue
        if kind in (LOOKUP, RESUME):
            unsure = 500
            if suspect:
                unsure = 501
            elif number[i] == MISSING and kind == LOOKUP:
                unsure = looked_up(st, sc, q, groups, reach, q.at[i], pos[i], who, aux[i])
            elif number[i] == MISSING:
                unsure = resumed(st, sc, q, groups, reach, q.at[i], pos[i], who, aux[i])
            if unsure != 0:
                sc.h[ASK] = unsure
                return i
            continue
        if part[i] != NO_NAME:
            sc.h[WHY] = 1
            return i
        if kind in (RETIRE, SIGNAL, WAIT):
            if kind == WAIT and sc.v_serial[said[i]] == 0:
                sc.h[UNSIGNALLED] = pos[i]
            if who >= 0:
                sc.named[who] |= NAMED | REQUEST
            continue
        b0, n, c0, m = bo[i], bo[i + 1] - bo[i], co[i], co[i + 1] - co[i]
        g, g2, near, far = -1, -1, -1, -1
        if group[i] >= 0:
            g = groups[group[i]]
            near = st.g_pool[g] if g >= 0 else -1
        if pool[i] >= 0:
            near = pools[pool[i]]
        if (group[i] >= 0 and g < 0) or (pool[i] >= 0 and near < 0):
            sc.h[WHY] = 2
            return i
        if kind in (STORE_BEGIN, LOAD_BEGIN):
            far = pools[pool2[i]] if pool2[i] >= 0 else -1
            if far < 0:
                m = 0
        elif kind in (COPY, FREE):
            far = near
        elif kind not in UNDERSTOOD:
            sc.h[WHY] = 3
            return i
        if kind == SEAL and group2[i] >= 0:
            g2 = groups[group2[i]]
        elif kind == COPY and group2[i] >= 0:
            g2 = 0
        if who < 0 and kind in (FREE, TOUCH, PIN, UNPIN):
            who = group2[i]
        why = 0
        if kind in (STORE_END, LOAD_END):
            failed = m > 0 or flags[i] & FAILED != 0
            why = end_is_right(st, sc, 1 if kind == STORE_END else 0, handle[i], failed)
            if failed and why == 243 and sc.t_who[handle[i]] > 0:
                sc.named[sc.t_who[handle[i]] - 1] |= DOUBTED | CONCERNED
            m = 0
        elif near >= 0:
            # Blocks without a place are the fold's to refuse.
            good = found(st, reach, near, blk, b0, b0 + n, slots, 0)
            if not good or not found(st, reach, far, blk2, c0, c0 + m, slots, n):
                why = 4
        elif kind == UNPUBLISH:
            n = 0
        elif n > 0:
            why = 5
        if why == 0 and flags[i] & PAD != 0:
            why = 11
        if why == 0 and sc.h[BLIND] != 0 and number[i] != MISSING:
            why = lost_sight(st, sc, number[i], stops[i], slots, n)
        if why == 0 and (suspect or sc.h[DOUBTS] != 0):
            why = doubtful(sc, who, slots, n + m)
        if why == 0:
            why = looked_at(
                st, sc, kind, pos[i], lane, number[i], who, g, g2, near, far, handle[i], t0[i],
                t1[i], aux[i], slots, n, n + m, ho[i + 1] - ho[i], spare,
            )  # fmt: skip
        if why != 0:
            why = doubted(st, sc, kind, why, pos[i], lane, who, g, far, slots, n, n + m)
        if why != 0:
            sc.h[WHY] = why
            return i
        if run(
            st, groups, pools, reach, mapped, pos, ev, number, req, group, group2, pool, pool2,
            handle, t0, t1, version, kver, aux, flags, bo, blk, co, blk2, ho, hsh, i, i + 1,
        ) != 0:  # fmt: skip
            # What the fold refuses takes part in nothing else.
            sc.h[WHY] = doubted(st, sc, kind, 6, pos[i], lane, who, g, far, slots, n, n + m)
            if sc.h[WHY] != 0:
                return i
            continue
        if remembered(st, sc, kind, pos[i], who, g, slots, n) != 0:
            doubted(st, sc, kind, 401, pos[i], lane, who, g, far, slots, n, n + m)
            sc.named[who] |= DOUBTED
        if kind in (STORE_BEGIN, LOAD_BEGIN):
            sc.t_who[handle[i]] = req[i] + 1
        if kind in (ADMIT, ABORT, FINISH):
            why = lived(sc, kind, pos[i], who)
        if why != 0:
            sc.h[WHY] = why
            return i
        if who >= 0:
            sc.named[who] |= NAMED
            if req[i] >= 0:
                sc.named[who] |= REQUEST
            if kind == ROLLBACK:
                sc.rolled[who] = pos[i]
        somebody = who >= 0 or number[i] != MISSING
        if kind in (ALLOC, FREE, STORE_END, LOAD_END) or (
            somebody and kind in (WRITE, SEAL, INDEX, USE)
        ):
            sc.h[MOVED] = pos[i]
    return end
