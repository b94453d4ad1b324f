"""What is wrong with a read other than the content of its blocks: whose they are, where their bytes
lie, and by what right they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.reading import Read
from hkvtool.state.scene import Scene
from hkvtool.state.serving import foreign, known


def same_rows(one: Group, other: Group) -> bool:
    """Whether bytes of one group are harmless as leftovers under another's.

    Layouts decide where both are stated: windows and history then hold the same plain rows,
    which a mask hides. Where nothing is stated, a change of form is a change.
    """
    mine, theirs = one.layout, other.layout
    told = [k for k in ("dtype", "codec", "row_bytes") if k in mine and k in theirs]
    plain = {"compressed", "swa"}
    alike = one.form == other.form or (one.form in plain and other.form in plain)
    if told:
        return alike and all(mine[k] == theirs[k] for k in told)
    return one.form == other.form


def form_faults(scene: Scene, read: Read) -> list[Fault]:
    """601 and 604: the block is of another table, or dirty with another form's bytes."""
    faults: list[Fault] = []
    st, group = scene.fold.st, read.group
    groups = list(scene.fold.declared.groups.values())
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or (st.table[slot] == group.table_id and st.dirt[slot] < 0):
            continue
        if scene.fold.block_of[slot] in group.pool.reserved:
            continue
        if scene.meant(slot, read.event.step) != st.gen[slot]:
            continue
        if foreign(scene.fold, group, slot):
            owner = next((g for g in groups if g.table_id == st.table[slot]), None)
            why = "it was allocated for a block table that no group has any more"
            if owner is not None:
                why = f"it was allocated for group {owner.name} (form {owner.form})"
            faults.append(Fault("HKV601", Kind.FOREIGN, slot, span or (0, 0), why))
        elif _dirty(scene, group, slot, groups):
            why = (
                f"it still holds bytes of group {groups[st.dirt[slot]].name} behind what was "
                "written, and was not zeroed"
            )
            faults.append(Fault("HKV604", Kind.DIRTY, slot, span or (0, 0), why))
    return faults


def _dirty(scene: Scene, group: Group, slot: int, groups: Sequence[Group]) -> bool:
    """Whether a block of the group's table holds leftovers that are no rows of the group."""
    st = scene.fold.st
    # Leftovers lie in places, and a moved block's place held another block before.
    if st.dirt[slot] < 0 or group.pool.map or not known(scene.fold, slot):
        return False
    return st.table[slot] == group.table_id and not same_rows(groups[st.dirt[slot]], group)


def residency_faults(scene: Scene, read: Read) -> list[Fault]:
    """305 and 603 (803 under a graph): the block is on a lower tier, or on its way back."""
    faults: list[Fault] = []
    st, tier = scene.fold.st, read.group.pool.tier
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or not (tier or st.loads[slot] > 0) or not known(scene.fold, slot):
            continue
        tokens = span or (0, 0)
        if st.loads[slot] > 0 and scene.meant(slot, read.event.step) == st.gen[slot]:
            if part_is_in(scene, slot, read.event.get("part")):
                continue
            if graph_of(scene, read.event) is not None:
                why = "a transfer into it is under way while a captured graph reads it"
                faults.append(Fault("HKV803", Kind.LOADING, slot, tokens, why))
            elif read.resume is not None and read.resume.pos < read.event.pos:
                why = "its load has not ended"
                faults.append(Fault("HKV305", Kind.LOADING, slot, tokens, why))
            else:
                why = "it is recovering: unreadable"
                faults.append(Fault("HKV603", Kind.LOADING, slot, tokens, why))
        elif tier:
            why = f"its bytes are on {read.group.pool.medium} only"
            faults.append(Fault("HKV603", Kind.LOWER_TIER, slot, tokens, why))
    return faults


def graph_of(scene: Scene, event: Event) -> int | None:
    """The launch, or the capture with its warm-up, that an access belongs to."""
    if event.step is not None:
        return scene.launched.get(event.step)
    return scene.capturing.get(event.actor)


def part_is_in(scene: Scene, slot: int, part: object) -> bool:
    """Whether the part of the block that is read has arrived, other parts being under way."""
    if part is None:
        return False
    block, pool = scene.fold.block_of[slot], scene.fold.pool_of(slot)
    waiting = [
        t.begin.get("part")
        for t in scene.moves.running.values()
        if t.begin.ev == "load_begin" and t.group.pool is pool and block in t.begin["blocks"]
    ]
    return bool(waiting) and part not in waiting and None not in waiting


def arrived(scene: Scene, faults: Iterable[Fault], part: object) -> list[Fault]:
    """Faults of a reader of one part: that other parts are still being loaded is none."""
    return [
        f for f in faults
        if f.code != "HKV305" or f.slot < 0 or not part_is_in(scene, f.slot, part)
    ]  # fmt: skip


def right_faults(scene: Scene, read: Read) -> list[Fault]:
    """704: the step was dispatched with a block that was then free, or only another request's."""
    request, step = read.request, read.event.step
    if request is None or step is None or step not in scene.dispatched:
        return []
    st = scene.fold.st
    faults: list[Fault] = []
    for i, slot in enumerate(read.slots):
        if slot < 0 or read.gens[i] >= 0 or not known(scene.fold, slot):
            continue
        if scene.fold.block_of[slot] in read.group.pool.reserved or st.known[slot] != a.ALLOCATED:
            continue
        others = [n for n in scene.requests.holders.get(slot, {}) if n != request.name]
        tokens = read.spans[i] or (0, 0)
        if st.refs[slot] <= 0 and 0 <= st.free_pos[slot] < scene.dispatched[step]:
            why = f"it was free when the step was dispatched (freed at event {st.free_pos[slot]})"
            faults.append(Fault("HKV704", Kind.NO_RIGHT, slot, tokens, why))
        elif others and st.alloc_pos[slot] < scene.dispatched[step]:
            why = f"request {others[0]} holds it and this one does not"
            faults.append(Fault("HKV704", Kind.NO_RIGHT, slot, tokens, why))
    return faults
