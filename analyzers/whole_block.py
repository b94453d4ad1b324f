"""1xx: whole-block validation. A block counts as a hit only if all of it is there, written
before it is read, of the right generation, under a key that holds every input."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.analyzers.context import MAX_EVENTS, Context, Silent
from hkvtool.analyzers.reading import Read, reader_number, settle, shown
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rows import MISSING
from hkvtool.model.rules import Severity
from hkvtool.state.declarations import Group
from hkvtool.state.requests import Request
from hkvtool.state.resume import (
    Fault,
    aligned,
    block_fault,
    hashed,
    known,
    never_written,
    stale_hash,
    window_faults,
)


def content_faults(ctx: Context, read: Read) -> list[Fault]:
    """What a read finds missing in the content of its blocks (101, 102, 103, 105 and, for the
    forms that have a code of their own, that code)."""
    group = read.group
    reader = reader_number(ctx, read.request)
    stated = any(span is not None for span in read.spans)
    faults: list[Fault] = []
    if group.form in ("swa", "tail") and stated:
        tokens = read.event["tokens"]
        window = (_behind_nulls(ctx, read, tokens), tokens[1])
        return window_faults(ctx.fold, group, _real(ctx, read), [window], reader, read.gens)
    if stated and group.form in ("compressed", "indexer"):
        tokens = read.event["tokens"]
        first = aligned(group, len(read.slots), tokens[1]) if read.slots else tokens[1]
        if tokens[0] < first and tokens[0] < tokens[1]:
            code = "HKV102" if group.form == "compressed" else "HKV304"
            why = f"no block holds tokens {tokens[0]} to {min(first, tokens[1])}"
            faults.append(Fault(code, -1, (tokens[0], min(first, tokens[1])), why))
    last = len(read.slots) - 1
    for i, slot in enumerate(read.slots):
        if slot < 0 or ctx.fold.block_of[slot] in group.pool.reserved:
            continue
        stated_span = read.spans[i]
        gen = read.gens[i] if read.gens[i] >= 0 else ctx.fold.st.gen[slot]
        if stated_span is not None and stated_span[0] >= stated_span[1]:
            continue
        span = stated_span or _whole_or_written(ctx, group, slot, gen, whole=i < last)
        fault = block_fault(ctx.fold, group, slot, span, reader, read.gens[i])
        if fault is not None and fault.code != "HKV601":
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


def _whole_or_written(
    ctx: Context, group: Group, slot: int, gen: int, *, whole: bool
) -> tuple[int, int]:
    """Tokens read where the event does not say: all that is written, but of full history every
    block before the last is read whole. A block with nothing written is read from its start."""
    st = ctx.fold.st
    c = ctx.fold.component(slot, group)
    if group.form == "recurrent":
        return (st.hi[c] - 1, st.hi[c])
    low, high = st.lo[c], st.hi[c]
    unit = group.block_tokens
    if st.cgen[c] != gen or high <= low:
        low = st.start[slot] if st.start[slot] != MISSING else 0
        return (low, low + 1)
    if whole and group.form == "compressed":
        return (low - low % unit, low - low % unit + unit)
    return (low, high)


class WholeBlock(Silent):
    """Lookups, stores and keys; uses and resumes are judged as reads."""

    codes = frozenset({"HKV101", "HKV102", "HKV103", "HKV104", "HKV105"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.ahead: dict[str, Finding] = {}
        self.keys: dict[tuple[str, str], tuple[Event, int]] = {}
        self.block_keys: dict[int, tuple[Event, int]] = {}
        self.early_stores: dict[int, tuple[Event, int, Fault]] = {}
        self.parts: dict[tuple[int, int], dict[str, list[tuple[int, int]]]] = {}

    def before(self, event: Event) -> None:
        if event.ev == "lookup":
            self._lookup(event)
        elif event.ev == "store_begin":
            self._store(event)
        elif event.ev == "publish":
            self._publish(event)
        elif event.ev == "load_begin":
            self._asked_for(event)
        elif event.ev == "use" and "part" in event:
            self._part_read(event)
        elif event.ev == "wire" and event["kind"] == "stored":
            self._announced(event)
        if self.early_stores and event.ev in ("alloc", "zero"):
            for slot in self.ctx.slots(event):
                self._never_filled(slot)

    def after(self, event: Event) -> None:
        if event.ev == "write" and "part" in event:
            self._part_written(event)
        if self.early_stores and event.ev in ("write", "seal", "index", "load_end", "copy"):
            for slot in list(self.early_stores):
                self._filled_late(slot, event)

    def finish(self) -> None:
        for slot in list(self.early_stores):
            self._never_filled(slot)

    # --- parts -----------------------------------------------------------------------------

    def _pieces(self, event: Event) -> list[tuple[int, tuple[int, int]]]:
        """Slots of an access that states its tokens, with what each of them holds of those."""
        group = self.ctx.fold.group(event["group"])
        tokens = event.get("tokens")
        if group is None or not tokens or group.form == "recurrent":
            return []
        unit = group.block_tokens
        slots = self.ctx.slots(event)
        first = aligned(group, len(slots), tokens[1])
        return [
            (s, (max(tokens[0], first + i * unit), min(tokens[1], first + (i + 1) * unit)))
            for i, s in enumerate(slots) if s >= 0
        ]  # fmt: skip

    def _part_written(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        for slot, (low, high) in self._pieces(event):
            assert group is not None
            c = self.ctx.fold.component(slot, group)
            parts = self.parts.setdefault((c, self.ctx.fold.st.gen[slot]), {})
            parts.setdefault(str(event["part"]), []).append((low, high))

    def _part_read(self, event: Event) -> None:
        """101: this part of a block was never written to where it is read, though others were."""
        group = self.ctx.fold.group(event["group"])
        faults: list[Fault] = []
        for slot, (low, high) in self._pieces(event):
            assert group is not None
            c = self.ctx.fold.component(slot, group)
            parts = self.parts.get((c, self.ctx.fold.st.gen[slot]))
            if not parts or not known(self.ctx.fold, slot):
                continue
            at = low
            for a, b in sorted(parts.get(str(event["part"]), [])):
                if a <= at:
                    at = max(at, b)
            if at < high:
                why = f"part {event['part']} was written to token {at} only"
                faults.append(Fault("HKV101", slot, (at, high), why))
        if faults and group is not None:
            slots = [f.slot for f in faults]
            read = Read(event, group, self.ctx.request(event), slots, [None] * len(slots),
                        [-1] * len(slots))  # fmt: skip
            settle(self.ctx, read, faults)

    # --- lookups ---------------------------------------------------------------------------

    def _lookup(self, event: Event) -> None:
        for name, tokens in event["hit"].items():
            group = self.ctx.fold.group(name)
            blocks = (event.get("blocks") or {}).get(name)
            if group is None or not blocks or tokens <= 0:
                continue
            request = self.ctx.request(event)
            slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
            named = (event.get("hashes") or {}).get(name)
            self._wrong_hits(event, group, request, slots, tokens, named)
            self._wrong_inputs(event, group, slots)

    def _wrong_hits(
        self, event: Event, group: Group, request: Request | None, slots: list[int],
        tokens: int, named: Sequence[str | int] | None,
    ) -> None:  # fmt: skip
        ctx = self.ctx
        unit = group.block_tokens
        first = aligned(group, len(slots), tokens)
        reader = reader_number(ctx, request)
        faults: list[Fault] = []
        for i, slot in enumerate(slots):
            if slot < 0 or not known(ctx.fold, slot):
                continue
            span = (max(0, first + i * unit), min(tokens, first + (i + 1) * unit))
            stale = stale_hash(ctx.fold, group, slot)
            if named is not None and i < len(named):
                stale = self._leads_to_older(group, slot, named[i])
            if stale:
                why = "its hash was published for an earlier content"
                faults.append(Fault("HKV105", slot, span, why))
                continue
            fault = block_fault(ctx.fold, group, slot, span, reader)
            if fault is not None and fault.code == "HKV105":
                faults.append(fault)
            elif fault is not None and fault.code == "HKV101" and not self._promised(group, slot):
                if ctx.fold.st.live[slot] > 0 and group.form == "compressed":
                    faults.append(fault)
        read = Read(event, group, request, slots, [None] * len(slots), [-1] * len(slots))
        settle(ctx, read, faults)

    def _leads_to_older(self, group: Group, slot: int, name: str | int) -> bool:
        """Whether this very hash was published for another generation of the block."""
        st = self.ctx.fold.st
        number = self.ctx.fold.names.find("hash", name)
        older = False
        entry = st.first_entry[slot]
        while entry >= 0:
            if st.e_live[entry] == 1 and st.e_hash[entry] == number:
                if st.e_gen[entry] == st.gen[slot]:
                    return False
                older = True
            entry = st.e_next_slot[entry]
        return older

    def _promised(self, group: Group, slot: int) -> bool:
        """Whether the write that fills a published block is still to come."""
        c = self.ctx.fold.component(slot, group)
        return bool(self.ctx.fold.st.pver[c] == -2)

    # --- stores ----------------------------------------------------------------------------

    def _store(self, event: Event) -> None:
        ctx = self.ctx
        group = ctx.fold.group(event["group"])
        if group is None:
            return
        slots = ctx.slots(event)
        request = ctx.request(event)
        tokens = event.get("tokens")
        unit = group.block_tokens
        first = aligned(group, len(slots), tokens[1]) if tokens else 0
        faults: list[Fault] = []
        for i, slot in enumerate(slots):
            if slot < 0 or not known(ctx.fold, slot):
                continue
            if tokens:
                span = (max(tokens[0], first + i * unit), min(tokens[1], first + (i + 1) * unit))
            else:
                span = self._stored_whole(group, slot)
            fault = self._store_fault(group, slot, span, reader_number(ctx, request))
            if fault is None:
                continue
            if fault.waiting and fault.code != "HKV103":
                self.early_stores[slot] = (event, ctx.fold.st.gen[slot], fault)
            else:
                faults.append(fault)
        read = Read(event, group, request, slots, [None] * len(slots), [-1] * len(slots))
        settle(ctx, read, faults)

    def _stored_whole(self, group: Group, slot: int) -> tuple[int, int]:
        """A store that states no tokens takes a block of history for complete, a state for
        written and a window block for what it holds."""
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, group)
        if group.form == "recurrent":
            return (st.hi[c] - 1, st.hi[c])
        low = st.lo[c] - st.lo[c] % group.block_tokens
        if group.form in ("compressed", "indexer"):
            if st.cgen[c] != st.gen[slot] and st.start[slot] != MISSING:
                low = st.start[slot]
            return (low, low + group.block_tokens)
        return (st.lo[c], max(st.hi[c], st.lo[c] + 1))

    def _store_fault(
        self, group: Group, slot: int, span: tuple[int, int], reader: int
    ) -> Fault | None:
        st = self.ctx.fold.st
        if st.loads[slot] > 0:
            return Fault("HKV103", slot, span, "the load that fills it has not ended")
        if st.owner[slot] != reader and not hashed(self.ctx.fold, group, slot):
            # Whoever holds it may store it: without a hash there is no older content to reach.
            reader = st.owner[slot]
        return block_fault(self.ctx.fold, group, slot, span, reader)

    def _filled_late(self, slot: int, event: Event) -> None:
        """The block of an early store is written now: too late for the store."""
        store, gen, fault = self.early_stores[slot]
        ctx = self.ctx
        group = ctx.fold.group(store["group"])
        assert group is not None
        c = ctx.fold.component(slot, group)
        if ctx.fold.st.gen[slot] != gen or ctx.fold.st.wpos[c] != event.pos:
            return
        del self.early_stores[slot]
        why = f"the write that fills it comes at event {event.pos}, after the store began"
        late = Fault("HKV103" if fault.code != "HKV101" or self._was_empty(fault) else "HKV101",
                     slot, fault.tokens, why)  # fmt: skip
        self._tell_store(store, group, late)

    @staticmethod
    def _was_empty(fault: Fault) -> bool:
        return "not written" in fault.why

    def _never_filled(self, slot: int) -> None:
        held = self.early_stores.pop(slot, None)
        if held is None:
            return
        store, _, fault = held
        group = self.ctx.fold.group(store["group"])
        if group is not None:
            code = fault.code
            if not self._was_empty(fault) and group.form == "compressed":
                code = never_written(group)
            self._tell_store(store, group, fault._replace(code=code))

    def _tell_store(self, store: Event, group: Group, fault: Fault) -> None:
        ctx = self.ctx
        block = ctx.fold.block_of[fault.slot]
        low, high = fault.tokens
        ctx.report(
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
            actual=ctx.describe(fault.slot, group),
        )

    # --- keys ------------------------------------------------------------------------------

    def _publish(self, event: Event) -> None:
        key = event.get("key")
        if key is None:
            return
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        clash: list[tuple[int, Event]] = []
        slots = self.ctx.slots(event)
        for i, (slot, name) in enumerate(zip(slots, event["hashes"], strict=False)):
            place = (group.table, str(name))
            known_as = self.keys.get(place)
            if known_as is not None and self._unequal(known_as, (event, i)):
                clash.append((slot, known_as[0]))
            else:
                self.keys[place] = (event, i)
            if slot >= 0:
                self.block_keys[slot] = (event, i)
        if clash:
            first = clash[0][1]
            both = [s for s, _ in clash]
            both += [self.ctx.fold.slot(group.pool, b) for b in first["blocks"]]
            self._clash(event, group, both, first["key"], key, [first.pos, event.pos])

    @staticmethod
    def _unequal(one: tuple[Event, int], other: tuple[Event, int]) -> bool:
        """Whether two publications of one hash name different inputs.

        A digest of the tokens covers the whole range published, so it compares only where the
        hash is the last of equal ranges.
        """
        a, b = one[0], other[0]
        whole = one[1] == len(a["blocks"]) - 1 and other[1] == len(b["blocks"]) - 1
        whole = whole and a.get("tokens") == b.get("tokens")
        return _inputs(a["key"], whole) != _inputs(b["key"], whole)

    def _asked_for(self, event: Event) -> None:
        """A load asks by a hash for inputs other than those it was published for."""
        key, hashes = event.get("key"), event.get("hashes")
        group = self.ctx.fold.group(event["group"])
        far = self.ctx.fold.declared.pools.get(str(event.get("from")))
        if key is None or not hashes or group is None or far is None:
            return
        there = self.ctx.fold.declared.mirror(group, far)
        for i, name in enumerate(hashes):
            for side in (there, group):
                held = self.keys.get((side.table, str(name))) if side else None
                if held is not None and _inputs(held[0]["key"], False) != _inputs(key, False):
                    slots = self.ctx.slots(event)[i : i + 1]
                    self._clash(event, group, slots, held[0]["key"], key, [held[0].pos, event.pos])
                    return

    def _wrong_inputs(self, event: Event, group: Group, slots: list[int]) -> None:
        """A lookup for some inputs finds blocks that were published for others."""
        key = event.get("key")
        if key is None:
            return
        for slot in slots:
            published = self.block_keys.get(slot)
            if published is None or not hashed(self.ctx.fold, group, slot):
                continue
            if _inputs(published[0]["key"], False) != _inputs(key, False):
                self._clash(
                    event, group, slots, published[0]["key"], key, [published[0].pos, event.pos]
                )
                return

    def _clash(
        self, event: Event, group: Group, slots: list[int], one: Sequence[str | int],
        other: Sequence[str | int], events: list[int],
    ) -> None:  # fmt: skip
        names = ", ".join(map(str, sorted(set(map(str, one)) ^ set(map(str, other)))))
        blocks = shown([self.ctx.fold.block_of[s] for s in slots if s >= 0])
        self.ctx.report(
            "HKV104",
            f"unequal inputs share one hash in group {group.name}: {names} (blocks {blocks})",
            events,
            slots=slots,
            group=group,
            request=event.req,
            check=events[0],
            use=events[-1],
            believed={"key": list(other)},
            actual={"key": list(one)},
        )

    # --- announcements ---------------------------------------------------------------------

    def _announced(self, event: Event) -> None:
        """A KV event tells the world of a block that is not written yet: a hazard."""
        group = self.ctx.fold.group(event.get("group"))
        if group is None or event.get("lane") == "recv":
            return
        st = self.ctx.fold.st
        early: list[int] = []
        for name in event.get("hashes") or ():
            number = self.ctx.fold.names.find("hash", name)
            entry = st.first_of_hash[number] if number >= 0 else -1
            while entry >= 0:
                slot = st.e_slot[entry]
                if st.e_live[entry] == 1 and st.e_table[entry] == group.table_id:
                    if known(self.ctx.fold, slot) and self._promised(group, slot):
                        early.append(slot)
                entry = st.e_next_hash[entry]
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
            blocks=[self.ctx.fold.block_of[s] for s in early],
            pool=group.pool.name,
        )
        if found is not None:
            self.ahead[group.name] = found


def _inputs(key: Sequence[str | int], tokens: bool) -> frozenset[str]:
    return frozenset(str(k) for k in key if tokens or not str(k).startswith("tokens="))
