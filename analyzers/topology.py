"""8xx: static topology. What a captured graph has baked in must be what is live.

Rows of padding and null rows (802) are in `padding`; a transfer under a graph (803) is found where
the read is judged.
"""

from __future__ import annotations

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.declarations import Pool


class Topology(Silent):
    """Captures against launches, and geometry that changes under somebody."""

    codes = frozenset({"HKV801", "HKV804"})
    kinds = frozenset(
        {
            "capture",
            "launch",
            "rebase",
            "dispatch",
            "retire",
            "write",
            "use",
            "seal",
            "index",
            "copy",
            "zero",
            "store_begin",
            "load_begin",
        }
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.captured: dict[str, Event] = {}
        self.live: dict[str, tuple[object, int]] = {}
        self.stale: set[str] = set()
        self.asleep: dict[str, Event] = {}
        self.open_steps: dict[int, Event] = {}
        self.touched: dict[int, set[str]] = {}
        self.moved: dict[str, Event] = {}
        self.told: set[tuple[int, int]] = set()

    def before(self, event: Event) -> None:
        ev = event.ev
        if self.ctx.after_loss(event):
            # Captures, retires and ends of transfers may be among what was lost.
            for known in (self.captured, self.asleep, self.open_steps, self.touched):
                known.clear()
        if ev == "capture":
            self.captured[str(event["graph"])] = event
            self.stale.discard(str(event["graph"]))
        elif ev == "launch":
            self._launch(event)
        elif ev == "rebase":
            self._rebase(event)
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
        for handle, transfer in self.ctx.moves.running.items():
            far = transfer.far.name if transfer.far else None
            if self.ctx.lost_since(transfer.begin.pos):
                continue
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
