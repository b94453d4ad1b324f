"""Transitions of transfers between pools: what the source held comes along.

Written once, run plain and compiled; see `hkvtool.state.blocks`. The content is captured when
the transfer begins, kept in the arena, and laid down when it ends well.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING, NO_NAME
from hkvtool.state.arrays import (
    ARENA,
    COMPONENTS,
    ENDED,
    EPOCH,
    MOVING,
    RECORD,
    RECURRENT,
    RUNNING,
    TAIL,
    UNKNOWN,
    VAGUE,
)
from hkvtool.state.blocks import generation, used
from hkvtool.state.content import fresh, mark_bytes, settle_published, void


def far_component(st: Any, g: int, pool: int) -> Any:
    """The component that a group's content has on another pool."""
    mirrored = st.mirror[g * len(st.base) + pool]
    return mirrored if mirrored >= 0 else st.g_comp[g]


def capture(st: Any, r: int, c: int, gen: int) -> None:
    """Put the content of a component into the arena at `r`; nothing where it has none."""
    if st.cgen[c] != gen or st.cid[c] == 0:
        return
    st.arena[r] = st.cid[c]
    st.arena[r + 1] = st.ver[c]
    st.arena[r + 2] = st.kver[c]
    st.arena[r + 3] = st.lo[c]
    st.arena[r + 4] = st.hi[c]
    st.arena[r + 5] = st.lo2[c]
    st.arena[r + 6] = st.hi2[c]
    st.arena[r + 7] = st.origin[c]
    st.arena[r + 8] = st.epoch[c]
    st.arena[r + 9] = st.vague[c]


def imagine(st: Any, r: int, g: int, lo: int, hi: int) -> None:
    """Content of a source nobody has described: the bytes are what the transfer says they are."""
    st.arena[r] = fresh(st)
    st.arena[r + 1] = 1
    st.arena[r + 2] = MISSING
    st.arena[r + 3] = 0
    st.arena[r + 4] = 0
    st.arena[r + 7] = NO_NAME
    st.arena[r + 8] = st.h[EPOCH]
    if lo != MISSING and hi >= lo:
        st.arena[r + 3] = lo
        st.arena[r + 4] = hi
    else:
        st.arena[r + 9] = 1


def begin(
    st: Any, store: int, g: int, base: int, far: int, far_base: int, handle: int, blk: Any,
    b0: int, b1: int, blk2: Any, c0: int, c1: int, t0: int, t1: int, version: int, kver: int,
    req: int, step: int, pos: int,
) -> None:  # fmt: skip
    """A transfer starts. The device blocks of a load are unreadable until it ends. A store that
    carries a step reads what that step left, even where the block is another's by now. What is
    loaded for a request are tokens of its own, which it may write again."""
    width = st.h[COMPONENTS]
    unit = st.g_tokens[g]
    off = st.h[ARENA]
    st.h[ARENA] = off + (b1 - b0) * RECORD
    if st.t_state[handle] != RUNNING:
        st.h[MOVING] += 1
    st.t_state[handle] = RUNNING
    st.t_store[handle] = store
    st.t_group[handle] = g
    st.t_off[handle] = off
    st.t_len[handle] = b1 - b0
    for i in range(b1 - b0):
        r = off + i * RECORD
        s = base + blk[b0 + i]
        peer = far_base + blk2[c0 + i] if c0 + i < c1 and far >= 0 else -1
        for j in range(RECORD):
            st.arena[r + j] = 0
        st.arena[r] = s
        st.arena[r + 2] = peer
        if s < 0:
            continue
        st.arena[r + 1] = st.gen[s]
        st.touch[s] = pos
        if peer >= 0:
            st.arena[r + 3] = st.gen[peer]
            st.touch[peer] = pos
        source = s
        comp = st.g_comp[g]
        if store == 0:
            st.loads[s] += 1
            source = peer
            comp = far_component(st, g, far) if far >= 0 else comp
        if source >= 0:
            held = generation(st, s, step) if store == 1 else st.gen[source]
            capture(st, r + 4, source * width + comp, held)
        told = source >= 0 and st.known[source] != UNKNOWN and st.unsure[source] == 0
        if st.arena[r + 4] == 0 and not told:
            lo, hi = MISSING, MISSING
            if st.g_form[g] == RECURRENT:
                if t0 != MISSING:
                    hi = t1 - (b1 - b0 - 1 - i) * unit
                    lo = hi - 1
            elif t0 != MISSING:
                lo = max(t0 - t0 % unit + i * unit, t0)
                hi = min(t0 - t0 % unit + (i + 1) * unit, t1)
            elif st.start[s] != MISSING:
                lo = st.start[s]
                hi = lo + unit
            imagine(st, r + 4, g, lo, hi)
        elif not told and st.g_form[g] != RECURRENT and st.arena[r + 8] - st.arena[r + 7] < unit:
            # Only a part was seen to be written: the rest travels, whatever it is.
            st.arena[r + 13] = VAGUE
        if version != MISSING:
            st.arena[r + 5] = version
        if kver != MISSING:
            st.arena[r + 6] = kver
        if store == 0 and req >= 0 and st.arena[r + 4] != 0:
            st.arena[r + 11] = req


