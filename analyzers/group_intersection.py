"""3xx: multi-group intersection. A resume at t needs every participating group at t."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hkvtool.analyzers.context import Context, Silent, copy_slots
from hkvtool.analyzers.reading import (
    Read,
    brought,
    read_of_use,
    reader_number,
    route_of,
    settle,
)
from hkvtool.analyzers.refcounts import right_faults
from hkvtool.analyzers.routing import form_faults, part_is_in, residency_faults
from hkvtool.analyzers.toctou import changed_faults
from hkvtool.analyzers.whole_block import content_faults
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rows import MISSING
from hkvtool.model.rules import MISSING_FORM
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.requests import Request
from hkvtool.state.resume import (
    Fault,
    block_fault,
    group_faults,
    hashed,
    index_faults,
    known,
    needed,
    window_faults,
)

SKIPPING = {"recompute", "bypass"}
"""Routes that bring nothing because the content is made again."""


class GroupIntersection(Silent):
    """Judges resumes when they are decided and, for what may still heal, when they are used."""

    codes = frozenset(
        {"HKV301", "HKV302", "HKV303", "HKV304", "HKV305", "HKV306", "HKV307", "HKV308"}
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.pending: dict[tuple[str, str], tuple[Event, list[int], str | None]] = {}
        self.codecs: dict[int, str] = {}
        self.said_codec: dict[int, tuple[int, str]] = {}
        self.made_as: dict[int, str] = {}
        self.cleared: dict[int, Event] = {}
        self.stores: dict[int, Event] = {}
        self.copies: dict[int, Event] = {}
        self.loads: dict[int, Event] = {}
        self.stored_from: dict[int, tuple[Event, int]] = {}

    def before(self, event: Event) -> None:
        if event.ev == "alloc":
            self._source_gone(event)
        elif event.ev == "resume":
            self._resume(event)
        elif event.ev in ("lookup", "preempt", "abort", "finish"):
            # What was resumed is given up or over; whatever follows is checked anew.
            for key in [k for k in self.pending if k[0] == event.req]:
                del self.pending[key]
        elif event.ev in ("use", "write", "seal", "index") and not event.get("pad"):
            self._due(event)
            if event.ev == "use":
                self._use(event)
            elif event.ev == "seal":
                self._seal(event)
        elif event.ev == "select":
            self._select(event)
        elif event.ev == "retire":
            self._overdue(event)

    def after(self, event: Event) -> None:
        if event.ev in ("store_begin", "load_begin"):
            self._moved(event)
        elif event.ev == "copy":
            self._copied(event)
        elif event.ev == "zero":
            for slot in self.ctx.slots(event):
                self.cleared[slot] = event
        elif event.ev == "publish" and "codec" in event:
            for slot in self.ctx.slots(event):
                self.said_codec[slot] = (self.ctx.fold.st.gen[slot], event["codec"])

    def finish(self) -> None:
        """Requests that the trace leaves between resume and use: what cannot heal is told."""
        for (name, group_name), held in list(self.pending.items()):
            group = self.ctx.fold.group(group_name)
            request = self.ctx.requests.by_name.get(name)
            if group is None or request is None or request.ended is not None:
                continue
            self._judge_late(held[0], group, *held, over=True)

    # --- resumes ---------------------------------------------------------------------------

    def _resume(self, event: Event) -> None:
        request = self.ctx.request(event)
        if request is None:
            return
        self._vetoed(event, request)
        if "blocks" not in event:
            return
        reader = reader_number(self.ctx, request)
        for group in self._judged(event, request):
            route = route_of(self.ctx, event, group)
            blocks = brought(self.ctx, event, group) or []
            if route in SKIPPING or (route == "reindex" and group.form == "indexer"):
                continue
            if route == "load" and not blocks:
                continue
            faults = self._group_faults(event, request, group, blocks, reader, route)
            now, later = self._split(group, faults, route)
            if later or (route == "load" and blocks):
                self.pending[request.name, group.name] = (event, blocks, route)
            slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
            read = Read(event, group, request, slots, [None] * len(slots), [], event, route,
                        event["at"])  # fmt: skip
            now = self._left_behind(read, now)
            settle(self.ctx, read, now)

    def _judged(self, event: Event, request: Request) -> list[Group]:
        """Participating groups of the engine that resumes."""
        named = [self.ctx.fold.group(n) for n in event.get("blocks") or {}]
        engine = request.engine
        for group in named:
            if group is not None:
                engine = group.pool.engine
        return [g for g in self.ctx.groups_of(engine) if g.participates]

    def _group_faults(
        self, event: Event, request: Request, group: Group, blocks: Sequence[int], reader: int,
        route: str | None,
    ) -> list[Fault]:  # fmt: skip
        at = event["at"]
        fold = self.ctx.fold
        faults = group_faults(fold, group, blocks, at, reader)
        if not needed(fold, group, at):
            return faults
        if group.form == "indexer":
            served = fold.declared.served(group)
            theirs = brought(self.ctx, event, served) if served else None
            if served is not None and theirs:
                faults += index_faults(fold, group, served, blocks, theirs, at)
        if group.form == "compressed":
            faults += self._codec_faults(group, blocks)
        if route in (None, "reuse") and group.form != "indexer":
            faults += self._unhashed(event, request, group, blocks, reader)
        return faults

    def _split(
        self, group: Group, faults: Iterable[Fault], route: str | None
    ) -> tuple[list[Fault], list[Fault]]:
        """Faults to tell now, and those that the use will show."""
        now: list[Fault] = []
        later: list[Fault] = []
        for fault in faults:
            if fault.code == "HKV305":
                if route == "load":
                    later.append(fault)
                elif route is None:
                    now.append(fault._replace(why="it is still being loaded, and no route says so"))
                else:
                    why = f"it is still being loaded, and the route is {route}"
                    now.append(fault._replace(code="HKV602", why=why))
            elif fault.waiting:
                later.append(fault)
            else:
                now.append(fault)
        return now, later

    def _unhashed(
        self, event: Event, request: Request, group: Group, blocks: Sequence[int], reader: int
    ) -> list[Fault]:
        """Blocks of another request that no live hash led to, at the hit or now: whatever they
        hold, nothing says that it is this sequence's. Also those that the hit did not find."""
        faults: list[Fault] = []
        fold = self.ctx.fold
        unit = group.block_tokens
        code = {"compressed": "HKV102"}.get(group.form) or MISSING_FORM[group.form]
        found = self._found(request, group)
        for i, block in enumerate(blocks):
            slot = fold.slot(group.pool, block)
            if slot < 0 or not known(fold, slot) or block in group.pool.reserved:
                continue
            if fold.st.owner[slot] == reader and slot in request.held:
                continue
            if fold.st.loads[slot] > 0 or self._loaded(slot) is not None:
                continue
            if not fold.hashes_known(slot):
                continue
            first = (event["at"] - 1) // unit * unit - (len(blocks) - 1 - i) * unit
            span = (max(0, first), max(0, first + unit))
            seen = request.seen.get(slot)
            if not hashed(fold, group, slot) and not (seen is not None and seen.hashed):
                faults.append(Fault(code, slot, span, "no live hash leads to it"))
            elif found is not None and slot not in found and not self._same_hash(slot, found):
                faults.append(Fault(code, slot, span, "the lookup had found other blocks"))
        return faults

    def _found(self, request: Request, group: Group) -> set[int] | None:
        """Slots that the request's lookup found for a group, or None where it lists none."""
        lookup = request.lookup
        blocks = None if lookup is None else (lookup.get("blocks") or {}).get(group.name)
        if not blocks or group.form != "compressed":
            return None
        return {self.ctx.fold.slot(group.pool, b) for b in blocks}

    def _same_hash(self, slot: int, found: set[int]) -> bool:
        """Whether the block shares a hash with one that was found: a copy of the same content."""
        names = self._hash_names(slot)
        return any(names & self._hash_names(other) for other in found if other >= 0)

    def _hash_names(self, slot: int) -> set[int]:
        st = self.ctx.fold.st
        names: set[int] = set()
        entry = st.first_entry[slot]
        while entry >= 0:
            if st.e_live[entry] == 1:
                names.add(st.e_hash[entry])
            entry = st.e_next_slot[entry]
        return names

    def _loaded(self, slot: int) -> Event | None:
        """The last load into a block in its present generation."""
        event = self.loads.get(slot)
        if event is None or event.pos < self.ctx.fold.st.alloc_pos[slot]:
            return None
        return event

    def _codec_faults(self, group: Group, blocks: Sequence[int]) -> list[Fault]:
        faults: list[Fault] = []
        own = group.layout.get("codec")
        if own is None:
            return faults
        fold = self.ctx.fold
        for block in blocks:
            slot = fold.slot(group.pool, block)
            if slot < 0:
                continue
            c = fold.component(slot, group)
            codec = self.codecs.get(fold.st.cid[c])
            said = self.said_codec.get(slot)
            if said is not None and said[0] == fold.st.gen[slot]:
                codec = said[1]
            if codec is not None and codec != own and fold.st.cgen[c] == fold.st.gen[slot]:
                why = f"its content is of codec {codec}, the group's is {own}"
                span = (fold.st.lo[c], fold.st.hi[c])
                faults.append(Fault("HKV301", slot, span, why))
        return faults

    def _vetoed(self, event: Event, request: Request) -> None:
        """308: one group's short hit cost tokens that another had."""
        lookup = request.lookup
        if lookup is None:
            return
        hits = {
            group: tokens
            for group, tokens in ((self.ctx.fold.group(n), t) for n, t in lookup["hit"].items())
            if group is not None and group.participates
        }
        if not hits:
            return
        best = max(hits, key=lambda g: hits[g])
        worst = min(hits, key=lambda g: hits[g])
        lost = hits[best] - max(event["at"], hits[worst])
        if lost <= 0 or event["at"] >= hits[best] or hits[worst] == hits[best]:
            return
        ids = brought(self.ctx, lookup, best) or []
        self.ctx.report(
            "HKV308",
            f"request {request.name} throws away {lost} matched tokens: group {best.name} hits "
            f"{hits[best]}, but group {worst.name} only {hits[worst]}",
            [lookup.pos, event.pos],
            slots=(),
            group=worst,
            request=request.name,
            check=lookup.pos,
            tokens=(max(event["at"], hits[worst]), hits[best]),
            believed={"hit": {g.name: t for g, t in hits.items()}},
            actual={"resumed_at": event["at"], "limiting_group": worst.name, "lost": lost},
            blocks=list(ids),
            pool=best.pool.name,
        )

    # --- what was put off ------------------------------------------------------------------

    def _due(self, event: Event) -> None:
        """The request comes to use a group whose resume could not be judged before."""
        if event.req is None or not self.pending:
            return
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        for mate in self.ctx.fold.declared.mates(group):
            held = self.pending.get((event.req, mate.name))
            if held is not None and (mate is group or event.ev == "use"):
                if mate is group and not (event.ev != "use" and self._arriving(mate, held[1])):
                    del self.pending[event.req, mate.name]
                    self._judge_late(event, mate, *held)

    def _arriving(self, group: Group, blocks: Sequence[int]) -> bool:
        """Whether a load into one of the blocks is under way: writing behind them is fine."""
        slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
        return any(s >= 0 and self.ctx.fold.st.loads[s] > 0 for s in slots)

    def _overdue(self, event: Event) -> None:
        """A step ended: what its requests resumed and nobody listed a use for is judged now."""
        dispatched = self.ctx.dispatched.get(event["step"])
        for (name, group_name), held in list(self.pending.items()):
            if dispatched is None or held[0].pos > dispatched:
                continue
            if name not in map(str, event.get("reqs") or ()):
                continue
            group = self.ctx.fold.group(group_name)
            del self.pending[name, group_name]
            if group is not None:
                self._judge_late(event, group, *held)

    def _judge_late(
        self, event: Event, group: Group, resume: Event, blocks: list[int], route: str | None,
        *, over: bool = False,
    ) -> None:  # fmt: skip
        request = self.ctx.requests.by_name.get(str(resume["req"]))
        if request is None or request.ended is not None:
            return
        reader = reader_number(self.ctx, request)
        faults = self._group_faults(resume, request, group, blocks, reader, route)
        part = event.get("part")
        faults = [
            f for f in faults
            if f.code != "HKV305" or f.slot < 0 or not part_is_in(self.ctx, f.slot, part)
        ]  # fmt: skip
        if over:
            faults = [f for f in faults if f.code not in ("HKV103", "HKV305")]
        if self._brings(request, group, route):
            faults = [self._not_migrated(f) for f in faults]
        slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
        read = Read(event, group, request, slots, [None] * len(slots), [], resume, route,
                    resume["at"])  # fmt: skip
        settle(self.ctx, read, self._left_behind(read, faults))

    def _brings(self, request: Request, group: Group, route: str | None) -> bool:
        """Whether the group's blocks were to come from a lower tier: by their route, or because
        the hit was there and not on the device."""
        if route is not None:
            return route == "load"
        lookup = request.lookup
        if lookup is None or lookup["hit"].get(group.name, 0) > 0:
            return False
        for name, tokens in lookup["hit"].items():
            tier = self.ctx.fold.group(name)
            if tier is not None and not tier.participates and tokens > 0:
                if self.ctx.fold.declared.mirror(tier, group.pool) is group:
                    return True
        return False

    def _not_migrated(self, fault: Fault, code: str = "HKV305") -> Fault:
        """A block that a load was to bring and that is empty: the load did not make it resident."""
        if fault.slot < 0 or not fault.waiting or "not written" not in fault.why:
            return fault
        load = self._loaded(fault.slot)
        if load is not None:
            form = self._form_loaded(load, fault.slot)
            if form is not None:
                why = f"what was loaded into it was stored from a group of form {form}"
                return fault._replace(code="HKV601", why=why)
        if fault.code in ("HKV103", "HKV305"):
            return fault
        return fault._replace(code=code, why="no load that ended well filled it")

    def _form_loaded(self, load: Event, slot: int) -> str | None:
        """The form of the group whose content the peer of a loaded block holds, if another."""
        fold = self.ctx.fold
        group = fold.group(load["group"])
        transfer = fold.transfers.get(str(load["handle"]))
        block = fold.block_of[slot]
        if group is None or transfer is None or transfer.far is None or "peer" not in load:
            return None
        peer = fold.slot(transfer.far, load["peer"][load["blocks"].index(block)])
        if peer < 0 or self._share(peer, group) in self.stores:
            return None
        for other in fold.declared.groups.values():
            if other.form != group.form and self._share(peer, other) in self.stores:
                return other.form
        return None

    # --- uses ------------------------------------------------------------------------------

    def _use(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None or event.get("pad"):
            return
        read = read_of_use(self.ctx, event, group)
        part = event.get("part")
        faults = form_faults(self.ctx, read)
        faults += residency_faults(self.ctx, read)
        faults += [
            f for f in content_faults(self.ctx, read)
            if f.code != "HKV305" or f.slot < 0 or not part_is_in(self.ctx, f.slot, part)
        ]  # fmt: skip
        faults += self._index_in_use(read)
        faults += changed_faults(self.ctx, read)
        faults += right_faults(self.ctx, read)
        faults += self._another_form(read)
        if read.resume is not None and read.request is not None:
            if self._brings(read.request, group, read.route):
                resumed = self._resumed(read)
                faults = [self._not_migrated(f) if f.slot in resumed else f for f in faults]
        faults = [
            self._not_migrated(f, "HKV603" if read.resume is None else "HKV305")
            if f.slot >= 0 and self._loaded(f.slot) is not None else f
            for f in faults
        ]  # fmt: skip
        faults = [f for f in faults if f.code != "HKV305" or read.resume is not None]
        settle(self.ctx, read, self._left_behind(read, faults))

    def _another_form(self, read: Read) -> list[Fault]:
        """601: the content came, by a copy, from a group of another form."""
        fold = self.ctx.fold
        faults: list[Fault] = []
        for slot, span in zip(read.slots, read.spans, strict=True):
            if slot < 0 or not known(fold, slot):
                continue
            c = fold.component(slot, read.group)
            form = self.made_as.get(fold.st.cid[c])
            if form is not None and form != read.group.form and fold.st.cid[c] > 0:
                why = f"its content was copied from a group of form {form}"
                faults.append(Fault("HKV601", slot, span or (0, 0), why))
        return faults

    def _resumed(self, read: Read) -> set[int]:
        assert read.resume is not None
        ids = brought(self.ctx, read.resume, read.group) or []
        return {self.ctx.fold.slot(read.group.pool, b) for b in ids}

    def _index_in_use(self, read: Read) -> list[Fault]:
        """Rows whose KV version is not that of the data of the same tokens."""
        fold = self.ctx.fold
        if read.group.form != "indexer":
            return []
        served = fold.declared.served(read.group)
        if served is None:
            return []
        ids = [fold.block_of[s] for s in read.slots if s >= 0]
        if served.table == read.group.table:
            return index_faults(fold, read.group, served, ids, ids, 0)
        if read.request is None:
            return []
        theirs = [fold.block_of[s] for s in read.request.table(served.table_id)]
        if len(theirs) != len(ids):
            return []
        return index_faults(fold, read.group, served, ids, theirs, 0)

    def _seal(self, event: Event) -> None:
        """302: a seal takes tokens from a tail that does not hold them."""
        tail = self.ctx.fold.group(event.get("from"))
        tokens = event.get("tokens")
        request = self.ctx.request(event)
        if tail is None or tokens is None or request is None:
            return
        sent = self.ctx.dispatched.get(event.step or -1, event.pos)
        slots = request.table_at(tail.table_id, sent)
        named = self.ctx.slots(event)
        group = self.ctx.fold.group(event["group"])
        gens = [self.ctx.meant(s, event.step) for s in slots]
        shared = group is not None and group.table_id == tail.table_id
        late = gens != [self.ctx.fold.st.gen[s] for s in slots]
        if late or (shared and set(named) - set(slots)):
            # The step was handed out with tables that the request no longer has.
            if not shared:
                return
            slots, gens = named, [self.ctx.meant(s, event.step) for s in named]
        if not slots:
            return
        faults = window_faults(self.ctx.fold, tail, slots, [tuple(tokens)],
                               reader_number(self.ctx, request), gens)  # fmt: skip
        for fault in faults[:1]:
            self.ctx.report(
                "HKV302",
                f"request {request.name} seals tokens {tokens[0]} to {tokens[1]} of group "
                f"{event['group']}, but group {tail.name} lacks tokens {fault.tokens[0]} to "
                f"{fault.tokens[1]}",
                [event.pos, *(self._written(s, tail) for s in slots[-1:])],
                slots=[s for s in [*slots[-1:], *named] if s >= 0],
                group=tail,
                request=request.name,
                step=event.step,
                use=event.pos,
                tokens=fault.tokens,
                believed={"tail": [tokens[0], tokens[1]]},
                actual=self.ctx.describe(slots[-1], tail),
            )

    def _written(self, slot: int, group: Group) -> int:
        return int(self.ctx.fold.st.wpos[self.ctx.fold.component(slot, group)])

    def _select(self, event: Event) -> None:
        """304: sparse routing chose an entry that is not live, not written or not yet causal."""
        fold = self.ctx.fold
        index = fold.group(event["group"])
        request = self.ctx.request(event)
        if index is None or request is None:
            return
        served = fold.declared.served(index) or index
        slots = request.table(served.table_id)
        if not slots:
            return
        unit, ratio = served.block_tokens, served.ratio
        shares = [(fold.component(s, served), s) for s in slots]
        current = [c for c, s in shares if fold.st.cgen[c] == fold.st.gen[s]]
        end = max((fold.st.hi[c] for c in current), default=0)
        if any(not known(fold, s) for s in slots):
            return
        for entry in event["entries"]:
            low, high = entry * ratio, (entry + 1) * ratio
            holder = next((s for s in slots if self._stands_in(served, s, low, unit)), -1)
            why = None
            if entry < 0 or low >= end:
                why = f"entry {entry} lies beyond the {end} tokens written"
            elif holder < 0:
                why = f"entry {entry} is in no block of the request"
            elif fold.st.refs[holder] <= 0:
                why = f"entry {entry} lies in a block that is free"
            else:
                fault = block_fault(fold, served, holder, (low, high),
                                    reader_number(self.ctx, request))  # fmt: skip
                if fault is not None:
                    why = f"entry {entry}: {fault.why}"
            if why is not None:
                self.ctx.report(
                    "HKV304",
                    f"sparse routing of request {request.name} selects what it may not read: {why}",
                    [event.pos],
                    slots=[holder] if holder >= 0 else [],
                    group=index,
                    request=request.name,
                    step=event.step,
                    use=event.pos,
                    tokens=(max(0, low), max(0, high)),
                )
                return

    def _stands_in(self, group: Group, slot: int, token: int, unit: int) -> bool:
        start = self.ctx.fold.st.start[slot]
        return bool(start != MISSING and start <= token < start + unit)

    # --- 307 -------------------------------------------------------------------------------

    def _pairs(self, event: Event) -> list[tuple[int, int]]:
        return list(zip(*copy_slots(self.ctx.fold, event), strict=False))

    def _copied(self, event: Event) -> None:
        fold = self.ctx.fold
        source = fold.group(event.get("src_group", event.get("group")))
        target = fold.group(event.get("dst_group", event.get("group")))
        for _, dst in self._pairs(event):
            if dst < 0:
                continue
            self.copies[dst] = event
            if source is not None and target is not None and source.form != target.form:
                c = fold.component(dst, target)
                if fold.st.cid[c] > 0:
                    self.made_as[fold.st.cid[c]] = source.form

    def _source_gone(self, event: Event) -> None:
        """307: a block is handed out again, and only some of its components were stored."""
        fold = self.ctx.fold
        st = fold.st
        if not self.stored_from:
            return
        for slot in self.ctx.slots(event):
            if slot < 0:
                continue
            stored = {}
            pool = fold.pool_of(slot)
            for group in [g for g in fold.declared.groups.values() if g.pool is pool]:
                held = self.stored_from.pop(self._share(slot, group), None)
                if held is not None and held[1] == st.gen[slot]:
                    stored[group.name] = held[0]
            for name, store in stored.items():
                group = fold.declared.groups[name]
                for mate in fold.declared.mates(group):
                    travels = mate.serves == name or group.serves == mate.name
                    if mate.name in stored or not travels:
                        continue
                    c = fold.component(slot, mate)
                    lost = st.cid[c] > 0 and st.cgen[c] == st.gen[slot]
                    if lost and st.live[slot] == 0:
                        self._lost(event, slot, group, mate, store)

    def _lost(self, event: Event, slot: int, group: Group, mate: Group, store: Event) -> None:
        self.ctx.report(
            "HKV307",
            f"group {group.name} was stored without group {mate.name}, which must travel with it; "
            f"block {self.ctx.fold.block_of[slot]} is handed out again, and its rows are lost",
            [store.pos, event.pos],
            slots=[slot],
            group=mate,
            request=store.req,
            check=store.pos,
            use=event.pos,
            believed={"moved": [group.name, mate.name]},
            actual={"moved": [group.name]},
        )

    def _moved(self, event: Event) -> None:
        """Remember what brought content where, and of which codec it is."""
        fold = self.ctx.fold
        group = fold.group(event["group"])
        transfer = fold.transfers.get(str(event["handle"]))
        if group is None or transfer is None:
            return
        loading = event.ev == "load_begin"
        near = self.ctx.slots(event)
        far = [] if transfer.far is None else [
            fold.slot(transfer.far, b) for b in event.get("peer") or ()
        ]  # fmt: skip
        for slot in near if loading else far:
            (self.loads if loading else self.stores)[self._share(slot, group)] = event
        for slot in near:
            if loading:
                self.loads[slot] = event
            elif slot >= 0:
                self.stored_from[self._share(slot, group)] = (event, fold.st.gen[slot])
        codec = event.get("codec")
        there = fold.declared.mirror(group, transfer.far) if transfer.far else None
        number = fold.names.find("handle", str(event["handle"]))
        st = fold.st
        for i in range(st.t_len[number]):
            r = st.t_off[number] + i * a.RECORD
            cid, peer = st.arena[r + 4], st.arena[r + 2]
            if cid == 0:
                continue
            if codec is not None:
                self.codecs[cid] = codec
            elif loading and there is not None and cid not in self.codecs:
                stranger = peer >= 0 and st.known[peer] == a.UNKNOWN
                if (
                    stranger
                    and "codec" in there.layout
                    and self._share(peer, group) not in self.stores
                ):
                    self.codecs[cid] = there.layout["codec"]

    def _share(self, slot: int, group: Group) -> int:
        """A key for one group's share of a slot that no plain slot number equals."""
        return -2 - (slot * 64 + group.component)

    def _left_behind(self, read: Read, faults: list[Fault]) -> list[Fault]:
        """307: content that is missing because a transfer or copy took its partner only."""
        fold = self.ctx.fold
        group = read.group
        partners = [g for g in (fold.declared.served(group), *fold.declared.servants(group)) if g]
        if not partners or not self.ctx.evaluable("HKV307"):
            return faults
        for fault in faults:
            if fault.code not in ("HKV304", "HKV302", "HKV306", "HKV103", "HKV101", "HKV305"):
                continue
            if fault.slot < 0 or "version" in fault.why:
                continue
            found = self._partner_moved(read, fault, partners)
            if found is not None:
                partner, events, slots, did = found
                root = self._tell_left(read, partner, events, slots, did)
                if root is not None:
                    self.ctx.blame(root, [f.slot for f in faults])
                    if read.request is not None:
                        self.ctx.blame_table(root, read.request.name, group)
                break
        return faults

    def _partner_moved(
        self, read: Read, fault: Fault, partners: Sequence[Group]
    ) -> tuple[Group, list[int], list[int], str] | None:
        """The partner whose content of the same tokens was moved without this group's."""
        fold = self.ctx.fold
        for partner in partners:
            slot = self._partner_slot(read, fault.slot, partner)
            if slot < 0:
                continue
            zeroed = self.cleared.get(slot)
            if zeroed is not None and self._only_cleared(zeroed, fault.slot, partner, read.group):
                return partner, [zeroed.pos], [fault.slot], "cleared"
            load = self._load_of(slot, partner)
            if load is not None and self._load_of(fault.slot, read.group) is None:
                events = [load.pos]
                slots = [fault.slot, *self.ctx.slots(load)]
                transfer = fold.transfers[str(load["handle"])]
                far = transfer.far
                peers = [fold.slot(far, b) for b in load.get("peer") or ()] if far else []
                store = next((self.stores[self._share(p, partner)] for p in peers
                              if self._share(p, partner) in self.stores), None)  # fmt: skip
                if store is not None:
                    events.insert(0, store.pos)
                    slots += self.ctx.slots(store)
                return partner, events, slots, "loaded"
            copied = self.copies.get(slot)
            if copied is not None and self._of(copied, partner):
                mine = self.copies.get(fault.slot)
                if mine is None or mine is copied or not self._of(mine, read.group):
                    sources = [s for s, d in self._pairs(copied) if d == slot]
                    return partner, [copied.pos], [fault.slot, *sources, slot], "copied"
        return None

    def _load_of(self, slot: int, group: Group) -> Event | None:
        """The last load of one group's share of a block in its present generation."""
        event = self.loads.get(self._share(slot, group))
        if event is None or event.pos < self.ctx.fold.st.alloc_pos[slot]:
            return None
        return event

    def _only_cleared(self, zeroed: Event, slot: int, partner: Group, group: Group) -> bool:
        """A clear took the partner's share of a re-issued block and left this group's old one."""
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, group)
        named = self.ctx.fold.group(zeroed.get("group"))
        old = st.cid[c] > 0 and st.cgen[c] >= 0 and st.cgen[c] != st.gen[slot]
        return named is partner and zeroed.pos > st.alloc_pos[slot] and old

    def _of(self, copied: Event, group: Group) -> bool:
        """Whether a copy took this group's share (all shares, where it names no group)."""
        named = copied.get("dst_group", copied.get("group"))
        return named is None or self.ctx.fold.group(named) is group

    def _partner_slot(self, read: Read, slot: int, partner: Group) -> int:
        """Where the partner keeps the same tokens: the same block of a shared table, or the
        block at the same place of the request's own."""
        if partner.table == read.group.table and partner.pool is read.group.pool:
            return slot
        if read.request is None:
            return -1
        mine, theirs = read.request.table(read.group.table_id), read.request.table(partner.table_id)
        if slot in mine and len(mine) == len(theirs):
            return theirs[mine.index(slot)]
        return -1

    def _tell_left(
        self, read: Read, partner: Group, events: list[int], slots: list[int], did: str
    ) -> Finding | None:
        name = read.request.name if read.request else None
        return self.ctx.report(
            "HKV307",
            f"group {partner.name} was {did} without group {read.group.name}, which must travel "
            f"with it; {'request ' + name if name else 'a kernel'} now misses its rows",
            [*events, read.check, read.event.pos],
            slots=slots,
            group=read.group,
            request=name,
            check=events[0],
            use=read.event.pos,
            step=read.event.step,
            believed={"moved": [partner.name, read.group.name]},
            actual={"moved": [partner.name]},
        )
