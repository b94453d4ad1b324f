"""Whether blocks hold every token of a window or tail; rings hold them in any order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hkvtool.model.rules import MISSING_FORM
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.fold import Fold
from hkvtool.state.serving import block_fault, filled, foreign, known


class Run(NamedTuple):
    """Tokens ``[low, high)`` that stand in a slot."""

    low: int
    high: int
    slot: int


def window_faults(
    fold: Fold, group: Group, slots: Sequence[int], spans: Iterable[Span], reader: int = -1,
    gens: Sequence[int] = (),
) -> list[Fault]:  # fmt: skip
    """Every token of `spans` must stand in one of the blocks.

    `gens` are the generations that the reader holds, where not the latest (else negative).
    """
    st = fold.st
    faults: list[Fault] = []
    holds = {s: g for s, g in zip(slots, gens, strict=False) if g >= 0}
    held, excused = _runs(fold, group, slots, holds)
    touched: set[int] = set()
    for span in spans:
        for gap in [] if excused else _gaps(span, held):
            fault = _gap_fault(fold, group, slots, gap, reader)
            if fault.slot < 0 or fault.slot not in touched:
                faults.append(fault)
                touched.add(fault.slot)
        for low, high, slot in held:
            if slot in touched or high <= span[0] or low >= span[1]:
                continue
            part = (max(low, span[0]), min(high, span[1]))
            problem = block_fault(fold, group, slot, part, reader, holds.get(slot, -1))
            if problem:
                faults.append(problem)
                touched.add(slot)
    for slot in slots:
        if slot < 0 or slot in touched or holds.get(slot, st.gen[slot]) != st.gen[slot]:
            continue
        if foreign(fold, group, slot):
            why = "it belongs to another block table"
            faults.append(Fault("HKV601", Kind.FOREIGN, slot, (0, 0), why))
    return faults


def _runs(
    fold: Fold, group: Group, slots: Sequence[int], holds: dict[int, int]
) -> tuple[list[Run], bool]:
    """What the blocks hold, and whether any of them might hold more than is known."""
    st = fold.st
    held: list[Run] = []
    excused = False
    for slot in slots:
        if slot < 0:
            continue
        if not known(fold, slot):
            excused = True
            continue
        c = fold.component(slot, group)
        if st.cgen[c] != holds.get(slot, st.gen[slot]) or st.cid[c] <= 0:
            continue
        if st.vague[c]:
            excused = True
            continue
        for low, high in ((st.lo[c], st.hi[c]), (st.lo2[c], st.hi2[c])):
            if high > low:
                held.append(Run(low, high, slot))
    return held, excused


def _gaps(span: Span, held: Iterable[Run]) -> list[Span]:
    gaps: list[Span] = []
    at = span[0]
    for low, high, _ in sorted(held):
        if high <= at:
            continue
        if low >= span[1]:
            break
        if low > at:
            gaps.append((at, low))
        at = max(at, high)
    if at < span[1]:
        gaps.append((at, span[1]))
    return gaps


def _gap_fault(fold: Fold, group: Group, slots: Sequence[int], gap: Span, reader: int) -> Fault:
    """Whom to name for a hole in a window: the block that stands where the tokens should."""
    real = [s for s in slots if s >= 0]
    judged = [s for s in real if known(fold, s)]
    void = {s for s in real if not filled(fold, s, fold.component(s, group))}
    for slot in judged:
        whole = block_fault(fold, group, slot, gap, reader)
        if whole and whole.code in ("HKV105", "HKV601"):
            return whole
        if whole and whole.code in ("HKV103", "HKV305") and slot in void:
            return whole
    for slot in judged:
        if slot not in void and _partly(fold, group, slot, gap):
            c = fold.component(slot, group)
            code = "HKV101" if group.form == "swa" else MISSING_FORM[group.form]
            why = f"it holds tokens {fold.st.lo[c]} to {fold.st.hi[c]}"
            return Fault(code, Kind.SHORT, slot, gap, why, waiting=True)
    why = f"no block brought holds tokens {gap[0]} to {gap[1]}"
    named = real[-1] if real else -1
    return Fault(MISSING_FORM[group.form], Kind.ABSENT, named, gap, why, waiting=bool(void))


def _partly(fold: Fold, group: Group, slot: int, gap: Span) -> bool:
    """Whether the block is the one that should hold `gap`, and was written in part."""
    st = fold.st
    c = fold.component(slot, group)
    unit = group.block_tokens
    return bool(st.hi[c] > st.lo[c] and st.lo[c] // unit == gap[0] // unit)
