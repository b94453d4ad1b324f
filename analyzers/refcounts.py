"""HKV704: references, pins and the right to a block."""

from __future__ import annotations

from collections import Counter

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.wording import shown
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.reading import Read
from hkvtool.state.serving import known


def right_faults(ctx: Context, read: Read) -> list[Fault]:
    """The step was dispatched with a block that was then free, or only another request's."""
    request, step = read.request, read.event.step
    if request is None or step is None or step not in ctx.dispatched:
        return []
    st = ctx.fold.st
    faults: list[Fault] = []
    for i, slot in enumerate(read.slots):
        if slot < 0 or read.gens[i] >= 0 or not known(ctx.fold, slot):
            continue
        if ctx.fold.block_of[slot] in read.group.pool.reserved or st.known[slot] != a.ALLOCATED:
            continue
        others = [n for n in ctx.requests.holders.get(slot, {}) if n != request.name]
        tokens = read.spans[i] or (0, 0)
        if st.refs[slot] <= 0 and 0 <= st.free_pos[slot] < ctx.dispatched[step]:
            why = f"it was free when the step was dispatched (freed at event {st.free_pos[slot]})"
            faults.append(Fault("HKV704", Kind.NO_RIGHT, slot, tokens, why))
        elif others and st.alloc_pos[slot] < ctx.dispatched[step]:
            why = f"request {others[0]} holds it and this one does not"
            faults.append(Fault("HKV704", Kind.NO_RIGHT, slot, tokens, why))
    return faults


class Refcounts(Silent):
    """Counts below zero, double frees, blocks listed twice, pinned blocks reused."""

    codes = frozenset({"HKV704"})

    def after(self, event: Event) -> None:
        if event.ev == "state" and event.get("free_order"):
            _, pool = self.ctx.fold.place(event)
            listed = (
                [] if pool is None else [self.ctx.fold.slot(pool, b) for b in event["free_order"]]
            )
            held = [s for s in listed if self._certain(s) and self.ctx.fold.st.refs[s] > 0]
            if held:
                self._tell(event, held, "in the free list while it is referenced", [])

    def before(self, event: Event) -> None:
        if event.ev == "refuse":
            self._sums(event)
        elif event.ev == "free":
            self._free(event)
        elif event.ev == "alloc":
            self._alloc(event)
        elif event.ev == "unpin":
            self._unpin(event)
        elif event.ev == "unpublish" and event.get("reason") == "evict":
            self._evict(event)

    def _certain(self, slot: int) -> bool:
        return slot >= 0 and known(self.ctx.fold, slot)

    def _reserved(self, slot: int) -> bool:
        return self.ctx.fold.block_of[slot] in self.ctx.fold.pool_of(slot).reserved

    def _free(self, event: Event) -> None:
        st = self.ctx.fold.st
        request = self.ctx.request(event)
        slots = [s for s in self.ctx.slots(event) if self._certain(s) and not self._reserved(s)]
        times = Counter(slots)
        below = [s for s, n in times.items() if st.refs[s] < n]
        if below:
            last = [st.free_pos[s] for s in below[:2]]
            self._tell(event, below, "released more often than it was taken", last)
            return
        twice = [
            s for s, n in times.items()
            if n > 1 and request is not None and 0 < request.held.get(s, 0) < n
        ]  # fmt: skip
        if twice:
            self._tell(event, twice, "listed twice for one owner", [])

    def _sums(self, event: Event) -> None:
        """The pool claims more free blocks than can be, with what is known to be held."""
        pool = self.ctx.fold.declared.pools.get(str(event.get("pool")))
        free = event.get("free")
        if pool is None or free is None or self.ctx.lost:
            return
        st = self.ctx.fold.st
        slots = self.ctx.fold.slots_of(pool)
        held = [
            s for b, s in slots.items()
            if st.refs[s] > 0 and st.known[s] != a.UNKNOWN and b not in pool.reserved
        ]  # fmt: skip
        most = pool.blocks - len(pool.reserved) - len(held)
        if free > most:
            self.ctx.report(
                "HKV704",
                f"pool {pool.name} says that {free} blocks are free, but {len(held)} of "
                f"{pool.blocks} are held",
                [*(st.alloc_pos[s] for s in held[-3:]), event.pos],
                slots=held,
                request=event.req,
                use=event.pos,
                believed={"free": free},
                actual={"free": most},
            )

    def _alloc(self, event: Event) -> None:
        st = self.ctx.fold.st
        slots = self.ctx.slots(event)
        sure = [s for s in slots if self._certain(s) and not self._reserved(s)]
        pinned = [s for s in sure if st.pins[s] > 0]
        if pinned:
            self._tell(event, pinned, "handed out while it is pinned", [])
        held = [s for s in sure if st.refs[s] > 0 and s not in pinned]
        if held:
            where = [st.alloc_pos[s] for s in held[:2]]
            self._tell(event, held, "handed out while it is still referenced", where)
        double = [s for s, n in Counter(s for s in slots if s >= 0).items() if n > 1]
        if double:
            self._tell(event, double, "handed out twice at once", [])

    def _unpin(self, event: Event) -> None:
        st = self.ctx.fold.st
        times = Counter(s for s in self.ctx.slots(event) if self._certain(s))
        below = [s for s, n in times.items() if st.pins[s] < n]
        if below:
            self._tell(event, below, "unpinned more often than it was pinned", [])

    def _evict(self, event: Event) -> None:
        pinned = [
            s for s in self.ctx.slots(event) if self._certain(s) and self.ctx.fold.st.pins[s] > 0
        ]
        if pinned:
            self._tell(event, pinned, "evicted while it is pinned", [])

    def _tell(self, event: Event, slots: list[int], what: str, events: list[int]) -> None:
        fold = self.ctx.fold
        blocks = [fold.block_of[s] for s in slots]
        group = self.ctx.fold.group(event.get("group"))
        one = f"block {blocks[0]} is" if len(blocks) == 1 else f"blocks {shown(blocks)} are"
        who = event.req if event.req is not None else event.get("owner")
        self.ctx.report(
            "HKV704",
            f"{one} {what}" + (f" (by {who})" if who is not None else ""),
            [*events, event.pos],
            slots=slots,
            group=group,
            request=event.req,
            use=event.pos,
            actual={"references": fold.st.refs[slots[0]], "pins": fold.st.pins[slots[0]]},
        )
