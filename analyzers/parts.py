"""101 of layers and shards: a part of a block that was not written where it is read."""

from __future__ import annotations

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.arrays import COMPONENTS
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.needs import pieces
from hkvtool.state.reading import whole_read
from hkvtool.state.serving import known


class Parts(Silent):
    """Remembers, for blocks that are written part by part, how far each part has come."""

    codes = frozenset({"HKV101"})
    kinds = frozenset({"use", "write"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.written: dict[tuple[int, int], dict[str, list[Span]]] = {}

    def before(self, event: Event) -> None:
        if event.ev == "use" and "part" in event:
            self._read(event)

    def forget(self, before: int) -> None:
        st = self.ctx.fold.st
        width = st.h[COMPONENTS]
        self.written = {
            (c, gen): parts for (c, gen), parts in self.written.items() if st.gen[c // width] == gen
        }

    def after(self, event: Event) -> None:
        group = self._group(event) if event.ev == "write" and "part" in event else None
        if group is not None:
            for slot, span in self._pieces(event, group):
                key = (self.ctx.fold.component(slot, group), self.ctx.fold.st.gen[slot])
                self.written.setdefault(key, {}).setdefault(str(event["part"]), []).append(span)

    def _group(self, event: Event) -> Group | None:
        """The group of an access that states its tokens; a state has no pieces."""
        group = self.ctx.fold.group(event["group"])
        if group is None or not event.get("tokens") or group.form == "recurrent":
            return None
        return group

    def _pieces(self, event: Event, group: Group) -> list[tuple[int, Span]]:
        """Slots of an access, with what each of them holds of its tokens."""
        slots = self.ctx.slots(event)
        low, high = event["tokens"]
        spans = pieces(group, len(slots), (low, high), high)
        return [(s, span) for s, span in zip(slots, spans, strict=True) if s >= 0]

    def _read(self, event: Event) -> None:
        """This part of a block was never written to where it is read, though others were."""
        group = self._group(event)
        if group is None:
            return
        fold = self.ctx.fold
        faults: list[Fault] = []
        for slot, (low, high) in self._pieces(event, group):
            parts = self.written.get((fold.component(slot, group), fold.st.gen[slot]))
            if not parts or not known(fold, slot):
                continue
            at = low
            for start, end in sorted(parts.get(str(event["part"]), [])):
                if start <= at:
                    at = max(at, end)
            if at < high:
                why = f"part {event['part']} was written to token {at} only"
                faults.append(Fault("HKV101", Kind.SHORT, slot, (at, high), why))
        slots = [f.slot for f in faults]
        settle(self.ctx, whole_read(event, group, self.ctx.request(event), slots), faults)
