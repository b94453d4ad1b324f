"""705, 707 and 708: lent bytes, places on the map, and writes into shared blocks."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.moves import copy_slots
from hkvtool.state.serving import filled, known, live_entries

_ADDRESSED = frozenset({"use", "write", "seal", "index", "store_begin", "load_begin"})


class Pointers(Silent):
    """What is addressed must be where it is, lent while it is read, and one's own to write."""

    codes = frozenset({"HKV705", "HKV707", "HKV708"})
    kinds = frozenset(
        {
            "lease",
            "load_end",
            "store_end",
            "use",
            "write",
            "seal",
            "index",
            "copy",
            "store_begin",
            "load_begin",
            "remap",
        }
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.mapped: dict[tuple[str, int], int] = {}
        """Where the place of a logical block was last said."""
        self.expired: dict[str, Event] = {}
        self.begun: dict[str, Event] = {}

    def before(self, event: Event) -> None:
        ev = event.ev
        if self.ctx.after_loss(event):
            # Another grant may be among what was lost.
            self.expired.clear()
        if ev == "remap":
            pool = str(event["pool"])
            self.mapped.update(((pool, int(block)), event.pos) for block in event["map"])
        elif ev == "lease":
            self._lease(event)
        elif ev in ("load_end", "store_end"):
            self._lease_at_end(event)
        if ev in _ADDRESSED and "index" in event:
            self._place(event)
        if ev in ("write", "seal") and not event.get("pad"):
            self._shared(event)
        if ev == "copy":
            self._copied_over(event)
        if ev in ("store_begin", "load_begin"):
            self.begun[str(event["handle"])] = event

    def forget(self, before: int) -> None:
        running = self.ctx.moves.running
        for name, begin in list(self.begun.items()):
            if begin.pos < before and name not in running:
                del self.begun[name]
                self.expired.pop(name, None)

    # --- 705 -------------------------------------------------------------------------------

    def _lease(self, event: Event) -> None:
        handle = str(event["handle"])
        if event["op"] == "grant":
            self.expired.pop(handle, None)
        else:
            self.expired.setdefault(handle, event)

    def _lease_at_end(self, event: Event) -> None:
        handle = str(event["handle"])
        lapsed = self.expired.get(handle)
        begin = self.begun.get(handle)
        if lapsed is None or begin is None or event.get("ok") is False:
            return
        self.ctx.report(
            "HKV705",
            f"transfer {handle} ends well after its lease had ended at event {lapsed.pos}: the "
            "bytes may have been another's by then",
            [begin.pos, lapsed.pos, event.pos],
            slots=[s for s in self.ctx.slots(begin) if s >= 0],
            group=self.ctx.fold.group(begin["group"]),
            request=begin.req,
            check=lapsed.pos,
            use=event.pos,
            believed={"lease": "held"},
            actual={"lease": lapsed["op"] + ("d" if lapsed["op"].endswith("e") else "ed")},
        )

    # --- 707 -------------------------------------------------------------------------------

    def _place(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        pool = group.pool
        places, blocks = event["index"], event["blocks"]
        if len(places) != len(blocks):
            return
        wrong = [
            (b, i) for b, i in zip(blocks, places, strict=True)
            if i >= 0 and b >= 0 and pool.map.get(b, b) != i
            and not self.ctx.lost_since(self.mapped.get((pool.name, b), MISSING))
        ]  # fmt: skip
        if not wrong:
            return
        block, index = wrong[0]
        right = pool.map.get(block, block)
        slots = [self.ctx.fold.slot(pool, b) for b, _ in wrong]
        others = [self.ctx.fold.find(pool, i) for _, i in wrong]
        finding = self.ctx.report(
            "HKV707",
            f"block {block} of group {group.name} is addressed at index {index}, but the map has "
            f"it at {right}",
            [pool.map_pos if pool.map_pos >= 0 else None, event.pos],
            slots=[s for s in [*slots, *others] if s is not None and s >= 0],
            group=group,
            request=event.req,
            check=pool.map_pos if pool.map_pos >= 0 else None,
            use=event.pos,
            step=event.step,
            believed={"index": [i for _, i in wrong]},
            actual={"index": [pool.map.get(b, b) for b, _ in wrong]},
        )
        if finding is not None:
            finding.blocks = list(dict.fromkeys([*(b for b, _ in wrong), *finding.blocks]))

    # --- 708 -------------------------------------------------------------------------------

    def _shared(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        tokens = event.get("tokens")
        if group is None or tokens is None or (group.form == "recurrent" and event.req is None):
            return
        request = self.ctx.request(event)
        unit = group.block_tokens
        first = tokens[0] - tokens[0] % unit
        wrong: list[int] = []
        why = ""
        for i, slot in enumerate(self.ctx.slots(event)):
            if slot < 0 or not known(self.ctx.fold, slot):
                continue
            if self.ctx.fold.block_of[slot] in group.pool.reserved:
                continue
            low = max(tokens[0], first + i * unit)
            found = self._fault(event, group, slot, low, request.name if request else None)
            if found:
                wrong.append(slot)
                why = why or found
        if wrong:
            st = self.ctx.fold.st
            entry = st.first_entry[wrong[0]]
            self.ctx.report(
                "HKV708",
                f"request {event.req} writes tokens {tokens[0]} to {tokens[1]} into block "
                f"{self.ctx.fold.block_of[wrong[0]]} of group {group.name}, {why}",
                [st.e_pos[entry] if entry >= 0 else st.alloc_pos[wrong[0]], event.pos],
                slots=wrong,
                group=group,
                request=event.req,
                check=st.e_pos[entry] if entry >= 0 else None,
                use=event.pos,
                step=event.step,
                tokens=tuple(tokens),
                believed={"private": True},
                actual=self.ctx.describe(wrong[0], group),
            )

    def _copied_over(self, event: Event) -> None:
        """The destination of a copy is published for others to hit."""
        st = self.ctx.fold.st
        _, targets = copy_slots(self.ctx.fold, event)
        wrong = [
            s for s in targets
            if s >= 0 and known(self.ctx.fold, s) and st.live[s] > 0 and self._hit_now(s)
        ]  # fmt: skip
        if wrong:
            entry = st.first_entry[wrong[0]]
            self.ctx.report(
                "HKV708",
                f"a copy overwrites block {self.ctx.fold.block_of[wrong[0]]}, which is published "
                "for others to hit",
                [st.e_pos[entry], event.pos],
                slots=wrong,
                group=self.ctx.fold.group(event.get("dst_group", event.get("group"))),
                request=event.req,
                check=st.e_pos[entry],
                use=event.pos,
                step=event.step,
            )

    def _hit_now(self, slot: int) -> bool:
        """A live hash of this generation leads to the block, and its content is there."""
        fold = self.ctx.fold
        st = fold.st
        if all(st.e_gen[e] != st.gen[slot] for e in live_entries(fold, slot)):
            return False
        width = st.h[a.COMPONENTS]
        return any(
            filled(fold, slot, c) and st.pver[c] != a.PENDING
            for c in range(slot * width, (slot + 1) * width)
        )

    def _fault(
        self, event: Event, group: Group, slot: int, low: int, writer: str | None
    ) -> str | None:
        """Why the write is no private one, or None."""
        st = self.ctx.fold.st
        c = self.ctx.fold.component(slot, group)
        if self.ctx.meant(slot, event.step) != st.gen[slot]:
            return None
        owner = st.owner[slot]
        recurrent = group.form == "recurrent"
        own = owner >= 0 and str(self.ctx.fold.names.name("req", owner)) == writer
        published = st.pgen[c] == st.gen[slot] and st.live[slot] > 0
        free_to = published and st.pver[c] == a.PENDING
        if own:
            # Its own tokens may be written again, and more behind them; a state has neither.
            return "which is published" if recurrent and published and not free_to else None
        if st.refs[slot] > 1:
            return f"which {st.refs[slot]} holders share"
        end = st.pub_hi[c]
        if not recurrent and end != MISSING and low >= end and end % group.block_tokens:
            # Behind a partial entry.
            free_to = True
        return "which is published for others to hit" if published and not free_to else None
