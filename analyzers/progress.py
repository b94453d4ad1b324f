"""503 and 504: work must go on, and a preemption must give something back."""

from __future__ import annotations

from hkvtool.analyzers.admission import limits_of
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event

_ADVANCES = frozenset({"write", "seal", "index", "use", "admit", "resume", "finish"})


class Progress(Silent):
    """Stalls, deadlocks, waits that are never signalled and fruitless preemptions."""

    codes = frozenset({"HKV503", "HKV504"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.waiting: dict[str, Event] = {}
        self.idle: list[Event] = []
        self.quiet_since: Event | None = None
        self.told_stall = False
        self.victims: dict[str, list[Event]] = {}
        self.told_yield: set[str] = set()
        self.signals: set[str] = set()
        self.waits: dict[str, Event] = {}
        self.stuck: tuple[Event, list[str]] | None = None

    def before(self, event: Event) -> None:
        if self.ctx.after_loss(event):
            # Whoever waited may have gone on, and who was preempted have given something back.
            self._advanced()
            for known in (self.waiting, self.victims, self.told_yield):
                known.clear()
        if event.ev == "free":
            self._freed(event)

    def after(self, event: Event) -> None:
        ev = event.ev
        if ev == "alloc":
            self.stuck = None
        elif ev in ("store_end", "load_end"):
            self._advanced()
        elif ev == "refuse":
            self._refused(event)
        elif ev == "preempt" and event.req is not None:
            for refused in self.victims.values():
                refused.append(event)
            self.waiting.setdefault(event.req, event)
        elif ev == "signal":
            self.signals.add(str(event["event"]))
        elif ev == "wait" and str(event["event"]) not in self.signals:
            self.waits.setdefault(str(event["event"]), event)
        elif ev == "dispatch":
            self._dispatch(event)
        elif ev == "abort" and event.req is not None:
            self._settled(event.req)
        if ev in _ADVANCES and (event.req is not None or event.step is not None):
            self._advanced()
            if event.req is not None and ev != "finish":
                self._settled(event.req)
        if self.waiting:
            self._patience_ns(event)

    def forget(self, before: int) -> None:
        over = self.ctx.requests.over
        self.victims = {name: said for name, said in self.victims.items() if name not in over}

    def _refused(self, event: Event) -> None:
        name = str(event["req"])
        self.waiting.setdefault(name, event)
        preempted = self.victims.pop(name, [])
        if len(preempted) > 1 and name not in self.told_yield:
            first, victim = preempted[0], preempted[1]
            self.told_yield.add(name)
            group = None
            slots: list[int] = []
            held = self.ctx.requests.by_name.get(str(victim["req"]))
            if held is not None:
                slots = sorted(held.held)
                tables = {g.table_id: g for g in self.ctx.fold.declared.groups.values()}
                group = tables.get(self.ctx.fold.st.table[slots[0]]) if slots else None
            self.ctx.report(
                "HKV504",
                f"request {victim['req']} was preempted for {name}, but gave nothing back before "
                f"{name} was refused again",
                [first.pos, victim.pos, event.pos],
                slots=slots,
                group=group,
                request=str(victim["req"]),
                check=victim.pos,
                use=event.pos,
                believed={"yields": True},
                actual={"free": event.get("free"), "needs": event.get("needs")},
            )
        self.victims[name] = [event]
        self._deadlock(event)

    def _freed(self, event: Event) -> None:
        """Something was given back: the preemptions so far were not in vain."""
        self.stuck = None
        st = self.ctx.fold.st
        if not any(s >= 0 and st.refs[s] == 1 for s in self.ctx.slots(event)):
            return
        for name, events in self.victims.items():
            if len(events) > 1:
                self.victims[name] = events[:1]

    def _settled(self, name: str) -> None:
        self.waiting.pop(name, None)
        self.victims.pop(name, None)
        self.told_yield.discard(name)

    def _advanced(self) -> None:
        self.idle.clear()
        self.quiet_since = None
        self.told_stall = False
        self.stuck = None

    def _dispatch(self, event: Event) -> None:
        if event.get("reqs") or not self.waiting:
            return
        self.idle.append(event)
        for limit, patience in limits_of(self.ctx, "stall_steps", None):
            if len(self.idle) > patience and not self.told_stall:
                self._stalled(limit, event, f"{len(self.idle)} steps")

    def _patience_ns(self, event: Event) -> None:
        ts = event.get("ts")
        if ts is None or not self.waiting:
            return
        if self.quiet_since is None:
            self.quiet_since = event
            return
        for limit, patience in limits_of(self.ctx, "stall_ns", None):
            since = self.quiet_since.get("ts")
            if since is not None and ts - since > patience and not self.told_stall:
                self._stalled(limit, event, f"{ts - since:,} ns")

    def _stalled(self, limit: Event, event: Event, what: str) -> None:
        self.told_stall = True
        first = min(self.waiting.values(), key=lambda e: e.pos)
        st = self.ctx.fold.st
        held = [
            s for s in range(len(self.ctx.fold.block_of))
            if st.refs[s] > 0 and not self.ctx.fold.pool_of(s).tier
        ]  # fmt: skip
        pool = self.ctx.fold.declared.pools.get(str(first.get("pool")))
        if pool is not None:
            held = [s for s in self.ctx.fold.slots_of(pool).values()
                    if st.refs[s] > 0 or st.live[s] > 0]  # fmt: skip
        group = next(
            (g for g in self.ctx.fold.declared.groups.values() if pool is None or g.pool is pool),
            None,
        )
        self.ctx.report(
            "HKV503",
            f"request {first.req} waits (refused at event {first.pos}) and {what} pass in which no "
            "request advances and no transfer ends",
            [limit.pos, first.pos, event.pos],
            slots=held,
            group=group,
            request=first.req,
            check=first.pos,
            use=event.pos,
            believed={"progress": True},
            actual={"waiting": sorted(self.waiting)[:8], "free": first.get("free")},
        )

    def _deadlock(self, event: Event) -> None:
        """Everyone who holds blocks of the pool is waiting: nobody will give any back."""
        needs, free = event.get("needs"), event.get("free")
        if needs is None or free is None or needs <= free or self.ctx.moves.running:
            return
        if len(self.ctx.dispatched) > len(self.ctx.retired):
            return
        holders = {
            name
            for name, request in self.ctx.requests.by_name.items()
            if request.held and request.is_request and request.ended is None
        }
        if len(holders & set(self.waiting)) >= 2 and holders <= set(self.waiting):
            if self.stuck is None:
                self.stuck = (event, sorted(holders))

    def finish(self) -> None:
        if self.stuck is not None and not self.told_stall:
            event, names = self.stuck
            self.ctx.report(
                "HKV503",
                f"requests {', '.join(names)} wait for blocks that only they hold",
                [*(self.waiting[n].pos for n in names if n in self.waiting), event.pos],
                request=event.req,
                check=self.waiting[names[0]].pos if names[0] in self.waiting else event.pos,
                use=event.pos,
                actual={"waiting": names, "free": event.get("free"), "needs": event.get("needs")},
            )
        if self.ctx.midway or self.ctx.lost:
            return
        for name, event in self.waits.items():
            if name not in self.signals:
                self.ctx.report(
                    "HKV503",
                    f"lane {event.actor} waits for {name}, which is never signalled",
                    [event.pos],
                    request=event.req,
                    use=event.pos,
                    believed={"event": name},
                )
