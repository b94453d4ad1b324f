"""8xx: static topology. What a captured graph has baked in must be what is live."""

from __future__ import annotations

from hkvtool.analyzers.context import Context, Silent
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.resume import known


class Topology(Silent):
    """Captures against launches, padding rows, and geometry that changes under somebody."""

    codes = frozenset({"HKV801", "HKV802", "HKV803", "HKV804"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.captured: dict[str, Event] = {}
        self.live: dict[str, tuple[object, int]] = {}
        self.stale: set[str] = set()
        self.clean: dict[int, bool] = {}
        self.pad_written: dict[int, int] = {}
        self.asleep: dict[str, Event] = {}
        self.open_steps: dict[int, Event] = {}
        self.touched: dict[int, set[str]] = {}
        self.moved: dict[str, Event] = {}
        self.told: set[tuple[int, int]] = set()

    def before(self, event: Event) -> None:
        ev = event.ev
        if ev == "capture":
            self.captured[str(event["graph"])] = event
            self.stale.discard(str(event["graph"]))
        elif ev == "launch":
            self._launch(event)
        elif ev == "rebase":
            self._rebase(event)
        elif ev in ("write", "index", "seal") and event.get("pad"):
            self._pad_write(event)
        elif ev == "use" and event.get("pad"):
            self._pad_read(event)
        elif ev == "use":
            self._null_row(event)
            self._stale_row(event)
        elif ev == "zero":
            for slot in self.ctx.slots(event):
                self.clean[slot] = True
                self.pad_written.pop(slot, None)
        elif ev == "dispatch":
            self.open_steps[event["step"]] = event
        elif ev == "retire":
            self.open_steps.pop(event["step"], None)
            self.touched.pop(event["step"], None)
        if ev in ("write", "use", "seal", "index", "copy", "zero", "store_begin", "load_begin"):
            self._access(event)

    # --- 801 -------------------------------------------------------------------------------

    def _launch(self, event: Event) -> None:
        if event.get("bypass"):
            return
        graph = str(event["graph"])
        capture = self.captured.get(graph)
        if capture is None or graph in self.stale:
            return
        baked = capture.get("pointers") or {}
        now = dict(event.get("pointers") or {})
        changed_at = capture.pos
        for name, (value, pos) in self.live.items():
            if name not in now and pos > capture.pos:
                now[name] = value
                changed_at = pos
        wrong = [name for name, value in baked.items() if name in now and now[name] != value]
        if not wrong:
            return
        self.stale.add(graph)
        said = "; ".join(f"{n} {baked[n]} baked in, {now[n]} live" for n in wrong[:3])
        group = next(iter(self.ctx.fold.declared.groups.values()), None)
        self.ctx.report(
            "HKV801",
            f"graph {graph} is launched with what is no longer so: {said}",
            [capture.pos, *([changed_at] if changed_at != capture.pos else []), event.pos],
            group=group,
            request=event.req,
            check=capture.pos,
            use=event.pos,
            step=event.step,
            believed={n: baked[n] for n in wrong},
            actual={n: now[n] for n in wrong},
        )

    # --- 802 -------------------------------------------------------------------------------

    def _pad_write(self, event: Event) -> None:
        for slot in self.ctx.slots(event):
            if slot < 0:
                continue
            pool = self.ctx.fold.pool_of(slot)
            if self.ctx.fold.block_of[slot] in pool.reserved:
                self.clean[slot] = False
                self.pad_written[slot] = event.pos
            elif self._alive(slot):
                self._tell(event, slot, "padding rows write a live block", [])

    def _pad_read(self, event: Event) -> None:
        for slot in self.ctx.slots(event):
            if slot < 0:
                self._row(event, "padding rows read block -1")
                continue
            pool = self.ctx.fold.pool_of(slot)
            if self.ctx.fold.block_of[slot] not in pool.reserved:
                if self._alive(slot):
                    self._tell(event, slot, "padding rows read a live block", [])
                elif self._never_initialised(slot, pool):
                    self._tell(
                        event, slot, "padding rows read a block that was never initialised", []
                    )
            elif self._never_initialised(slot, pool):
                where = [self.pad_written[slot]] if slot in self.pad_written else []
                what = "padding rows read a block that was not zeroed since padding was written"
                if not where:
                    what = "padding rows read a block that was never initialised"
                self._tell(event, slot, what, where)

    def _never_initialised(self, slot: int, pool: Pool) -> bool:
        if slot in self.pad_written:
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
                if event["blocks"] == [] or self._padding_of_window(event, group, i):
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
        first = (tokens[1] - 1) // unit * unit - (len(event["blocks"]) - 1 - i) * unit
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

    # --- 804 -------------------------------------------------------------------------------

    def _pools(self, event: Event) -> list[Pool]:
        """Pools whose memory a rebase moves."""
        declared = self.ctx.fold.declared
        group = self.ctx.fold.group(event.get("group"))
        if "pool" in event:
            pool = declared.pools.get(str(event["pool"]))
            return [pool] if pool else []
        if group is not None:
            return [group.pool]
        return [p for p in declared.pools.values() if not p.tier]

    def _rebase(self, event: Event) -> None:
        for name, value in (event.get("pointers") or {}).items():
            self.live[name] = (value, event.pos)
        pools = self._pools(event)
        named = {p.name for p in pools}
        for pool in pools:
            self.moved[pool.name] = event
            if event.get("reason") == "sleep":
                self.asleep[pool.name] = event
            else:
                self.asleep.pop(pool.name, None)
        for handle, transfer in self.ctx.fold.transfers.items():
            number = self.ctx.fold.names.find("handle", handle)
            if self.ctx.fold.st.t_state[number] != 1:
                continue
            far = transfer.far.name if transfer.far else None
            if transfer.group.pool.name in named or far in named:
                self._moved_under(transfer.begin, event, f"transfer {handle} is under way")
        for step, pools_touched in self.touched.items():
            if step in self.open_steps and pools_touched & named and step not in self.ctx.launched:
                begin = self.open_steps[step]
                self.told.add((step, event.pos))
                self._moved_under(begin, event, f"step {step} is in flight")

    def _access(self, event: Event) -> None:
        group = self.ctx.fold.group(event.get("group"))
        _, pool = self.ctx.fold.place(event)
        if pool is None:
            return
        if event.step is not None:
            self.touched.setdefault(event.step, set()).add(pool.name)
            self._late(event, event.step, pool)
        sleeping = self.asleep.get(pool.name)
        if sleeping is not None and event.step not in self.ctx.launched:
            del self.asleep[pool.name]
            self.ctx.report(
                "HKV804",
                f"group {group.name if group else pool.name} is used while its memory is given up",
                [sleeping.pos, event.pos],
                slots=[s for s in self.ctx.slots(event) if s >= 0] if "blocks" in event else [],
                group=group,
                request=event.req,
                check=sleeping.pos,
                use=event.pos,
                step=event.step,
            )

    def _late(self, event: Event, step: int, pool: Pool) -> None:
        """An eager step that was dispatched before the memory moved, and works behind it."""
        moved = self.moved.get(pool.name)
        sent = self.ctx.dispatched.get(step)
        if moved is None or sent is None or sent > moved.pos or step in self.ctx.launched:
            return
        if (step, moved.pos) not in self.told:
            self.told.add((step, moved.pos))
            self._moved_under(event, moved, f"step {step} was dispatched before, and still works")

    def _moved_under(self, user: Event, rebase: Event, what: str) -> None:
        group = self.ctx.fold.group(user.get("group"))
        slots = [s for s in self.ctx.slots(user) if s >= 0] if "blocks" in user else []
        self.ctx.report(
            "HKV804",
            f"{what} when the memory behind it changes ({rebase.get('reason', 'rebase')})",
            [user.pos, rebase.pos],
            slots=slots,
            group=group,
            request=user.req,
            check=user.pos,
            use=rebase.pos,
            step=user.step,
        )
