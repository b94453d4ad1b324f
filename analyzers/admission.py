"""5xx: admission cap and progress. What is on its way must be bounded, and work must go on."""

from __future__ import annotations

from hkvtool.analyzers.context import Context, Silent
from hkvtool.model.event import Event
from hkvtool.model.rules import Severity

_ADVANCES = frozenset({"write", "seal", "index", "use", "admit", "resume", "finish"})


class Admission(Silent):
    """Caps on blocks and bytes in flight, thrash, stalls, deadlocks and fruitless preemptions."""

    codes = frozenset({"HKV501", "HKV502", "HKV503", "HKV504"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.flying: dict[str, tuple[Event, int]] = {}
        self.over: set[str] = set()
        self.trips: dict[object, list[Event]] = {}
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
        if event.ev == "free":
            self._freed(event)

    def after(self, event: Event) -> None:
        ev = event.ev
        if ev == "alloc":
            self.stuck = None
        if ev in ("store_begin", "load_begin"):
            self._begin(event)
        elif ev in ("store_end", "load_end"):
            self.flying.pop(str(event["handle"]), None)
            self.over.clear()
            self._progress(event)
        elif ev == "use":
            self._used(event)
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
            self._progress(event)
            if event.req is not None and ev != "finish":
                self._settled(event.req)
        self._patience_ns(event)

    # --- caps ------------------------------------------------------------------------------

    def _limits(self, key: str, group: str | None) -> list[tuple[Event, int]]:
        """Limits in force on a group: its own and those of all."""
        found: dict[str | None, tuple[Event, int]] = {}
        for event in self.ctx.fold.declared.limits:
            named = event.get("group")
            if key in event and (named is None or str(named) == group):
                found[None if named is None else str(named)] = (event, event[key])
        return list(found.values())

    def _begin(self, event: Event) -> None:
        self.flying[str(event["handle"])] = (event, event.get("bytes") or 0)
        group = str(event["group"])
        for limit, cap in self._limits("recovering_blocks", group):
            self._cap_blocks(event, limit, cap)
        for limit, cap in self._limits("recovering_bytes", group):
            self._cap_bytes(event, limit, cap)
        self._trip(event)

    def _cap_blocks(self, event: Event, limit: Event, cap: int) -> None:
        if event.ev != "load_begin":
            return
        st = self.ctx.fold.st
        only = limit.get("group")
        recovering: set[int] = set()
        begins: list[int] = []
        for begin, _ in self.flying.values():
            if begin.ev != "load_begin" or (only is not None and begin["group"] != only):
                continue
            slots = self.ctx.slots(begin)
            recovering.update(s for s in slots if s >= 0 and st.loads[s] > 0)
            begins.append(begin.pos)
        count = len(recovering)
        if count > cap and "blocks" not in self.over:
            self.over.add("blocks")
            self.ctx.report(
                "HKV501",
                f"{count} blocks are recovering at once, {cap} are allowed",
                [limit.pos, *begins[-6:]],
                slots=self.ctx.slots(event),
                group=self.ctx.fold.group(event["group"]),
                request=event.req,
                check=limit.pos,
                use=event.pos,
                believed={"recovering_blocks": cap},
                actual={"recovering_blocks": count},
            )

    def _cap_bytes(self, event: Event, limit: Event, cap: int) -> None:
        only = limit.get("group")
        flying = [
            (begin, size) for begin, size in self.flying.values()
            if only is None or begin["group"] == only
        ]  # fmt: skip
        total = sum(size for _, size in flying)
        if total > cap and "bytes" not in self.over:
            self.over.add("bytes")
            self.ctx.report(
                "HKV502",
                f"{total:,} transfer bytes are in flight, {cap:,} are allowed",
                [limit.pos, *(begin.pos for begin, _ in flying[-6:])],
                slots=self.ctx.slots(event),
                group=self.ctx.fold.group(event["group"]),
                request=event.req,
                check=limit.pos,
                use=event.pos,
                believed={"recovering_bytes": cap},
                actual={"in_flight_bytes": total},
            )

    def _names(self, event: Event) -> list[object]:
        """What travels, by hash where one is live or stated, else by block."""
        st = self.ctx.fold.st
        stated = event.get("hashes")
        names: list[object] = []
        for i, slot in enumerate(self.ctx.slots(event)):
            if stated and i < len(stated):
                names.append((event["group"], str(stated[i])))
                continue
            entry = st.first_entry[slot] if slot >= 0 else -1
            if entry >= 0 and st.e_live[entry] == 1:
                names.append(
                    (event["group"], str(self.ctx.fold.names.name("hash", st.e_hash[entry])))
                )
            else:
                peer = (event.get("peer") or [])[i : i + 1]
                names.append((event["group"], "peer", *peer) if peer else (event["group"], slot))
        return names

    def _trip(self, event: Event) -> None:
        """502 as a warning: the same content goes out and in without a use between."""
        allowed = self._limits("thrash_trips", str(event["group"]))
        trips = allowed[-1][1] if allowed else 2
        told = False
        for name in self._names(event):
            held = self.trips.setdefault(name, [])
            if not held and event.ev == "load_begin":
                continue
            if not held or held[-1].ev != event.ev:
                held.append(event)
            round_trips = len(held) // 2
            if round_trips >= trips and event.ev == "load_begin" and trips > 0:
                if told:
                    held.clear()
                    continue
                told = True
                self.ctx.report(
                    "HKV502",
                    f"the same content of group {event['group']} went out and came in "
                    f"{round_trips} times without a use between",
                    [e.pos for e in held],
                    slots=self.ctx.slots(event),
                    group=self.ctx.fold.group(event["group"]),
                    request=event.req,
                    use=event.pos,
                    severity=Severity.WARNING,
                )
                held.clear()

    def _used(self, event: Event) -> None:
        if not self.trips:
            return
        for name in self._names(event):
            self.trips.pop(name, None)
        used = set(event["blocks"])
        for name, held in list(self.trips.items()):
            if any(e["group"] == event["group"] and used & set(e["blocks"]) for e in held):
                del self.trips[name]

    # --- progress --------------------------------------------------------------------------

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

    def _progress(self, event: Event) -> None:
        self.idle.clear()
        self.quiet_since = None
        self.told_stall = False
        self.stuck = None

    def _work_waits(self) -> bool:
        return bool(self.waiting)

    def _dispatch(self, event: Event) -> None:
        if event.get("reqs"):
            return
        if not self._work_waits():
            return
        self.idle.append(event)
        for limit, patience in self._limits("stall_steps", None):
            if len(self.idle) > patience and not self.told_stall:
                self._stalled(limit, event, f"{len(self.idle)} steps")

    def _patience_ns(self, event: Event) -> None:
        ts = event.get("ts")
        if ts is None or not self._work_waits():
            return
        if self.quiet_since is None:
            self.quiet_since = event
            return
        for limit, patience in self._limits("stall_ns", None):
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
        if needs is None or free is None or needs <= free or self.flying:
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
