"""7xx, first part: what changed between check and use, and what is addressed where."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.reading import Read
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
        if stated is not None and stated[i] != st.gen[slot] and read.gens[i] < 0:
            why = f"it believes generation {stated[i]}, the block is at {st.gen[slot]}"
            faults.append(Fault("HKV701", slot, tokens, why))
            continue
        seen = read.request.seen.get(slot) if read.request else None
        if seen is None or read.gens[i] == seen.generation:
            continue
        if seen.generation != st.gen[slot] and read.gens[i] < 0:
            why = (
                f"the check at event {seen.pos} saw generation {seen.generation}; "
                f"event {st.alloc_pos[slot]} handed the block out again"
            )
            faults.append(Fault("HKV701", slot, tokens, why))
    return faults
