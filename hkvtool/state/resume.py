"""Whether the blocks that a request brings let a group resume at a token position."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned, needed
from hkvtool.state.serving import absent_code, block_fault, filled, known
from hkvtool.state.windows import window_faults


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
        return _recurrent_faults(fold, group, slots, spans[0], reader)
    if group.form in ("swa", "tail"):
        return window_faults(fold, group, slots, spans, reader)
    return _history_faults(fold, group, slots, spans[0][1], at, reader)


def _recurrent_faults(
    fold: Fold, group: Group, slots: Sequence[int], span: Span, reader: int
) -> list[Fault]:
    if not slots or slots[-1] < 0:
        return [Fault("HKV306", Kind.ABSENT, -1, span, "no state was brought")]
    fault = block_fault(fold, group, slots[-1], span, reader)
    return [fault] if fault else []


def absent(group: Group, span: Span) -> Fault:
    """Full history without a block for some of its tokens."""
    why = f"no block holds tokens {span[0]} to {span[1]}"
    return Fault(absent_code(group), Kind.ABSENT, -1, span, why)


def _history_faults(
    fold: Fold, group: Group, slots: Sequence[int], end: int, at: int, reader: int
) -> list[Fault]:
    """Full history: block after block from token 0 to `end`."""
    unit = group.block_tokens
    wanted = (end + unit - 1) // unit
    first = aligned(group, len(slots), at) if slots else 0
    faults: list[Fault] = []
    if not slots or first > 0:
        gap = (0, min(first if slots else end, end))
        if slots and slots[0] >= 0 and _starts_at_zero(fold, group, slots[0]):
            # Too few blocks, and what they hold says that they are the first ones.
            gap, first = (len(slots) * unit, end), 0
        faults.append(absent(group, gap))
    wholes = range(first, first + len(slots) * unit, unit)
    if first >= 0 and first + len(slots) * unit <= wanted * unit:
        spans = [(start, min(start + unit, end)) for start in wholes]
        if fold.surely_serve(group, slots, spans, reader):
            return faults
    for i, slot in enumerate(slots, first // unit):
        span = (i * unit, min((i + 1) * unit, end))
        if not 0 <= i < wanted:
            continue
        if slot < 0:
            faults.append(absent(group, span))
            continue
        fault = block_fault(fold, group, slot, span, reader)
        if fault:
            faults.append(fault)
    return faults


def _starts_at_zero(fold: Fold, group: Group, slot: int) -> bool:
    st = fold.st
    c = fold.component(slot, group)
    return filled(fold, slot, c) and st.vague[c] == 0 and st.lo[c] == 0


def index_faults(
    fold: Fold, index: Group, served: Group, blocks: Sequence[int], served_blocks: Sequence[int]
) -> list[Fault]:
    """Indexer rows whose KV version is not that of the data they route to."""
    st = fold.st
    faults: list[Fault] = []
    for mine, theirs in zip(reversed(blocks), reversed(served_blocks), strict=False):
        row, data = fold.slot(index.pool, mine), fold.slot(served.pool, theirs)
        if row < 0 or data < 0 or not known(fold, row) or not known(fold, data):
            continue
        r, d = fold.component(row, index), fold.component(data, served)
        if st.kver[r] == MISSING or not filled(fold, row, r) or not filled(fold, data, d):
            continue
        if st.vague[d] == 0 and st.kver[r] != st.ver[d]:
            why = f"its rows are of KV version {st.kver[r]}, the data is version {st.ver[d]}"
            faults.append(Fault("HKV304", Kind.VERSION, row, (st.lo[d], st.hi[d]), why))
    return faults
