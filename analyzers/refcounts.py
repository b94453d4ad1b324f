"""HKV704: references and pins."""

from __future__ import annotations

from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.references import Breach, breaches, listed_while_held, sentence
from hkvtool.state.serving import known

_WRITES = frozenset({"write", "seal", "index"})


class Refcounts(Silent):
    """Counts below zero, double frees, blocks listed twice, pinned blocks reused."""

    codes = frozenset({"HKV704"})
    kinds = frozenset(
        {"refuse", "free", "alloc", "unpin", "unpublish", "write", "seal", "index", "state"}
    )

    def before(self, event: Event) -> None:
        if event.ev == "refuse":
            self._sums(event)
        for breach in breaches(self.ctx, event):
            self._tell(event, breach)
        if event.ev in _WRITES:
            self._stranger(event)

    def after(self, event: Event) -> None:
        for breach in listed_while_held(self.ctx, event):
            self._tell(event, breach)

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

    def _stranger(self, event: Event) -> None:
        """A step writes a block that one other request holds, for itself alone, and this one does
        not: whatever that request kept there is gone. What is shared, or published and filled, is
        708's."""
        ctx, step = self.ctx, event.step
        group = ctx.fold.group(event["group"])
        if event.req is None or event.get("pad") or group is None:
            return
        if step is not None and step not in ctx.dispatched:
            return
        at = event.pos if step is None else ctx.dispatched[step]
        writer, st = ctx.request(event), ctx.fold.st
        for slot in ctx.slots(event):
            if slot < 0 or not known(ctx.fold, slot) or st.known[slot] != a.ALLOCATED:
                continue
            early = st.pver[ctx.fold.component(slot, group)] == a.PENDING
            if st.refs[slot] != 1 or st.alloc_pos[slot] >= at or (st.live[slot] and not early):
                continue
            block = ctx.fold.block_of[slot]
            others = [n for n in ctx.requests.holders.get(slot, {}) if n != event.req]
            mine = writer is not None and writer.held_at(slot, at)
            if mine or len(others) != 1 or block in group.pool.reserved:
                continue
            does = f"request {event.req} writes block {block} of group {group.name}"
            ctx.report(
                "HKV704",
                f"{does}, which request {others[0]} holds and this one does not",
                [st.alloc_pos[slot], event.pos],
                slots=[slot],
                group=group,
                request=others[0],
                step=step,
                check=st.alloc_pos[slot],
                use=event.pos,
                believed={"holder": event.req},
                actual={"holder": others[0]},
            )

    def _tell(self, event: Event, breach: Breach) -> None:
        fold = self.ctx.fold
        first = breach.slots[0]
        self.ctx.report(
            "HKV704",
            sentence(fold, event, breach),
            [*breach.events, event.pos],
            slots=breach.slots,
            group=fold.group(event.get("group")),
            request=event.req,
            use=event.pos,
            actual={"references": fold.st.refs[first], "pins": fold.st.pins[first]},
        )
