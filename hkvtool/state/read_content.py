"""What a read finds missing in the content of its blocks."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned
from hkvtool.state.reading import Read, reader_number
from hkvtool.state.resume import absent
from hkvtool.state.scene import Scene
from hkvtool.state.serving import block_fault
from hkvtool.state.windows import window_faults


def content_faults(scene: Scene, read: Read) -> list[Fault]:
    """What a read finds missing in the content of its blocks (101, 102, 103, 105 and, for the
    forms that have a code of their own, that code)."""
    group = read.group
    reader = reader_number(scene, read.request)
    stated = read.event.get("tokens") if any(read.spans) else None
    if group.form in ("swa", "tail") and stated:
        window = (_behind_nulls(scene, read, stated), stated[1])
        return window_faults(scene.fold, group, _real(scene, read), [window], reader, read.gens)
    faults: list[Fault] = []
    if stated and group.form in ("compressed", "indexer"):
        first = aligned(group, len(read.slots), stated[1])
        if stated[0] < min(first, stated[1]):
            faults.append(absent(group, (stated[0], min(first, stated[1]))))
    last = len(read.slots) - 1
    for i, slot in enumerate(read.slots):
        if slot < 0 or scene.fold.block_of[slot] in group.pool.reserved:
            continue
        span = read.spans[i]
        if span is None:
            span = _whole_or_written(scene.fold, group, slot, read.gens[i], whole=i < last)
        elif span[0] >= span[1]:
            continue
        fault = block_fault(scene.fold, group, slot, span, reader, read.gens[i])
        if fault is not None and fault.kind is not Kind.FOREIGN:
            faults.append(fault)
    return faults


def _behind_nulls(scene: Scene, read: Read, tokens: Sequence[int]) -> int:
    """First token that is really read: entries of a window's list that are null are not."""
    real = _real(scene, read)
    nulls = next((i for i, s in enumerate(real) if s >= 0), 0)
    if nulls == 0:
        return tokens[0]
    first = aligned(read.group, len(real), tokens[1]) + nulls * read.group.block_tokens
    return max(tokens[0], min(first, tokens[1]))


def _real(scene: Scene, read: Read) -> list[int]:
    reserved = read.group.pool.reserved
    return [-1 if s >= 0 and scene.fold.block_of[s] in reserved else s for s in read.slots]


def _whole_or_written(fold: Fold, group: Group, slot: int, gen: int, *, whole: bool) -> Span:
    """Tokens read where the event does not say: all that is written, but of full history every
    block before the last is read whole. A block with nothing written is read from its start."""
    st = fold.st
    c = fold.component(slot, group)
    if group.form == "recurrent":
        return (st.hi[c] - 1, st.hi[c])
    low, high = st.lo[c], st.hi[c]
    unit = group.block_tokens
    if st.cgen[c] != (gen if gen >= 0 else st.gen[slot]) or high <= low:
        low = st.start[slot] if st.start[slot] != MISSING else 0
        return (low, low + 1)
    if whole and group.form == "compressed":
        return (low - low % unit, low - low % unit + unit)
    return (low, high)
