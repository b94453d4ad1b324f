"""307: components that must travel together, and of which a move took some only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.moves import copy_slots
from hkvtool.state.reading import Read
from hkvtool.state.serving import filled

_MISSED = frozenset({"HKV101", "HKV103", "HKV302", "HKV304", "HKV305", "HKV306"})
"""How a reader runs into a component that was left behind."""


class Taken(NamedTuple):
    """What took a partner and left the component: the events of the move, and blocks of it."""

    partner: Group
    did: str
    events: list[int]
    slots: list[int]


class Components(Silent):
    """Looks at sources that are given up with a component of theirs stored nowhere."""

    codes = frozenset({"HKV307"})
    kinds = frozenset({"alloc"})

    def before(self, event: Event) -> None:
        if event.ev == "alloc" and self.ctx.moves.stored_from:
            for slot in self.ctx.slots(event):
                stored = self.ctx.moves.stored_from.pop(slot, None)
                if stored is not None and self.ctx.fold.st.live[slot] == 0:
                    self._source_gone(event, slot, stored)

    def _source_gone(
        self, event: Event, slot: int, last: dict[Group, tuple[Event, int]]
    ) -> None:  # fmt: skip
        """A block is handed out again, and only some of its components were stored."""
        fold = self.ctx.fold
        if self.ctx.lost_since(fold.st.alloc_pos[slot]):
            # The other stores may be among what was lost.
            return
        gen = fold.st.gen[slot]
        stored = {group: store for group, (store, taken) in last.items() if taken == gen}
        for group, store in stored.items():
            for mate in fold.declared.mates(group):
                travels = mate.serves == group.name or group.serves == mate.name
                if travels and mate not in stored:
                    if filled(fold, slot, fold.component(slot, mate)):
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


def report_left_behind(ctx: Context, read: Read, faults: Sequence[Fault]) -> None:
    """Content that a read misses because a transfer, copy or clear took its partner only: the
    root of what the read is told."""
    declared = ctx.fold.declared
    partners = declared.servants(read.group)
    served = declared.served(read.group)
    if served is not None:
        partners.insert(0, served)
    if not faults or not partners or not ctx.evaluable("HKV307"):
        return
    for fault in faults:
        if fault.code not in _MISSED or fault.kind is Kind.VERSION or fault.slot < 0:
            continue
        taken = next((t for t in (_taken(ctx, read, fault.slot, p) for p in partners) if t), None)
        if taken is None:
            continue
        root = _tell(ctx, read, taken)
        if root is not None:
            ctx.blame.put(root, [f.slot for f in faults])
            if read.request is not None:
                ctx.blame.put_table(root, read.request.name, read.group)
        return


def _taken(ctx: Context, read: Read, missing: int, partner: Group) -> Taken | None:
    """How a partner's content of the same tokens was moved without that of block `missing`."""
    slot = _partner_slot(read, missing, partner)
    if slot < 0:
        return None
    moves = ctx.moves
    cleared = moves.clears.get(slot)
    if cleared is not None and _only_cleared(ctx, cleared, missing, partner, read.group):
        return Taken(partner, "cleared", [cleared.pos], [missing])
    load = moves.load_of(slot, partner)
    if load is not None and moves.load_of(missing, read.group) is None:
        events, slots = [load.pos], [missing, *ctx.slots(load)]
        store = moves.store_to(moves.peers(load), partner)
        if store is not None:
            events.insert(0, store.pos)
            slots += ctx.slots(store)
        return Taken(partner, "loaded", events, slots)
    copied = moves.copies.get(slot)
    if copied is None or not _takes(ctx, copied, partner):
        return None
    mine = moves.copies.get(missing)
    if mine is not None and mine is not copied and _takes(ctx, mine, read.group):
        return None
    pairs = zip(*copy_slots(ctx.fold, copied), strict=False)
    sources = [source for source, target in pairs if target == slot]
    return Taken(partner, "copied", [copied.pos], [missing, *sources, slot])


def _only_cleared(
    ctx: Context, cleared: Event, slot: int, partner: Group, group: Group
) -> bool:  # fmt: skip
    """A clear took the partner's share of a re-issued block and left this group's old one."""
    st = ctx.fold.st
    c = ctx.fold.component(slot, group)
    named = ctx.fold.group(cleared.get("group"))
    old = st.cid[c] > 0 and st.cgen[c] >= 0 and st.cgen[c] != st.gen[slot]
    return named is partner and cleared.pos > st.alloc_pos[slot] and old


def _takes(ctx: Context, copied: Event, group: Group) -> bool:
    """Whether a copy took this group's share (all shares, where it names no group)."""
    named = copied.get("dst_group", copied.get("group"))
    return named is None or ctx.fold.group(named) is group


def _partner_slot(read: Read, slot: int, partner: Group) -> int:
    """Where the partner keeps the same tokens: the same block of a shared table, or the block
    at the same place of the request's own."""
    if partner.table == read.group.table and partner.pool is read.group.pool:
        return slot
    if read.request is None:
        return -1
    mine, theirs = read.request.table(read.group.table_id), read.request.table(partner.table_id)
    if slot in mine and len(mine) == len(theirs):
        return theirs[mine.index(slot)]
    return -1


def _tell(ctx: Context, read: Read, taken: Taken) -> Finding | None:
    name = read.request.name if read.request else None
    partner, group = taken.partner, read.group
    return ctx.report(
        "HKV307",
        f"group {partner.name} was {taken.did} without group {group.name}, which must travel "
        f"with it; {'request ' + name if name else 'a kernel'} now misses its rows",
        [*taken.events, read.check, read.event.pos],
        slots=taken.slots,
        group=group,
        request=name,
        check=taken.events[0],
        use=read.event.pos,
        step=read.event.step,
        believed={"moved": [partner.name, group.name]},
        actual={"moved": [partner.name]},
    )
