"""Every use of cached blocks, asked of every family that has something to say about a read."""

from __future__ import annotations

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.components import report_left_behind
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.migration import is_brought, unmigrated
from hkvtool.analyzers.toctou import changed_faults
from hkvtool.model.event import Event
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.read_content import content_faults
from hkvtool.state.read_faults import arrived, form_faults, residency_faults, right_faults
from hkvtool.state.reading import Read, brought, read_of_use
from hkvtool.state.resume import index_faults
from hkvtool.state.serving import known


class Uses(Silent):
    """Judges reads; which of a read's faults is its root is `attribution`'s to say."""

    codes = frozenset({"HKV701"})

    def before(self, event: Event) -> None:
        if event.ev != "use" or event.get("pad"):
            return
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        read = read_of_use(self.ctx, event, group)
        faults = form_faults(self.ctx, read)
        faults += residency_faults(self.ctx, read)
        faults += arrived(self.ctx, content_faults(self.ctx, read), event.get("part"))
        faults += _index_faults(self.ctx, read)
        faults += changed_faults(self.ctx, read)
        faults += right_faults(self.ctx, read)
        faults += _copied_form_faults(self.ctx, read)
        if not faults:
            return
        faults = _of_migration(self.ctx, read, faults)
        report_left_behind(self.ctx, read, faults)
        settle(self.ctx, read, faults)


def _of_migration(ctx: Context, read: Read, faults: list[Fault]) -> list[Fault]:
    """The same faults, where a load was to bring the block as what became of that load."""
    resumed: set[int] = set()
    if read.resume is not None and read.request is not None:
        if is_brought(ctx, read.request, read.group, read.route):
            ids = brought(ctx, read.resume, read.group) or []
            resumed = {ctx.fold.slot(read.group.pool, b) for b in ids}
    out: list[Fault] = []
    for fault in faults:
        if fault.slot in resumed:
            fault = unmigrated(ctx, fault)
        elif fault.slot >= 0 and ctx.moves.load(fault.slot) is not None:
            fault = unmigrated(ctx, fault, "HKV603" if read.resume is None else "HKV305")
        # Without a resume nothing was decided about a load: it is read unreadable (603).
        if fault.code != "HKV305" or read.resume is not None:
            out.append(fault)
    return out


def _copied_form_faults(ctx: Context, read: Read) -> list[Fault]:
    """601: the content came, by a copy, from a group of another form."""
    if not ctx.moves.made_as:
        return []
    fold = ctx.fold
    faults: list[Fault] = []
    for slot, span in zip(read.slots, read.spans, strict=True):
        if slot < 0 or not known(fold, slot):
            continue
        form = ctx.moves.made_as.get(fold.st.cid[fold.component(slot, read.group)])
        if form is not None and form != read.group.form:
            why = f"its content was copied from a group of form {form}"
            faults.append(Fault("HKV601", Kind.FOREIGN, slot, span or (0, 0), why))
    return faults


def _index_faults(ctx: Context, read: Read) -> list[Fault]:
    """304: rows whose KV version is not that of the data of the same tokens."""
    if read.group.form != "indexer":
        return []
    fold = ctx.fold
    served = fold.declared.served(read.group)
    if served is None:
        return []
    ids = [fold.block_of[s] for s in read.slots if s >= 0]
    if served.table == read.group.table:
        return index_faults(fold, read.group, served, ids, ids)
    if read.request is None:
        return []
    theirs = [fold.block_of[s] for s in read.request.table(served.table_id)]
    if len(theirs) != len(ids):
        return []
    return index_faults(fold, read.group, served, ids, theirs)
