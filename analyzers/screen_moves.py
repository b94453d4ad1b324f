"""Whether books are kept right and transfers surely carry what they should.

Runs compiled; numbers as in `screen_reads`.
"""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.screen_arrays import (
    CAP,
    FLOWN,
    FREED,
    HASHES,
    LEASED,
    LOADED,
    POOLS,
    RECOVERING,
)
from hkvtool.analyzers.screen_content import hashed, judged, serves, stored_span
from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import (
    COMPONENTS,
    RECURRENT,
    RUNNING,
    SWA,
    TAIL,
    USED,
)
from hkvtool.state.blocks import generation


def alloc_is_right(st: Any, sc: Any, pos: int, slots: Any, b0: int, b1: int) -> int:
    """0, or why handing out slots is suspicious."""
    width = st.h[COMPONENTS]
    for j in range(b0, b1):
        s = slots[j]
        if sc.mark[s] == pos or st.loads[s] > 0:
            return 201
        if (st.refs[s] > 0 or st.pins[s] > 0) and judged(st, s):
            return 201
        sc.mark[s] = pos
        taken = st.gen[s] + 1
        places = st.slot_pool[s] * width
        for k in range(st.h[USED]):
            if sc.stored[s * width + k] != taken:
                continue
            for m in range(st.h[USED]):
                c = s * width + m
                if sc.travels[(places + k) * width + m] != 0 and sc.stored[c] != taken:
                    if st.cgen[c] == st.gen[s] and st.cid[c] > 0:
                        return 202
    return 0


def free_is_right(st: Any, sc: Any, pos: int, slots: Any, b0: int, b1: int) -> int:
    """0, or why giving slots back is suspicious."""
    for j in range(b0, b1):
        s = slots[j]
        if sc.mark[s] == pos or sc.reserved[s] != 0:
            return 211
        if st.refs[s] < 1 and judged(st, s):
            return 212
        sc.mark[s] = pos
        if st.refs[s] == 1:
            sc.h[FREED] = pos
    return 0


def unpin_is_right(st: Any, sc: Any, pos: int, slots: Any, b0: int, b1: int) -> int:
    """0, or why letting go of pins is suspicious."""
    for j in range(b0, b1):
        s = slots[j]
        if sc.mark[s] == pos or (st.pins[s] < 1 and judged(st, s)):
            return 215
        sc.mark[s] = pos
    return 0


def unpublish_is_right(st: Any, slots: Any, b0: int, b1: int) -> int:
    """0, or why taking back hashes is suspicious."""
    for j in range(b0, b1):
        if st.pins[slots[j]] > 0:
            return 216
    return 0


def bounds_are_right(
    st: Any, sc: Any, store: bool, g: int, slots: Any, b0: int, b1: int, t0: int, t1: int
) -> Any:
    """Whether a transfer starts and stops between entries, and between blocks but at the end."""
    form, unit = st.g_form[g], st.g_tokens[g]
    if t0 == MISSING or form in (TAIL, RECURRENT):
        return True
    ratio = sc.ratio[g]
    if t0 % ratio != 0 or t1 % ratio != 0 or (t0 % unit != 0 and form != SWA):
        return False
    if t1 % unit != 0 and store and b1 > b0:
        s = slots[b1 - 1]
        c = s * st.h[COMPONENTS] + st.g_comp[g]
        return st.cgen[c] != st.gen[s] or st.hi[c] <= t1
    return True


def store_is_right(
    st: Any, sc: Any, step: int, who: int, g: int, slots: Any, b0: int, b1: int, c1: int, t0: int,
    t1: int,
) -> int:  # fmt: skip
    """0, or why what a store takes is suspicious; its peers are ``slots[b1:c1]``."""
    unit, width = st.g_tokens[g], st.h[COMPONENTS]
    start = 0
    if t0 != MISSING:
        start = (t1 - 1) // unit * unit - (b1 - b0 - 1) * unit
    for j in range(b0, b1):
        s = slots[j]
        if t0 != MISSING:
            low = max(t0, start)
            high = max(low, min(t1, start + unit))
            start += unit
        else:
            low, high = stored_span(st, s, g)
        if judged(st, s):
            if generation(st, s, step) != st.gen[s]:
                return 222
            reader = who if who >= 0 and sc.named[who] != 0 else -1
            if st.owner[s] != reader and not hashed(st, s, st.g_table[g]):
                reader = st.owner[s]
            if not serves(st, s, g, low, high, reader):
                return 221
        sc.stored[s * width + st.g_comp[g]] = st.gen[s] + 1
        peer = slots[b1 + j - b0] if b1 + j - b0 < c1 else -1
        travels_on(st, sc, True, g, s, peer)
    return 0


def went(trips: Any, place: int, store: bool) -> Any:
    """Whether content that goes out (or else comes in) has surely not done so twice before."""
    if (trips[place] % 2 == 0) == store:
        trips[place] += 1
    return trips[place] < 4


def travels_on(st: Any, sc: Any, store: bool, g: int, s: int, peer: int) -> Any:
    """The same of a block, known again by its hash, else by the block that it is kept in."""
    e = st.first_entry[s]
    if e >= 0 and st.e_live[e] == 1:
        return went(sc.trips, g * sc.h[HASHES] + st.e_hash[e], store)
    place = peer if peer >= 0 else s
    return went(sc.block_trips, place * st.h[COMPONENTS] + st.g_comp[g], store)


def load_is_right(
    st: Any, sc: Any, g: int, slots: Any, b0: int, b1: int, peers: Any, c0: int, c1: int
) -> int:
    """0, or why what a load brings is suspicious."""
    sc.h[RECOVERING] += b1 - b0
    sc.h[LOADED] = 1
    if sc.h[RECOVERING] > sc.h[CAP]:
        return 231
    for j in range(b0, b1):
        s = slots[j]
        peer = peers[c0 + j - b0] if j - b0 < c1 - c0 else -1
        if peer < 0:
            return 232
        if not travels_on(st, sc, False, g, s, peer):
            return 233
    return 0


def end_is_right(st: Any, sc: Any, store: int, handle: int, failed: bool) -> int:
    """0, or why the end of a transfer is suspicious."""
    if not 0 <= handle < len(st.t_state) or st.t_state[handle] != RUNNING:
        return 241
    if st.t_store[handle] != store:
        return 242
    if store == 0 and sc.t_inst[handle] > sc.h[FLOWN]:
        sc.h[RECOVERING] -= st.t_len[handle]
    # Whoever reads on in spite of it is looked at closely.
    return 243 if failed or sc.h[LEASED] != 0 else 0


def begin_is_right(
    st: Any, sc: Any, store: bool, g: int, far: int, handle: int, slots: Any, b0: int, b1: int,
    t0: int, t1: int, hashes: int,
) -> int:  # fmt: skip
    """0, or why the begin of a transfer is suspicious, whatever it carries."""
    if not 0 <= handle < len(st.t_state) or st.t_state[handle] == RUNNING or hashes > 0:
        return 251
    if far >= 0 and sc.sides[g * sc.h[POOLS] + far] == 0:
        return 252
    return 0 if bounds_are_right(st, sc, store, g, slots, b0, b1, t0, t1) else 253
