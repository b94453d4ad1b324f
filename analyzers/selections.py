"""304 of sparse routing: a selected entry must be live, written and causal."""

from __future__ import annotations

from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Span
from hkvtool.state.reading import reader_number
from hkvtool.state.serving import block_fault, known


class Selections(Silent):
    """Judges the entries that an indexer chose, against the blocks of the group it serves."""

    codes = frozenset({"HKV304"})
    kinds = frozenset({"select"})

    def before(self, event: Event) -> None:
        if event.ev != "select":
            return
        fold = self.ctx.fold
        index = fold.group(event["group"])
        request = self.ctx.request(event)
        if index is None or request is None or not self.ctx.tables_known(request):
            return
        served = fold.declared.served(index) or index
        slots = request.table(served.table_id)
        if not slots or any(not known(fold, s) for s in slots):
            return
        reader = reader_number(self.ctx, request)
        end = self._written_to(served, slots)
        for entry in event["entries"]:
            span = (entry * served.ratio, (entry + 1) * served.ratio)
            holder = next((s for s in slots if self._stands_in(served, s, span[0])), -1)
            why = self._fault(served, holder, span, end, reader)
            if why is None:
                continue
            self.ctx.report(
                "HKV304",
                f"sparse routing of request {request.name} selects what it may not read: "
                f"entry {entry}{why}",
                [event.pos],
                slots=[holder] if holder >= 0 else [],
                group=index,
                request=request.name,
                step=event.step,
                use=event.pos,
                tokens=(max(0, span[0]), max(0, span[1])),
            )
            return

    def _written_to(self, group: Group, slots: list[int]) -> int:
        st = self.ctx.fold.st
        shares = [(s, self.ctx.fold.component(s, group)) for s in slots]
        return max((st.hi[c] for s, c in shares if st.cgen[c] == st.gen[s]), default=0)

    def _stands_in(self, group: Group, slot: int, token: int) -> bool:
        start = self.ctx.fold.st.start[slot]
        return bool(start != MISSING and start <= token < start + group.block_tokens)

    def _fault(self, group: Group, holder: int, span: Span, end: int, reader: int) -> str | None:
        """Why an entry may not be read, in words that follow its number."""
        if span[0] < 0 or span[0] >= end:
            return f" lies beyond the {end} tokens written"
        if holder < 0:
            return " is in no block of the request"
        if self.ctx.fold.st.refs[holder] <= 0:
            return " lies in a block that is free"
        fault = block_fault(self.ctx.fold, group, holder, span, reader)
        return None if fault is None else f": {fault.why}"
