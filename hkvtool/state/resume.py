"""Whether a group can resume at a token position: the needs table of the trace format.

One predicate, asked by the checker, the reference engine and `validate_resume`. It says nothing
of blocks that nothing is known of: absence of evidence is no fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.forms import NEEDS, Form
from hkvtool.model.rows import MISSING
from hkvtool.model.rules import MISSING_FORM
from hkvtool.state import arrays as a
from hkvtool.state.content import covers
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold

Span = tuple[int, int]


class Fault(NamedTuple):
    """Why one block, or a token range that no block covers, does not serve.

    `code` is the rule; `slot` is -1 where the range has no block at all. `waiting` marks a
    fault that may still heal before the use: the write or load that fills the block is yet to
    come.
    """

    code: str
    slot: int
    tokens: Span
    why: str
    waiting: bool = False


def needed(fold: Fold, group: Group, at: int) -> list[Span]:
    """Token ranges that `group` must hold so that a request can resume at `at`, ascending."""
    if at <= 0:
        return []
    form = group.form
    if form == "recurrent":
        return [(at - 1, at)]
    if form == "tail":
        start = max(0, at - at % fold.declared.ratio_served(group) - group.overlap)
        return [(start, at)] if start < at else []
    if form == "swa":
        if group.replayed:
            return []
        start = max(0, at - group.window + 1 - group.slack)
        if group.chunked:
            start = at - at % group.window if group.window > 0 else 0
        spans = [(start, at)] if start < at else []
        sink = min(group.sink, start)
        return [(0, sink), *spans] if sink > 0 else spans
    end = at - at % max(group.ratio, fold.declared.ratio_served(group))
    return [(0, end)] if end > 0 else []


def aligned(group: Group, blocks: int, at: int) -> int:
    """First token of the first of `blocks` blocks whose last one holds token ``at - 1``."""
    unit = group.block_tokens
    return (at - 1) // unit * unit - (blocks - 1) * unit


def known(fold: Fold, slot: int) -> bool:
    """Whether the state of a block is certain enough to be judged."""
    st = fold.st
    return bool(st.known[slot] != a.UNKNOWN and st.unsure[slot] == 0)


def foreign(fold: Fold, group: Group, slot: int) -> bool:
    """Whether the block belongs to a table of another form or group of the same pool."""
    table = fold.st.table[slot]
    if table < 0 or table == group.table_id or not known(fold, slot):
        return False
    return bool(fold.st.slot_pool[slot] == group.pool.id)


def stale_hash(fold: Fold, group: Group, slot: int) -> bool:
    """Whether only hashes of an earlier generation or of older weights lead to the block."""
    st = fold.st
    stale = False
    entry = st.first_entry[slot]
    while entry >= 0:
        if st.e_live[entry] == 1 and st.e_table[entry] in (group.table_id, -1):
            if st.e_gen[entry] == st.gen[slot] and st.e_epoch[entry] == st.h[a.EPOCH]:
                return False
            stale = True
        entry = st.e_next_slot[entry]
    return stale


def hashed(fold: Fold, group: Group, slot: int) -> bool:
    """Whether a live hash of the group's table leads to the block."""
    st = fold.st
    entry = st.first_entry[slot]
    while entry >= 0:
        if st.e_live[entry] == 1 and st.e_table[entry] in (group.table_id, -1):
            return True
        entry = st.e_next_slot[entry]
    return False


