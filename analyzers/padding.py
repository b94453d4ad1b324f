"""802: rows of padding touch nothing that lives, and null or stale rows reach no kernel."""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.needs import aligned
from hkvtool.state.serving import known


class Padding(Silent):
    """Follows which blocks were zeroed, and where padding was written since."""

    codes = frozenset({"HKV802"})
    kinds = frozenset({"write", "index", "seal", "use", "zero"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.clean: dict[int, bool] = {}
        self.written: dict[int, int] = {}

    def before(self, event: Event) -> None:
        ev = event.ev
        if ev in ("write", "index", "seal") and event.get("pad"):
            self._pad_write(event)
        elif ev == "use" and event.get("pad"):
            self._pad_read(event)
        elif ev == "use":
            self._null_row(event)
            self._stale_row(event)
        elif ev == "zero":
            for slot in self.ctx.slots(event):
                self.clean[slot] = True
                self.written.pop(slot, None)

    def _pad_write(self, event: Event) -> None:
        for slot in self.ctx.slots(event):
            if slot < 0:
                continue
            pool = self.ctx.fold.pool_of(slot)
            if self.ctx.fold.block_of[slot] in pool.reserved:
                self.clean[slot] = False
                self.written[slot] = event.pos
            elif self._alive(slot):
                self._tell(event, slot, "padding rows write a live block", [])

    def _pad_read(self, event: Event) -> None:
        for slot in self.ctx.slots(event):
            if slot < 0:
                self._row(event, "padding rows read block -1")
                continue
            pool = self.ctx.fold.pool_of(slot)
            reserved = self.ctx.fold.block_of[slot] in pool.reserved
            if not reserved and self._alive(slot):
                self._tell(event, slot, "padding rows read a live block", [])
            elif not self._never_initialised(slot, pool):
                continue
            elif reserved and slot in self.written:
                what = "padding rows read a block that was not zeroed since padding was written"
                self._tell(event, slot, what, [self.written[slot]])
            else:
                what = "padding rows read a block that was never initialised"
                self._tell(event, slot, what, [])

    def _never_initialised(self, slot: int, pool: Pool) -> bool:
        if self.ctx.lost_since(self.written.get(slot, MISSING)):
            # What cleared it may be among what was lost.
            return False
        if slot in self.written:
            return True
        if pool.zeroed or self.clean.get(slot) or self.ctx.midway:
            return False
        return bool(self.ctx.fold.st.by[slot] < 0)

    def _alive(self, slot: int) -> bool:
        st = self.ctx.fold.st
        return known(self.ctx.fold, slot) and st.refs[slot] > 0

    def _null_row(self, event: Event) -> None:
        """A null or -1 row that a kernel takes for a real one."""
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        for i, block in enumerate(event["blocks"]):
            if (block < 0 or block in group.pool.reserved) and self._is_read(event, group, i):
                if self._padding_of_window(event, group, i):
                    continue
                slot = self.ctx.fold.slot(group.pool, block) if block >= 0 else -1
                if slot >= 0:
                    what = f"null block {block} reaches a kernel as a real row"
                    self._tell(event, slot, what, [])
                else:
                    self._row(event, f"row {block} reaches a kernel as a real one")
                return
        for place in event.get("index") or ():
            if place < 0:
                self._row(event, f"index {place} reaches a kernel as a real one")
                return

    def _stale_row(self, event: Event) -> None:
        """The row of a request that has ended and is not in the step reaches the kernel."""
        request = self.ctx.request(event)
        members = self.ctx.step_reqs.get(event.step) if event.step is not None else None
        if request is None or members is None or request.name in members:
            return
        if request.ended is None or request.ended > self.ctx.dispatched[event.step or 0]:
            return
        self.ctx.report(
            "HKV802",
            f"the row of request {request.name}, which ended at event {request.ended} and is not "
            f"in step {event.step}, reaches a kernel as a real one",
            [request.ended, self.ctx.dispatched[event.step or 0], event.pos],
            slots=[s for s in self.ctx.slots(event) if s >= 0],
            group=self.ctx.fold.group(event["group"]),
            request=request.name,
            check=request.ended,
            use=event.pos,
            step=event.step,
        )

    def _is_read(self, event: Event, group: Group, i: int) -> bool:
        tokens = event.get("tokens")
        if not tokens:
            return True
        unit = group.block_tokens
        first = aligned(group, len(event["blocks"]) - i, tokens[1])
        if group.form == "swa" and first + unit <= tokens[1] - group.window:
            return False
        return bool(first < tokens[1] and first + unit > tokens[0] and tokens[1] > tokens[0])

    def _padding_of_window(self, event: Event, group: Group, i: int) -> bool:
        """Null entries of a window group that lie before what the window holds."""
        if group.form != "swa" or group.window <= 0 or event.get("tokens"):
            return False
        behind = (len(event["blocks"]) - 1 - i) * group.block_tokens
        return behind >= group.window

    def _tell(self, event: Event, slot: int, what: str, events: list[int]) -> None:
        group = self.ctx.fold.group(event["group"])
        self.ctx.report(
            "HKV802",
            f"{what} (block {self.ctx.fold.block_of[slot]})",
            [*events, event.pos],
            slots=[slot],
            group=group,
            request=event.req,
            use=event.pos,
            step=event.step,
            actual=self.ctx.describe(slot, group) if group else {},
        )

    def _row(self, event: Event, what: str) -> None:
        self.ctx.report(
            "HKV802",
            what,
            [event.pos],
            group=self.ctx.fold.group(event["group"]),
            request=event.req,
            use=event.pos,
            step=event.step,
        )
