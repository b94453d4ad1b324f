"""What changed between a check and its use (701)."""

from __future__ import annotations

from hkvtool.state.arrays import FROM_STATE
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.reading import Read, reader_number
from hkvtool.state.requests import Seen
from hkvtool.state.scene import Scene
from hkvtool.state.serving import known


def changed_faults(scene: Scene, read: Read) -> list[Fault]:
    """701: the reader's own check saw the block in another generation or version."""
    st = scene.fold.st
    stated = read.event.get("gens") or ()
    checked = read.request.seen if read.request else {}
    faults: list[Fault] = []
    for i, slot in enumerate(read.slots):
        seen = checked.get(slot)
        if slot < 0 or (seen is None and i >= len(stated)) or not known(scene.fold, slot):
            continue
        holds = read.gens[i] if read.gens[i] >= 0 else st.gen[slot]
        if i < len(stated) and stated[i] != holds:
            why = f"it believes generation {stated[i]}, the block is at {holds}"
        elif seen is not None:
            why = _changed(scene, read, slot, seen, holds)
        else:
            why = ""
        if why:
            faults.append(Fault("HKV701", Kind.CHANGED, slot, read.spans[i] or (0, 0), why))
    return faults


def _changed(scene: Scene, read: Read, slot: int, seen: Seen, holds: int) -> str:
    """How the block is no longer what a check saw; empty where it is."""
    st = scene.fold.st
    # One that was described only after the check had named it is the same for all that is known.
    described_since = seen.generation == 0 and holds == 1 and st.known[slot] == FROM_STATE
    if seen.generation != holds and not described_since:
        return (
            f"the check at event {seen.pos} saw generation {seen.generation}; "
            f"event {st.alloc_pos[slot]} handed the block out again"
        )
    if seen.recovering or not _overwritten(scene, read, slot, seen.pos):
        return ""
    c = scene.fold.component(slot, read.group)
    return (
        f"event {st.cpos[c]} changed its content after the check at event {seen.pos} "
        f"had seen version {seen.version}"
    )


def _overwritten(scene: Scene, read: Read, slot: int, pos: int) -> bool:
    """Whether content that stood there at `pos` was overwritten, cleared or rejected since, by
    somebody else. Appending behind it is no change."""
    st = scene.fold.st
    c = scene.fold.component(slot, read.group)
    if st.cpos[c] <= pos:
        return False
    if st.cid[c] == 0:
        return True
    return bool(st.cgen[c] == st.gen[slot] and st.origin[c] != reader_number(scene, read.request))