def never_written(group: Group) -> str:
    """The code of content that is not there and that no hash promised."""
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
    unit = group.block_tokens
    c = fold.component(slot, group)
    if gen < 0:
        gen = st.gen[slot]
    if span is None:
        start = st.lo[c] - st.lo[c] % unit
        span = (start, start + unit)
        if st.pgen[c] == st.gen[slot] and st.pub_hi[c] != MISSING:
            start = (st.pub_hi[c] - 1) // unit * unit
            span = (start, st.pub_hi[c])
    latest = gen == st.gen[slot]
    if latest and foreign(fold, group, slot):
        return Fault("HKV601", slot, span, "it belongs to the block table of another group")
    if not known(fold, slot):
        return None
    if latest and st.loads[slot] > 0:
        return Fault("HKV305", slot, span, "its load has not ended", waiting=True)
    if latest and st.owner[slot] != reader and stale_hash(fold, group, slot):
        return Fault("HKV105", slot, span, "its hash was published for an earlier content")
    promised = st.pver[c] == a.PENDING and st.pgen[c] == gen and hashed(fold, group, slot)
    if st.cgen[c] != gen or st.cid[c] == 0:
        if promised:
            return Fault("HKV103", slot, span, "its hash was published and never written", True)
        why = "it was not written in this generation"
        return Fault(never_written(group), slot, span, why, waiting=True)
    if group.form == "recurrent":
        return _state_fault(fold, slot, c, span)
    if not covers(st, c, gen, span[0], span[1], unit):
        return _short(fold, group, slot, c, span)
    if st.epoch[c] != st.h[a.EPOCH] and st.owner[slot] != reader:
        return Fault("HKV105", slot, span, "it was computed with older weights")
    if st.pgen[c] == gen and st.pver[c] == a.VOIDED and hashed(fold, group, slot):
        why = "tokens that its hash stands for were rejected since it was published"
        return Fault("HKV105", slot, span, why)
    if st.pgen[c] == gen and st.pver[c] >= 0 and st.pver[c] != st.ver[c]:
        if _rewritten(fold, slot, c):
            return Fault("HKV105", slot, span, "it was rewritten after its hash was published")
        if group.form != "indexer":
            why = f"it was published as version {st.pver[c]} and holds version {st.ver[c]}"
            return Fault(MISSING_FORM[group.form], slot, span, why)
    return None


def _rewritten(fold: Fold, slot: int, c: int) -> bool:
    st = fold.st
    entry = st.first_entry[slot]
    while entry >= 0:
        if st.e_live[entry] == 1 and st.e_gen[entry] == st.gen[slot]:
            return bool(st.cpos[c] > st.e_pos[entry])
        entry = st.e_next_slot[entry]
    return False


def _state_fault(fold: Fold, slot: int, c: int, span: Span) -> Fault | None:
    st = fold.st
    if st.vague[c] == 0 and st.hi[c] != span[1]:
        why = f"it holds the state at {st.hi[c]}, not at {span[1]}"
        return Fault("HKV306", slot, span, why)
    if st.epoch[c] != st.h[a.EPOCH]:
        return Fault("HKV105", slot, span, "it was computed with older weights")
    return None


def _short(fold: Fold, group: Group, slot: int, c: int, span: Span) -> Fault:
    """The block holds something, but not all of `span`."""
    st = fold.st
    held = (st.lo[c], st.hi[c])
    elsewhere = held[1] <= span[0] or held[0] >= span[1]
    why = f"it holds tokens {held[0]} to {held[1]}"
    if group.form == "tail" or (group.form == "swa" and elsewhere):
        return Fault(MISSING_FORM[group.form], slot, span, why, waiting=not elsewhere)
    if elsewhere:
        code = "HKV102" if group.form == "compressed" else MISSING_FORM[group.form]
        return Fault(code, slot, span, why)
    code = "HKV101"
    if group.form == "indexer":
        code = MISSING_FORM["indexer"]
    return Fault(code, slot, span, why, waiting=True)


def group_faults(
    fold: Fold, group: Group, blocks: Sequence[int], at: int, reader: int = -1
) -> list[Fault]:
    """Every reason why `blocks` (ids of the group's pool, right-aligned at `at`) do not let the
    group resume at `at`; empty where they do. `reserved` blocks count as left out."""
    spans = needed(fold, group, at)
    if not spans:
        return []
    slots = [-1 if b in group.pool.reserved or b < 0 else fold.slot(group.pool, b) for b in blocks]
    if group.form == "recurrent":
        return _recurrent_faults(fold, group, slots, at, reader)
    if group.form in ("swa", "tail"):
        return window_faults(fold, group, slots, spans, reader)
    return _history_faults(fold, group, slots, spans[0][1], at, reader)


def _recurrent_faults(
    fold: Fold, group: Group, slots: Sequence[int], at: int, reader: int
) -> list[Fault]:
    if not slots or slots[-1] < 0:
        return [Fault("HKV306", -1, (at - 1, at), "no state was brought")]
    fault = block_fault(fold, group, slots[-1], (at - 1, at), reader)
    return [fault] if fault else []


