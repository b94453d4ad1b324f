"""Whether one block can serve some tokens of its group.

It says nothing of blocks that nothing is known of: absence of evidence is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from hkvtool.model.rows import MISSING
from hkvtool.model.rules import MISSING_FORM
from hkvtool.state import arrays as a
from hkvtool.state.content import covers
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.fold import Fold


def known(fold: Fold, slot: int) -> bool:
    """Whether the state of a block is certain enough to be judged."""
    st = fold.st
    if st.known[slot] == a.UNKNOWN or st.unsure[slot] != 0:
        return False
    return not fold.gaps or not fold.in_gap(slot)


def filled(fold: Fold, slot: int, c: int) -> bool:
    """Whether a component of a block holds something written in its present generation."""
    st = fold.st
    return bool(st.cgen[c] == st.gen[slot] and st.cid[c] > 0)


def foreign(fold: Fold, group: Group, slot: int) -> bool:
    """Whether the block belongs to a table of another form or group of the same pool."""
    table = fold.st.table[slot]
    if table < 0 or table == group.table_id or not known(fold, slot):
        return False
    return bool(fold.st.slot_pool[slot] == group.pool.id)


def live_entries(fold: Fold, slot: int, group: Group | None = None) -> Iterator[int]:
    """Entries of the live hashes that lead to a block, the latest first; of the group's table
    only, where a group is given."""
    st = fold.st
    entry = st.first_entry[slot]
    while entry >= 0:
        if st.e_live[entry] == 1:
            if group is None or st.e_table[entry] in (group.table_id, -1):
                yield entry
        entry = st.e_next_slot[entry]


def stale_hash(fold: Fold, group: Group, slot: int) -> bool:
    """Whether only hashes of an earlier generation or of older weights lead to the block."""
    st = fold.st
    stale = False
    if st.live[slot] == 0:
        return False
    for entry in live_entries(fold, slot, group):
        if st.e_gen[entry] == st.gen[slot] and st.e_epoch[entry] == st.h[a.EPOCH]:
            return False
        stale = True
    return stale


def hashed(fold: Fold, group: Group, slot: int) -> bool:
    """Whether a live hash of the group's table leads to the block."""
    return fold.st.live[slot] > 0 and any(True for _ in live_entries(fold, slot, group))


def absent_code(group: Group) -> str:
    """The rule of history that is not there: of another sequence, or no block at all."""
    return "HKV102" if group.form == "compressed" else MISSING_FORM[group.form]


def never_written(group: Group) -> str:
    """The rule of content that is not there and that no hash promised."""
    return "HKV101" if group.form == "compressed" else MISSING_FORM[group.form]


def block_fault(
    fold: Fold, group: Group, slot: int, span: Span | None, reader: int = -1, gen: int = -1
) -> Fault | None:
    """Why a block cannot serve tokens `span` of its group, or None.

    `span` None asks for whatever the block was published for, or else for a whole block.
    `reader` (a number of the `req` domain) owns what it allocated: no hash led it there. `gen`
    is the generation that the reader holds, where that is not the latest.
    """
    st = fold.st
    c = fold.component(slot, group)
    if gen < 0:
        gen = st.gen[slot]
    if span is None:
        span = _published_span(fold, group, slot, c)
    latest = gen == st.gen[slot]
    if latest and foreign(fold, group, slot):
        why = "it belongs to the block table of another group"
        return Fault("HKV601", Kind.FOREIGN, slot, span, why)
    if not known(fold, slot) or (not latest and st.last_alloc[slot] < fold.doubted):
        return None
    if latest and st.loads[slot] > 0:
        return Fault("HKV305", Kind.LOADING, slot, span, "its load has not ended", waiting=True)
    mine = reader >= 0 and st.owner[slot] == reader
    if latest and not mine and stale_hash(fold, group, slot):
        why = "its hash was published for an earlier content"
        return Fault("HKV105", Kind.STALE_HASH, slot, span, why)
    if st.cgen[c] != gen or st.cid[c] == 0:
        return _empty(fold, group, slot, c, span, gen)
    if group.form == "recurrent":
        return _state_fault(fold, slot, c, span)
    if not covers(st, c, gen, span[0], span[1], group.block_tokens):
        return _short(fold, group, slot, c, span)
    if st.epoch[c] != st.h[a.EPOCH] and not mine:
        return _outdated(slot, span)
    if st.pgen[c] == gen:
        return _unlike_published(fold, group, slot, c, span)
    return None


