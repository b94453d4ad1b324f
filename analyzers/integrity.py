"""9xx: evidence integrity. What the trace itself shows to be lost, leaked, malformed or torn."""

from __future__ import annotations

from hkvtool.analyzers.context import MAX_EVENTS, Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.prints import Prints
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.rules import Severity
from hkvtool.state import arrays as a
from hkvtool.state.fold import Problem


class Integrity(Silent):
    """903 to 906; the wire has a module of its own."""

    codes = frozenset({"HKV903", "HKV904", "HKV905", "HKV906"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.sequence: dict[str, tuple[int, int]] = {}
        self.malformed: dict[str, Finding] = {}
        self.midway: list[tuple[Event, Problem]] = []
        self.prints = Prints(ctx)
        self.dispatched: dict[int, int] = {}
        """Where each step that is under way was handed out."""
        self.last = 0

    def before(self, event: Event) -> None:
        self.last = event.pos
        self._sequence(event)
        if event.ev == "dispatch" and event.problem is None:
            self.dispatched[event["step"]] = event.pos
        elif event.ev == "retire" and event.problem is None:
            self.dispatched.pop(event["step"], None)
        if event.ev == "fingerprint" and event.problem is None:
            self.prints.take(event, self.dispatched.get(event.get("step", -1), self.last))

    def problem(self, event: Event, problem: Problem) -> None:
        """905: the event was kept and took part in nothing."""
        if problem.midway:
            self.midway.append((event, problem))
        else:
            self._malformed(event, problem.text)

    def finish(self) -> None:
        if not self.ctx.midway and not self.ctx.lost:
            for event, problem in self.midway:
                self._malformed(event, problem.text)
        self._leaks()

    def _malformed(self, event: Event, text: str) -> None:
        held = self.malformed.get(f"{event.ev}:{text}")
        if held is not None:
            if len(held.events) < MAX_EVENTS:
                held.events.append(event.pos)
            return
        if len(self.malformed) >= 100:
            return
        group = self.ctx.fold.group(event.get("group"))
        finding = self.ctx.report("HKV905", f"event {event.pos} is malformed: {text}", [event.pos])
        if finding is not None:
            finding.use = event.pos
            finding.request = event.req
            if group is not None:
                finding.group = group.name
                blocks = event.get("blocks")
                if isinstance(blocks, list):
                    finding.blocks = [b for b in blocks if isinstance(b, int)][:64]
            self.malformed[f"{event.ev}:{text}"] = finding

    def _sequence(self, event: Event) -> None:
        """903: the recorder lost events, and says so or shows it by a jump."""
        if event.ev == "dropped" and event.problem is None:
            count = event["count"]
            self._dropped(event, count, [event.pos])
            self.sequence.pop(event.actor, None)
        seq = event.get("seq")
        if not isinstance(seq, int):
            return
        lane = event.actor
        held = self.sequence.get(lane)
        if held is not None and seq > held[0] + 1 and event.ev != "dropped":
            self.ctx.fold.lose(event)
            self._dropped(event, seq - held[0] - 1, [held[1], event.pos])
        self.sequence[lane] = (seq, event.pos)

    def _dropped(self, event: Event, count: int, events: list[int]) -> None:
        if count <= 0:
            return
        self.ctx.lose(event)
        self.ctx.report(
            "HKV903",
            f"{count} events of lane {event.actor} were lost before event {event.pos}; state "
            "after it is uncertain",
            events,
            actual={"lost": count, "lane": event.actor, "reason": event.get("reason")},
        )

    def _leaks(self) -> None:
        """904: everything has ended and blocks are still referenced by nobody known."""
        ctx = self.ctx
        requests = [r for r in ctx.requests.by_name.values() if r.is_request]
        if not (requests or ctx.requests.over) or ctx.lost:
            return
        if any(r.ended is None for r in requests):
            return
        st = ctx.fold.st
        if any(st.t_state[h] == a.RUNNING for h in range(len(st.t_state))):
            return
        owners = {r.name for r in ctx.requests.by_name.values() if not r.is_request}
        leaked: dict[str, list[int]] = {}
        for slot in range(len(ctx.fold.block_of)):
            pool = ctx.fold.pool_of(slot)
            if st.known[slot] != a.ALLOCATED or st.refs[slot] <= 0 or st.unsure[slot]:
                continue
            if ctx.fold.block_of[slot] in pool.reserved or st.pins[slot] > 0:
                continue
            holders = ctx.requests.holders.get(slot, {})
            if any(name in owners for name in holders):
                continue
            owner = next(iter(holders), None)
            leaked.setdefault(owner or "", []).append(slot)
        for owner, slots in leaked.items():
            last = max((r.ended or 0 for r in requests if r.name == owner), default=0)
            groups = {g.table_id: g for g in ctx.fold.declared.groups.values()}
            group = groups.get(st.table[slots[0]])
            count = "block is" if len(slots) == 1 else "blocks are"
            ctx.report(
                "HKV904",
                f"everything has ended, and {len(slots)} {count} still referenced"
                + (f"; request {owner} took them and never gave them back" if owner else ""),
                [st.alloc_pos[slots[0]], last or None, self.last],
                slots=slots,
                group=group,
                request=owner or None,
                check=st.alloc_pos[slots[0]],
                use=self.last,
                actual={"references": st.refs[slots[0]]},
                severity=Severity.ERROR,
            )
