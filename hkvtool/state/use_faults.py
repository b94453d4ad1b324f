"""Everything that is wrong with a use of cached blocks; which of it is the root is `faults`' to
say."""

from __future__ import annotations

from hkvtool.model.rows import MISSING
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.read_changes import changed_faults
from hkvtool.state.read_content import content_faults
from hkvtool.state.read_faults import arrived, form_faults, residency_faults, right_faults
from hkvtool.state.reading import Read
from hkvtool.state.resume import index_faults
from hkvtool.state.scene import Scene
from hkvtool.state.serving import known


def use_faults(scene: Scene, read: Read) -> list[Fault]:
    """Whose the blocks are, where their bytes lie, what they hold, what changed since the check,
    and by what right they are read."""
    faults = form_faults(scene, read)
    faults += residency_faults(scene, read)
    faults += arrived(scene, content_faults(scene, read), read.event.get("part"))
    faults += _index_faults(scene, read)
    faults += changed_faults(scene, read)
    faults += right_faults(scene, read)
    faults += _copied_form_faults(scene, read)
    return faults


def _copied_form_faults(scene: Scene, read: Read) -> list[Fault]:
    """601: the content came, by a copy, from a group of another form."""
    if not scene.moves.made_as:
        return []
    fold = scene.fold
    faults: list[Fault] = []
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or not known(fold, slot):
            continue
        form = scene.moves.made_as.get(fold.st.cid[fold.component(slot, read.group)])
        if form is not None and form != read.group.form:
            why = f"its content was copied from a group of form {form}"
            faults.append(Fault("HKV601", Kind.FOREIGN, slot, span or (0, 0), why))
    return faults


def _index_faults(scene: Scene, read: Read) -> list[Fault]:
    """304: rows whose KV version is not that of the data of the same tokens."""
    if read.group.form != "indexer":
        return []
    fold = scene.fold
    served = fold.declared.served(read.group)
    if served is None:
        return []
    ids = [fold.block_of[s] for s in read.slots if s >= 0]
    if served.table == read.group.table:
        return index_faults(fold, read.group, served, ids, ids)
    if read.request is None:
        return []
    sent = scene.dispatched.get(read.event.step or -1, read.event.pos)
    if any(pos > sent for pos in read.request.left.get(served.table_id, {}).values()):
        # The step was handed out with blocks that have left the table since: which ones, and
        # where they stood, cannot be told from what it holds now.
        return []
    table, start = read.request.table(served.table_id), fold.st.start
    if all(start[s] != MISSING for s in table):
        # A block that fills a gap is taken last and stands where its tokens are.
        table = sorted(table, key=lambda slot: start[slot])
    theirs = [fold.block_of[s] for s in table]
    if len(theirs) != len(ids):
        return []
    return index_faults(fold, read.group, served, ids, theirs)