def _published_span(fold: Fold, group: Group, slot: int, c: int) -> Span:
    st = fold.st
    unit = group.block_tokens
    if st.pgen[c] == st.gen[slot] and st.pub_hi[c] != MISSING:
        return ((st.pub_hi[c] - 1) // unit * unit, st.pub_hi[c])
    start = st.lo[c] - st.lo[c] % unit
    return (start, start + unit)


def _empty(fold: Fold, group: Group, slot: int, c: int, span: Span, gen: int) -> Fault:
    st = fold.st
    if st.pver[c] == a.PENDING and st.pgen[c] == gen and hashed(fold, group, slot):
        why = "its hash was published, and nothing has written it by then"
        return Fault("HKV103", Kind.PROMISED, slot, span, why, waiting=True)
    why = "it was not written in this generation"
    return Fault(never_written(group), Kind.EMPTY, slot, span, why, waiting=True)


def _outdated(slot: int, span: Span) -> Fault:
    return Fault("HKV105", Kind.OLD_WEIGHTS, slot, span, "it was computed with older weights")


def _unlike_published(fold: Fold, group: Group, slot: int, c: int, span: Span) -> Fault | None:
    """The block holds the tokens, but not as they were published."""
    st = fold.st
    if st.pver[c] == a.VOIDED and hashed(fold, group, slot):
        why = "tokens that its hash stands for were rejected since it was published"
        return Fault("HKV105", Kind.REJECTED, slot, span, why)
    if st.pver[c] < 0 or st.pver[c] == st.ver[c]:
        return None
    if _rewritten(fold, slot, c):
        why = "it was rewritten after its hash was published"
        return Fault("HKV105", Kind.REWRITTEN, slot, span, why)
    if group.form == "indexer":
        return None
    why = f"it was published as version {st.pver[c]} and holds version {st.ver[c]}"
    return Fault(MISSING_FORM[group.form], Kind.VERSION, slot, span, why)


def _rewritten(fold: Fold, slot: int, c: int) -> bool:
    st = fold.st
    for entry in live_entries(fold, slot):
        if st.e_gen[entry] == st.gen[slot]:
            return bool(st.cpos[c] > st.e_pos[entry])
    return False


def _state_fault(fold: Fold, slot: int, c: int, span: Span) -> Fault | None:
    st = fold.st
    if st.vague[c] == 0 and st.hi[c] != span[1]:
        why = f"it holds the state at {st.hi[c]}, not at {span[1]}"
        return Fault("HKV306", Kind.ELSEWHERE, slot, span, why)
    return _outdated(slot, span) if st.epoch[c] != st.h[a.EPOCH] else None


def _short(fold: Fold, group: Group, slot: int, c: int, span: Span) -> Fault:
    """The block holds something, but not all of `span`."""
    low, high = fold.st.lo[c], fold.st.hi[c]
    elsewhere = high <= span[0] or low >= span[1]
    why = f"it holds tokens {low} to {high}"
    kind = Kind.ELSEWHERE if elsewhere else Kind.SHORT
    if elsewhere:
        code = absent_code(group)
    elif group.form in ("tail", "indexer"):
        code = MISSING_FORM[group.form]
    else:
        code = "HKV101"
    return Fault(code, kind, slot, span, why, waiting=not elsewhere)