def lay_down(st: Any, r: int, c: int, gen: int, pos: int) -> None:
    """Captured content now stands in a component, of generation `gen`."""
    st.cid[c] = st.arena[r]
    st.ver[c] = st.arena[r + 1]
    st.kver[c] = st.arena[r + 2]
    st.lo[c] = st.arena[r + 3]
    st.hi[c] = st.arena[r + 4]
    st.lo2[c] = st.arena[r + 5]
    st.hi2[c] = st.arena[r + 6]
    st.origin[c] = st.arena[r + 7]
    st.epoch[c] = st.arena[r + 8]
    st.vague[c] = st.arena[r + 9]
    st.cgen[c] = gen
    st.wpos[c] = pos


def end(st: Any, handle: int, ok: int, failed: Any, f0: int, f1: int, base: int, pos: int) -> None:
    """A transfer ends: the destination holds what was captured, unless that block failed.

    `failed[f0:f1]` are the device blocks that did not arrive; a failure that names none failed
    whole. A destination that was re-allocated meanwhile keeps its new generation's content: the
    late bytes are a race.
    """
    used(st, base, failed, f0, f1, pos)
    if st.t_state[handle] != RUNNING:
        return
    st.t_state[handle] = ENDED
    st.h[MOVING] -= 1
    g = st.t_group[handle]
    width = st.h[COMPONENTS]
    for i in range(st.t_len[handle]):
        r = st.t_off[handle] + i * RECORD
        s, d, gen = st.arena[r], st.arena[r], st.arena[r + 1]
        if s < 0:
            continue
        st.touch[s] = pos
        comp = st.g_comp[g]
        if st.t_store[handle] == 1:
            d, gen = st.arena[r + 2], st.arena[r + 3]
            if d < 0:
                continue
            comp = far_component(st, g, st.slot_pool[d])
        elif st.gen[s] == gen and st.loads[s] > 0:
            st.loads[s] -= 1
        if st.gen[d] != gen:
            continue
        st.touch[d] = pos
        good = 1 if ok == 1 or f1 > f0 else 0
        for j in range(f0, f1):
            if base + failed[j] == s:
                good = 0
        c = d * width + comp
        if good == 0 or st.arena[r + 4] == 0:
            if st.t_store[handle] == 0:
                void(st, c)
                st.cgen[c] = gen
            continue
        lay_down(st, r + 4, c, gen, pos)
        if st.t_store[handle] == 0:
            mark_bytes(st, s, g, True)
        if st.g_form[g] not in (RECURRENT, TAIL) and st.hi[c] > st.lo[c]:
            st.start[d] = st.lo[c] - st.lo[c] % st.g_tokens[g]
        settle_published(st, c, d, st.g_form[g])


def forget_ended(st: Any, running: Any) -> None:
    """Free the arena of what transfers captured that have ended; `running` are the others."""
    at = 0
    for off, handle in sorted((int(st.t_off[handle]), int(handle)) for handle in running):
        size = st.t_len[handle] * RECORD
        st.arena[at : at + size] = st.arena[off : off + size]
        st.t_off[handle] = at
        at += size
    st.h[ARENA] = at
