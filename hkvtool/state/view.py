"""The article's record of one block, read off the fold."""

from __future__ import annotations

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.forms import Form
from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold
from hkvtool.state.serving import block_fault, filled, known, live_entries


def block_state(fold: Fold, group: Group, block: int) -> CacheBlockState | None:
    """The record of one block as the fold stands, or None where no event has named it."""
    slot = fold.find(group.pool, block)
    if slot is None:
        return None
    st = fold.st
    c = fold.component(slot, group)
    current = filled(fold, slot, c)
    recovering = st.loads[slot] > 0
    residency = group.pool.medium if group.pool.tier else "resident"
    if recovering:
        residency = "recovering"
    fault = block_fault(fold, group, slot, None)
    why = fault.code if fault else None
    if why is None and group.pool.tier:
        why = "HKV305"
    entry = next(live_entries(fold, slot), None)
    owner = st.owner[slot]
    return CacheBlockState(
        block_id=block,
        form=Form.ON_DISK if recovering or group.pool.tier else Form(group.form),
        version=int(st.ver[c]) if current else 0,
        recoverable=why is None and current,
        last_touch=int(st.touch[slot]),
        pool=group.pool.name,
        group=group.name,
        generation=int(st.gen[slot]),
        ref_count=int(st.refs[slot]),
        tokens=_tokens(fold, group, slot, c),
        written=int(st.hi[c] - st.lo[c] + st.hi2[c] - st.lo2[c]) if current else 0,
        published=None if entry is None else str(fold.names.name("hash", st.e_hash[entry])),
        residency=residency,
        owner=None if owner < 0 else str(fold.names.name("req", owner)),
        pins=int(st.pins[slot]),
        why_not=why,
        uncertain=not known(fold, slot),
    )


def _tokens(fold: Fold, group: Group, slot: int, c: int) -> tuple[int, int] | None:
    """What the block holds, or else what it was allocated for."""
    st = fold.st
    if filled(fold, slot, c) and st.hi[c] > st.lo[c]:
        return (int(st.lo[c]), int(st.hi[c]))
    start = int(st.start[slot])
    return None if start == MISSING else (start, start + group.block_tokens)
