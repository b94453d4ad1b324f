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
from hkvtool.analyzers.routing import form_faults, residency_faults
from hkvtool.analyzers.toctou import changed_faults
from hkvtool.analyzers.refcounts import right_faults
from hkvtool.analyzers.whole_block import content_faults
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rows import MISSING
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
        self.stores: dict[int, Event] = {}
        self.copies: dict[int, Event] = {}
        self.loads: dict[int, Event] = {}

    def before(self, event: Event) -> None:
        if event.ev == "resume":
            self._resume(event)
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
            for _, dst in self._pairs(event):
                self.copies[dst] = event

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
            if route in (None, "reuse"):
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
        """Blocks of full history that no live hash led to, at the hit or now."""
        faults: list[Fault] = []
        fold = self.ctx.fold
        unit = group.block_tokens
        for i, block in enumerate(blocks):
            slot = fold.slot(group.pool, block)
            if slot < 0 or not known(fold, slot) or fold.st.owner[slot] == reader:
                continue
            seen = request.seen.get(slot)
            if hashed(fold, group, slot) or (seen is not None and seen.hashed):
                continue
            if fold.st.loads[slot] > 0 or slot in self.loads or slot in request.held:
                continue
            first = (event["at"] - 1) // unit * unit - (len(blocks) - 1 - i) * unit
            why = "no live hash leads to it"
            faults.append(Fault("HKV102", slot, (max(0, first), first + unit), why))
        return faults

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
            for group, tokens in (
                (self.ctx.fold.group(n), t) for n, t in lookup["hit"].items()
            )
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
                if mate is group:
                    del self.pending[event.req, mate.name]
                    self._judge_late(event, mate, *held)

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
        self, event: Event, group: Group, resume: Event, blocks: list[int], route: str | None
    ) -> None:
        request = self.ctx.requests.by_name.get(str(resume["req"]))
        if request is None or request.ended is not None:
            return
        reader = reader_number(self.ctx, request)
        faults = self._group_faults(resume, request, group, blocks, reader, route)
        if route == "load":
            faults = [self._not_migrated(f) for f in faults]
        slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
        read = Read(event, group, request, slots, [None] * len(slots), [], resume, route,
                    resume["at"])  # fmt: skip
        settle(self.ctx, read, self._left_behind(read, faults))

    def _not_migrated(self, fault: Fault) -> Fault:
        """A block that a load was to bring and that is empty: the load did not make it resident."""
        if fault.slot >= 0 and fault.waiting and fault.code not in ("HKV103", "HKV305"):
            c_empty = "not written" in fault.why
            if c_empty:
                return fault._replace(code="HKV305", why="no load that ended well filled it")
        return fault

    # --- uses ------------------------------------------------------------------------------

    def _use(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None or event.get("pad"):
            return
        read = read_of_use(self.ctx, event, group)
        faults = form_faults(self.ctx, read)
        faults += residency_faults(self.ctx, read)
        faults += content_faults(self.ctx, read)
        faults += self._index_in_use(read)
        faults += changed_faults(self.ctx, read)
        faults += right_faults(self.ctx, read)
        if read.route == "load":
            faults = [self._not_migrated(f) if f.slot in self._resumed(read) else f
                      for f in faults]  # fmt: skip
        faults = [f for f in faults if f.code != "HKV305" or read.resume is not None]
        settle(self.ctx, read, self._left_behind(read, faults))

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
        slots = request.table(tail.table_id)
        if not slots:
            return
        faults = window_faults(self.ctx.fold, tail, slots, [tuple(tokens)],
                               reader_number(self.ctx, request))  # fmt: skip
        named = self.ctx.slots(event)
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
        end = max((fold.st.hi[fold.component(s, served)] for s in slots
                   if fold.st.cgen[fold.component(s, served)] == fold.st.gen[s]), default=0)  # fmt: skip
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
        return start != MISSING and start <= token < start + unit

    # --- 307 -------------------------------------------------------------------------------

    def _pairs(self, event: Event) -> list[tuple[int, int]]:
        return list(zip(*copy_slots(self.ctx.fold, event), strict=False))

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
        if loading:
            for slot in near:
                self.loads[slot] = event
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
                if stranger and "codec" in there.layout and self._share(peer, group) not in self.stores:
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
            load = self.loads.get(self._share(slot, partner))
            if load is not None and self._share(fault.slot, read.group) not in self.loads:
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
            [*events, read.event.pos],
            slots=slots,
            group=read.group,
            request=name,
            check=events[0],
            use=read.event.pos,
            step=read.event.step,
            believed={"moved": [partner.name, read.group.name]},
            actual={"moved": [partner.name]},
        )
