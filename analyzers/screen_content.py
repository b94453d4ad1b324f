"""Whether blocks surely serve a reader: what `hkvtool.state.serving` finds no fault with.

Runs compiled. It is stricter than that where this is simpler: what nothing is known of, or holds
an unknown share of its tokens, does not surely serve.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.rows import MISSING
from hkvtool.state.arrays import (
    COMPONENTS,
    COMPRESSED,
    EPOCH,
    INDEXER,
    RECURRENT,
    UNKNOWN,
    VAGUE,
    VOIDED,
)
from hkvtool.state.content import covers


def outdated(st: Any, s: int, table: int) -> Any:
    """Whether only hashes of an earlier generation or of older weights lead to a slot."""
    found = False
    e = st.first_entry[s]
    while e >= 0:
        if st.e_live[e] == 1 and (st.e_table[e] == table or st.e_table[e] == -1):
            if st.e_gen[e] == st.gen[s] and st.e_epoch[e] == st.h[EPOCH]:
                return False
            found = True
        e = st.e_next_slot[e]
    return found


def rewritten(st: Any, s: int, c: int) -> Any:
    """Whether the content changed since the latest hash of this generation was published."""
    e = st.first_entry[s]
    while e >= 0:
        if st.e_live[e] == 1 and st.e_gen[e] == st.gen[s]:
            return st.cpos[c] > st.e_pos[e]
        e = st.e_next_slot[e]
    return False


def judged(st: Any, s: int) -> Any:
    """Whether the state of a slot is certain enough for a rule to speak of it."""
    return st.known[s] != UNKNOWN and st.unsure[s] == 0


def sure(st: Any, s: int) -> Any:
    """Whether it is, and the slot is readable."""
    return judged(st, s) and st.loads[s] == 0


def hashed(st: Any, s: int, table: int) -> Any:
    """Whether a live hash of a table leads to a slot."""
    e = st.first_entry[s]
    while e >= 0:
        if st.e_live[e] == 1 and (st.e_table[e] == table or st.e_table[e] == -1):
            return True
        e = st.e_next_slot[e]
    return False


def serves(st: Any, s: int, g: int, a: int, b: int, reader: int) -> Any:
    """Whether a slot serves tokens [a, b) of a group as it stands."""
    if not sure(st, s) or (st.table[s] >= 0 and st.table[s] != st.g_table[g]):
        return False
    c = s * st.h[COMPONENTS] + st.g_comp[g]
    gen = st.gen[s]
    mine = reader >= 0 and st.owner[s] == reader
    if not mine and st.live[s] > 0 and outdated(st, s, st.g_table[g]):
        return False
    if st.cgen[c] != gen or st.cid[c] == 0:
        return False
    current = st.epoch[c] == st.h[EPOCH]
    if st.g_form[g] == RECURRENT:
        return (st.vague[c] != 0 or st.hi[c] == b) and current
    if not covers(st, c, gen, a, b, st.g_tokens[g]) or not (current or mine):
        return False
    if st.pgen[c] == gen:
        if st.pver[c] == VOIDED:
            return st.live[s] == 0
        if st.pver[c] >= 0 and st.pver[c] != st.ver[c]:
            return st.g_form[g] == INDEXER and not rewritten(st, s, c)
    return True


def leads_here(st: Any, s: int) -> Any:
    """Whether no live hash leads to a slot but of what it holds now."""
    e = st.first_entry[s]
    while e >= 0:
        if st.e_live[e] == 1:
            if st.e_gen[e] != st.gen[s] or st.e_epoch[e] != st.h[EPOCH]:
                return False
        e = st.e_next_slot[e]
    return True


def all_serve(st: Any, g: int, slots: Any, spans: Any, reader: int) -> Any:
    """Whether each slot serves its span, and no hash leads to it but of what it holds now."""
    for j in range(len(slots)):
        if not leads_here(st, slots[j]):
            return False
        if not serves(st, slots[j], g, spans[2 * j], spans[2 * j + 1], reader):
            return False
    return True


def window_serves(
    st: Any, g: int, slots: Any, b0: int, b1: int, t0: int, t1: int, reader: int
) -> Any:
    """Whether slots hold every token of a window, in whatever order, and each serves its share.
    Of one that is not judged, or holds nobody knows which tokens, any may be held."""
    comp, width = st.g_comp[g], st.h[COMPONENTS]
    at = t0
    first, excused = True, False
    while True:
        before = at
        for j in range(b0, b1):
            s = slots[j]
            c = s * width + comp
            if not judged(st, s):
                excused = True
                continue
            if first and (st.loads[s] != 0 or (st.table[s] >= 0 and st.table[s] != st.g_table[g])):
                return False
            if st.cgen[c] != st.gen[s] or st.cid[c] <= 0:
                continue
            if st.vague[c] != 0:
                excused = True
                continue
            for half in range(2):
                lo, hi = st.lo[c], st.hi[c]
                if half == 1:
                    lo, hi = st.lo2[c], st.hi2[c]
                if hi <= lo:
                    continue
                if lo <= at < hi:
                    at = hi
                if first and hi > t0 and lo < t1:
                    if not serves(st, s, g, max(lo, t0), min(hi, t1), reader):
                        return False
        first = False
        if at >= t1 or excused:
            return True
        if at == before:
            return False


def read_span(st: Any, s: int, g: int, whole: bool) -> Any:
    """Tokens read of a slot where the event does not say: as `hkvtool.state` takes it; an empty
    range where that is not sure."""
    c = s * st.h[COMPONENTS] + st.g_comp[g]
    lo, hi = st.lo[c], st.hi[c]
    if st.g_form[g] == RECURRENT:
        return hi - 1, hi
    if st.cgen[c] != st.gen[s]:
        return 0, 0
    if hi <= lo:
        # Of what is vague the first token is as good as any.
        return 0, int(st.vague[c] == VAGUE)
    if whole and st.g_form[g] == COMPRESSED:
        unit = st.g_tokens[g]
        return lo - lo % unit, lo - lo % unit + unit
    return lo, hi


def stored_span(st: Any, s: int, g: int) -> Any:
    """Tokens that a store takes of a slot where it does not say."""
    c = s * st.h[COMPONENTS] + st.g_comp[g]
    if st.g_form[g] == RECURRENT:
        return st.hi[c] - 1, st.hi[c]
    if st.g_form[g] not in (COMPRESSED, INDEXER):
        return st.lo[c], max(st.hi[c], st.lo[c] + 1)
    unit = st.g_tokens[g]
    low = st.lo[c] - st.lo[c] % unit
    if st.cgen[c] != st.gen[s] and st.start[s] != MISSING:
        low = st.start[s]
    return low, low + unit
