"""1xx: whole-block validation. A block counts as a hit only if all of it is there, written
before it is read, of the right generation.

Its parts: `stores` (what leaves for a lower tier), `parts` (layers and shards), `keys` (104).
"""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.context import MAX_EVENTS, Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state.arrays import PENDING
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.fold import Fold
from hkvtool.state.needs import pieces
from hkvtool.state.reading import reader_number, whole_read
from hkvtool.state.serving import block_fault, known, live_entries, stale_hash


def promised(fold: Fold, group: Group, slot: int) -> bool:
    """Whether the write that fills a published block is still to come."""
    return bool(fold.st.pver[fold.component(slot, group)] == PENDING)


class WholeBlock(Silent):
    """Lookups and announcements; uses and resumes are judged as reads."""

    codes = frozenset({"HKV101", "HKV102", "HKV103", "HKV105"})
    kinds = frozenset({"lookup", "wire"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.ahead: dict[str, Finding] = {}

    def before(self, event: Event) -> None:
        if event.ev == "lookup":
            self._lookup(event)
        elif event.ev == "wire" and event["kind"] == "stored":
            self._announced(event)

    # --- lookups ---------------------------------------------------------------------------

    def _lookup(self, event: Event) -> None:
        for name, tokens in event["hit"].items():
            group = self.ctx.fold.group(name)
            blocks = (event.get("blocks") or {}).get(name)
            if group is None or not blocks or tokens <= 0:
                continue
            slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
            named = (event.get("hashes") or {}).get(name) or ()
            self._wrong_hits(event, group, slots, tokens, named)

    def _wrong_hits(
        self, event: Event, group: Group, slots: list[int], tokens: int,
        named: Sequence[str | int],
    ) -> None:  # fmt: skip
        fold = self.ctx.fold
        request = self.ctx.request(event)
        reader = reader_number(self.ctx, request)
        faults: list[Fault] = []
        spans = pieces(group, len(slots), (0, tokens), tokens)
        if fold.surely_serve(group, slots, spans, reader):
            return
        for i, (slot, span) in enumerate(zip(slots, spans, strict=True)):
            if slot < 0 or not known(fold, slot):
                continue
            if i < len(named):
                stale = self._leads_to_older(slot, named[i])
            else:
                stale = stale_hash(fold, group, slot)
            if stale:
                why = "its hash was published for an earlier content"
                faults.append(Fault("HKV105", Kind.STALE_HASH, slot, span, why))
                continue
            fault = block_fault(fold, group, slot, span, reader)
            if fault is not None and (fault.code == "HKV105" or self._taken_whole(group, fault)):
                faults.append(fault)
        settle(self.ctx, whole_read(event, group, request, slots), faults)

    def _taken_whole(self, group: Group, fault: Fault) -> bool:
        """Whether the hit takes history for complete that is not, and no write will make it so."""
        fold = self.ctx.fold
        if fault.code != "HKV101" or group.form != "compressed":
            return False
        return fold.st.live[fault.slot] > 0 and not promised(fold, group, fault.slot)

    def _leads_to_older(self, slot: int, name: str | int) -> bool:
        """Whether this very hash was published for another generation of the block."""
        st = self.ctx.fold.st
        number = self.ctx.fold.names.find("hash", name)
        gens = [
            st.e_gen[e] for e in live_entries(self.ctx.fold, slot) if st.e_hash[e] == number
        ]  # fmt: skip
        return bool(gens) and st.gen[slot] not in gens

    # --- announcements ---------------------------------------------------------------------

    def _announced(self, event: Event) -> None:
        """A KV event tells the world of a block that is not written yet: a hazard."""
        fold = self.ctx.fold
        group = fold.group(event.get("group"))
        if group is None or event.get("lane") == "recv":
            return
        early = self._not_written(event, group)
        if not early:
            return
        held = self.ahead.get(group.name)
        if held is not None:
            # The engine's habit, not one fault after the other: told once a group.
            if len(held.events) < MAX_EVENTS:
                held.events.append(event.pos)
            return
        found = self.ctx.report(
            "HKV103",
            f"KV events announce blocks of group {group.name} that are not written yet",
            [event.pos],
            group=group,
            use=event.pos,
            severity=Severity.WARNING,
            blocks=[fold.block_of[s] for s in early],
            pool=group.pool.name,
        )
        if found is not None:
            self.ahead[group.name] = found

    def _not_written(self, event: Event, group: Group) -> list[int]:
        fold = self.ctx.fold
        st = fold.st
        early: list[int] = []
        for name in event.get("hashes") or ():
            number = fold.names.find("hash", name)
            entry = st.first_of_hash[number] if number >= 0 else -1
            while entry >= 0:
                slot = st.e_slot[entry]
                if st.e_live[entry] == 1 and st.e_table[entry] == group.table_id:
                    if known(fold, slot) and promised(fold, group, slot):
                        early.append(slot)
                entry = st.e_next_hash[entry]
        return early
