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
from hkvtool.model.rows import MISSING
from hkvtool.model.rules import Severity
from hkvtool.state.arrays import PENDING
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned, pieces
from hkvtool.state.reading import Read, reader_number, whole_read
from hkvtool.state.resume import absent
from hkvtool.state.serving import block_fault, known, live_entries, stale_hash
from hkvtool.state.windows import window_faults


def content_faults(ctx: Context, read: Read) -> list[Fault]:
    """What a read finds missing in the content of its blocks (101, 102, 103, 105 and, for the
    forms that have a code of their own, that code)."""
    group = read.group
    reader = reader_number(ctx, read.request)
    stated = read.event.get("tokens") if any(read.spans) else None
    if group.form in ("swa", "tail") and stated:
        window = (_behind_nulls(ctx, read, stated), stated[1])
        return window_faults(ctx.fold, group, _real(ctx, read), [window], reader, read.gens)
    faults: list[Fault] = []
    if stated and group.form in ("compressed", "indexer"):
        first = aligned(group, len(read.slots), stated[1])
        if stated[0] < min(first, stated[1]):
            faults.append(absent(group, (stated[0], min(first, stated[1]))))
    last = len(read.slots) - 1
    for i, slot in enumerate(read.slots):
        if slot < 0 or ctx.fold.block_of[slot] in group.pool.reserved:
            continue
        span = read.spans[i]
        if span is None:
            span = _whole_or_written(ctx.fold, group, slot, read.gens[i], whole=i < last)
        elif span[0] >= span[1]:
            continue
        fault = block_fault(ctx.fold, group, slot, span, reader, read.gens[i])
        if fault is not None and fault.kind is not Kind.FOREIGN:
            faults.append(fault)
    return faults


def _behind_nulls(ctx: Context, read: Read, tokens: Sequence[int]) -> int:
    """First token that is really read: entries of a window's list that are null are not."""
    real = _real(ctx, read)
    nulls = next((i for i, s in enumerate(real) if s >= 0), 0)
    if nulls == 0:
        return tokens[0]
    first = aligned(read.group, len(real), tokens[1]) + nulls * read.group.block_tokens
    return max(tokens[0], min(first, tokens[1]))


def _real(ctx: Context, read: Read) -> list[int]:
    reserved = read.group.pool.reserved
    return [-1 if s >= 0 and ctx.fold.block_of[s] in reserved else s for s in read.slots]


def _whole_or_written(fold: Fold, group: Group, slot: int, gen: int, *, whole: bool) -> Span:
    """Tokens read where the event does not say: all that is written, but of full history every
    block before the last is read whole. A block with nothing written is read from its start."""
    st = fold.st
    c = fold.component(slot, group)
    if group.form == "recurrent":
        return (st.hi[c] - 1, st.hi[c])
    low, high = st.lo[c], st.hi[c]
    unit = group.block_tokens
    if st.cgen[c] != (gen if gen >= 0 else st.gen[slot]) or high <= low:
        low = st.start[slot] if st.start[slot] != MISSING else 0
        return (low, low + 1)
    if whole and group.form == "compressed":
        return (low - low % unit, low - low % unit + unit)
    return (low, high)


def promised(fold: Fold, group: Group, slot: int) -> bool:
    """Whether the write that fills a published block is still to come."""
    return bool(fold.st.pver[fold.component(slot, group)] == PENDING)


class WholeBlock(Silent):
    """Lookups and announcements; uses and resumes are judged as reads."""

    codes = frozenset({"HKV101", "HKV102", "HKV103", "HKV105"})

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
