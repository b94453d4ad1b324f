"""7xx, first part: what changed between check and use, and what is addressed where."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.reading import Read, reader_number
from hkvtool.state.resume import Fault, known


def changed_faults(ctx: Context, read: Read) -> list[Fault]:
    """701: the reader's own check saw the block in another generation or version."""
    faults: list[Fault] = []
    st = ctx.fold.st
    stated = read.event.get("gens")
    for i, slot in enumerate(read.slots):
        if slot < 0 or not known(ctx.fold, slot):
            continue
        tokens = read.spans[i] or (0, 0)
        holds = read.gens[i] if read.gens[i] >= 0 else st.gen[slot]
        if stated is not None and i < len(stated) and stated[i] != holds:
            why = f"it believes generation {stated[i]}, the block is at {holds}"
            faults.append(Fault("HKV701", slot, tokens, why))
            continue
        seen = read.request.seen.get(slot) if read.request else None
        if seen is None:
            continue
        if seen.generation != holds:
            why = (
                f"the check at event {seen.pos} saw generation {seen.generation}; "
                f"event {st.alloc_pos[slot]} handed the block out again"
            )
            faults.append(Fault("HKV701", slot, tokens, why))
        elif changed_since(ctx, read, slot, seen.pos) and not seen.recovering:
            c = ctx.fold.component(slot, read.group)
            why = (
                f"event {st.cpos[c]} changed its content after the check at event {seen.pos} "
                f"had seen version {seen.version}"
            )
            faults.append(Fault("HKV701", slot, tokens, why))
    return faults


def changed_since(ctx: Context, read: Read, slot: int, pos: int) -> bool:
    """Whether content that stood there at `pos` was overwritten, cleared or rejected since, by
    somebody else. Appending behind it is no change."""
    st = ctx.fold.st
    c = ctx.fold.component(slot, read.group)
    if st.cpos[c] <= pos or st.cgen[c] != st.gen[slot]:
        return bool(st.cpos[c] > pos and st.cid[c] == 0)
    return bool(st.cid[c] == 0 or st.origin[c] != reader_number(ctx, read.request))
