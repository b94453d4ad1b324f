"""HKV704: references and pins."""

from __future__ import annotations

from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.references import Breach, breaches, listed_while_held, sentence


class Refcounts(Silent):
    """Counts below zero, double frees, blocks listed twice, pinned blocks reused."""

    codes = frozenset({"HKV704"})

    def before(self, event: Event) -> None:
        if event.ev == "refuse":
            self._sums(event)
        for breach in breaches(self.ctx, event):
            self._tell(event, breach)

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