def _history_faults(
    fold: Fold, group: Group, slots: Sequence[int], end: int, at: int, reader: int
) -> list[Fault]:
    """Full history: block after block from token 0 to `end`."""
    unit = group.block_tokens
    wanted = (end + unit - 1) // unit
    missing = "HKV102" if group.form == "compressed" else MISSING_FORM[group.form]
    first = aligned(group, len(slots), at) if slots else 0
    faults: list[Fault] = []
    if not slots or first > 0:
        gap = (0, min(first if slots else end, end))
        if slots and slots[0] >= 0 and _starts_at_zero(fold, group, slots[0]):
            # Too few blocks, and what they hold says that they are the first ones.
            gap, first = (len(slots) * unit, end), 0
        faults.append(Fault(missing, -1, gap, f"no block holds tokens {gap[0]} to {gap[1]}"))
    for i in range(wanted):
        place = i - first // unit
        span = (i * unit, min((i + 1) * unit, end))
        if not 0 <= place < len(slots):
            continue
        if slots[place] < 0:
            faults.append(Fault(missing, -1, span, f"no block holds tokens {span[0]} to {span[1]}"))
            continue
        fault = block_fault(fold, group, slots[place], span, reader)
        if fault:
            faults.append(fault)
    return faults


def _starts_at_zero(fold: Fold, group: Group, slot: int) -> bool:
    st = fold.st
    c = fold.component(slot, group)
    held = st.cgen[c] == st.gen[slot] and st.cid[c] > 0 and st.vague[c] == 0
    return bool(held and st.lo[c] == 0)


def window_faults(
    fold: Fold, group: Group, slots: Sequence[int], spans: Iterable[Span], reader: int = -1,
    gens: Sequence[int] = (),
) -> list[Fault]:  # fmt: skip
    """Every needed token must stand in one of the blocks; rings hold them in any order."""
    st = fold.st
    faults: list[Fault] = []
    held: list[tuple[int, int, int]] = []
    holds: dict[int, int] = {s: g for s, g in zip(slots, gens, strict=False) if g >= 0}
    excused = False
    for slot in slots:
        if slot < 0:
            continue
        if not known(fold, slot):
            excused = True
            continue
        c = fold.component(slot, group)
        good = st.cgen[c] == holds.get(slot, st.gen[slot]) and st.cid[c] > 0
        if good and st.vague[c]:
            excused = True
            continue
        for lo, hi in ((st.lo[c], st.hi[c]), (st.lo2[c], st.hi2[c])):
            if good and hi > lo:
                held.append((lo, hi, slot))
    touched: set[int] = set()
    for span in spans:
        for gap in _gaps(span, held):
            if excused:
                continue
            fault = _gap_fault(fold, group, slots, gap, reader)
            if fault.slot < 0 or fault.slot not in touched:
                faults.append(fault)
                touched.add(fault.slot)
        for lo, hi, slot in held:
            if slot in touched or hi <= span[0] or lo >= span[1]:
                continue
            part = (max(lo, span[0]), min(hi, span[1]))
            problem = block_fault(fold, group, slot, part, reader, holds.get(slot, -1))
            if problem:
                faults.append(problem)
                touched.add(slot)
    for slot in slots:
        if holds.get(slot, st.gen[slot] if slot >= 0 else 0) != st.gen[slot] and slot >= 0:
            continue
        if slot >= 0 and slot not in touched and foreign(fold, group, slot):
            faults.append(Fault("HKV601", slot, (0, 0), "it belongs to another block table"))
    return faults


def _gaps(span: Span, held: Iterable[tuple[int, int, int]]) -> list[Span]:
    gaps: list[Span] = []
    at = span[0]
    for lo, hi, _ in sorted(held):
        if hi <= at:
            continue
        if lo >= span[1]:
            break
        if lo > at:
            gaps.append((at, lo))
        at = max(at, hi)
    if at < span[1]:
        gaps.append((at, span[1]))
    return gaps


