"""101 and 103 of stores: what is sent to a lower tier must be there when the store begins."""

from __future__ import annotations

from typing import NamedTuple

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.blocks import generation
from hkvtool.state.content import covers
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.needs import pieces
from hkvtool.state.reading import reader_number, whole_read
from hkvtool.state.serving import block_fault, hashed, known

_WRITES = frozenset({"write", "seal", "index", "load_end", "copy"})


class Early(NamedTuple):
    """A store of a block that lacks something, which a write might still have been ahead of."""

    store: Event
    group: Group
    generation: int
    fault: Fault


class Stores(Silent):
    """Judges stores at their begin; of those that came too early, when it shows how early."""

    codes = frozenset({"HKV101", "HKV103"})
    kinds = frozenset(
        {"store_begin", "alloc", "zero", "write", "seal", "index", "load_end", "copy"}
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.early: dict[int, Early] = {}

    def before(self, event: Event) -> None:
        if event.ev == "store_begin":
            self._begin(event)
        elif self.early and event.ev in ("alloc", "zero"):
            for slot in self.ctx.slots(event):
                self._never_filled(slot)

    def after(self, event: Event) -> None:
        if self.early and event.ev in _WRITES:
            for slot in list(self.early):
                self._filled_late(slot, event)

    def finish(self) -> None:
        for slot in list(self.early):
            self._never_filled(slot)

    def _begin(self, event: Event) -> None:
        ctx = self.ctx
        group = ctx.fold.group(event["group"])
        if group is None:
            return
        slots = ctx.slots(event)
        request = ctx.request(event)
        reader = reader_number(ctx, request)
        tokens = event.get("tokens")
        stated = pieces(group, len(slots), tuple(tokens), tokens[1]) if tokens else None
        faults: list[Fault] = []
        for i, slot in enumerate(slots):
            if slot < 0 or not known(ctx.fold, slot):
                continue
            span = stated[i] if stated else self._taken(group, slot)
            held = generation(ctx.fold.st, slot, MISSING if event.step is None else event.step)
            if held != ctx.fold.st.gen[slot]:
                fault = self._left(group, slot, span, held)
            else:
                fault = self._fault(group, slot, span, reader)
            if fault is None:
                continue
            if fault.kind in (Kind.EMPTY, Kind.SHORT):
                self.early[slot] = Early(event, group, ctx.fold.st.gen[slot], fault)
            else:
                faults.append(fault)
        settle(ctx, whole_read(event, group, request, slots), faults)

    def _taken(self, group: Group, slot: int) -> Span:
        """A store that states no tokens takes a block of history for complete, a state for
        written and a window block for what it holds."""
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, group)
        if group.form == "recurrent":
            return (st.hi[c] - 1, st.hi[c])
        if group.form not in ("compressed", "indexer"):
            return (st.lo[c], max(st.hi[c], st.lo[c] + 1))
        low = st.lo[c] - st.lo[c] % group.block_tokens
        if st.cgen[c] != st.gen[slot] and st.start[slot] != MISSING:
            low = st.start[slot]
        return (low, low + group.block_tokens)

    def _left(self, group: Group, slot: int, span: Span, held: int) -> Fault | None:
        """A store that follows its step while the block has been given away: what the step left
        must still be there."""
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, group)
        if covers(st, c, held, span[0], span[1], group.block_tokens):
            return None
        why = "the block was given away, and what it held was cleared or overwritten before"
        return Fault("HKV105", Kind.REWRITTEN, slot, span, why)

    def _fault(self, group: Group, slot: int, span: Span, reader: int) -> Fault | None:
        st = self.ctx.fold.st
        if st.loads[slot] > 0:
            why = "the load that fills it has not ended"
            return Fault("HKV103", Kind.LOADING, slot, span, why)
        if st.owner[slot] != reader and not hashed(self.ctx.fold, group, slot):
            # Whoever holds it may store it: without a hash there is no older content to reach.
            reader = st.owner[slot]
        return block_fault(self.ctx.fold, group, slot, span, reader)

    def _filled_late(self, slot: int, event: Event) -> None:
        """The block of an early store is written now: too late for the store."""
        early = self.early[slot]
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, early.group)
        if st.gen[slot] != early.generation or st.wpos[c] != event.pos:
            return
        del self.early[slot]
        fault = early.fault
        code = "HKV101" if fault.code == "HKV101" and fault.kind is Kind.SHORT else "HKV103"
        why = f"the write that fills it comes at event {event.pos}, after the store began"
        self._tell(early, Fault(code, Kind.LATE, slot, fault.tokens, why))

    def _never_filled(self, slot: int) -> None:
        early = self.early.pop(slot, None)
        if early is not None:
            self._tell(early, early.fault)

    def _tell(self, early: Early, fault: Fault) -> None:
        store, group = early.store, early.group
        block = self.ctx.fold.block_of[fault.slot]
        low, high = fault.tokens
        self.ctx.report(
            fault.code,
            f"transfer {store['handle']} stores block {block} of group {group.name} as tokens "
            f"{low} to {high}, but {fault.why}",
            [store.pos],
            slots=[fault.slot],
            group=group,
            request=store.req,
            use=store.pos,
            tokens=fault.tokens,
            believed={"complete": True},
            actual=self.ctx.describe(fault.slot, group),
        )