def _gap_fault(fold: Fold, group: Group, slots: Sequence[int], gap: Span, reader: int) -> Fault:
    """Whom to name for a hole in a window: the block that stands where the tokens should."""
    st = fold.st
    code = MISSING_FORM[group.form]
    for slot in slots:
        if slot >= 0 and known(fold, slot):
            whole = block_fault(fold, group, slot, gap, reader)
            if whole and whole.code in ("HKV305", "HKV105", "HKV103", "HKV601"):
                c = fold.component(slot, group)
                empty = st.cgen[c] != st.gen[slot] or st.cid[c] == 0
                if empty or whole.code in ("HKV105", "HKV601"):
                    return whole
    waiting = any(
        slot >= 0 and (st.cid[fold.component(slot, group)] == 0
                       or st.cgen[fold.component(slot, group)] != st.gen[slot])
        for slot in slots
    )  # fmt: skip
    named = next((s for s in reversed(slots) if s >= 0), -1)
    if group.form == "swa":
        for slot in slots:
            if slot >= 0 and known(fold, slot) and _partly(fold, group, slot, gap):
                c = fold.component(slot, group)
                why = f"it holds tokens {st.lo[c]} to {st.hi[c]}"
                return Fault("HKV101", slot, gap, why, waiting=True)
    why = f"no block brought holds tokens {gap[0]} to {gap[1]}"
    return Fault(code, named, gap, why, waiting)


def _partly(fold: Fold, group: Group, slot: int, gap: Span) -> bool:
    """Whether the block is the one that should hold `gap`, and was written in part."""
    st = fold.st
    c = fold.component(slot, group)
    if st.cgen[c] != st.gen[slot] or st.cid[c] == 0 or st.hi[c] <= st.lo[c]:
        return False
    unit = group.block_tokens
    return bool(st.lo[c] // unit == gap[0] // unit)


def index_faults(
    fold: Fold, index: Group, served: Group, blocks: Sequence[int], served_blocks: Sequence[int],
    at: int,
) -> list[Fault]:  # fmt: skip
    """Indexer rows whose KV version is not that of the data they route to."""
    st = fold.st
    faults: list[Fault] = []
    for mine, theirs in zip(reversed(blocks), reversed(served_blocks), strict=False):
        row, data = fold.slot(index.pool, mine), fold.slot(served.pool, theirs)
        if row < 0 or data < 0 or not known(fold, row) or not known(fold, data):
            continue
        r, d = fold.component(row, index), fold.component(data, served)
        stated = st.kver[r] != MISSING and st.cid[r] > 0 and st.cid[d] > 0
        if stated and st.cgen[r] == st.gen[row] and st.cgen[d] == st.gen[data]:
            if st.vague[d] == 0 and st.kver[r] != st.ver[d]:
                why = f"its rows are of KV version {st.kver[r]}, the data is version {st.ver[d]}"
                span = (st.lo[d], st.hi[d])
                faults.append(Fault("HKV304", row, span, why))
    return faults


def block_state(fold: Fold, group: Group, block: int) -> CacheBlockState | None:
    """The article's record of one block, or None where no event has named it."""
    slot = fold.find(group.pool, block)
    if slot is None:
        return None
    st = fold.st
    c = fold.component(slot, group)
    current = st.cgen[c] == st.gen[slot] and st.cid[c] > 0
    written = st.hi[c] - st.lo[c] + st.hi2[c] - st.lo2[c] if current else 0
    recovering = st.loads[slot] > 0
    residency = group.pool.medium if group.pool.tier else "resident"
    if recovering:
        residency = "recovering"
    fault = block_fault(fold, group, slot, None)
    why = fault.code if fault else None
    if why is None and group.pool.tier:
        why = "HKV305"
    name = None
    entry = st.first_entry[slot]
    while entry >= 0 and name is None:
        if st.e_live[entry] == 1:
            name = str(fold.names.name("hash", st.e_hash[entry]))
        entry = st.e_next_slot[entry]
    start = st.start[slot]
    tokens = (st.lo[c], st.hi[c]) if current and st.hi[c] > st.lo[c] else None
    if tokens is None and start != MISSING:
        tokens = (start, start + group.block_tokens)
    owner = st.owner[slot]
    return CacheBlockState(
        block_id=block,
        form=Form.ON_DISK if recovering or group.pool.tier else Form(group.form),
        version=st.ver[c] if current else 0,
        recoverable=why is None and current,
        last_touch=st.touch[slot],
        pool=group.pool.name,
        group=group.name,
        generation=st.gen[slot],
        ref_count=st.refs[slot],
        tokens=tokens,
        written=written,
        published=name,
        residency=residency,
        owner=None if owner < 0 else str(fold.names.name("req", owner)),
        pins=st.pins[slot],
        why_not=why,
        uncertain=not known(fold, slot),
    )


def need_of(group: Group) -> str:
    """The row of the needs table that a group must meet, in words."""
    return f"{group.form}: {NEEDS[Form(group.form)]}"
