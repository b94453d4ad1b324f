"""3xx: multi-group intersection. A resume at t needs every participating group at t.

Its parts: `hits` (what led to the blocks, 308), `migration` (305), `components` (307), `codecs`
(301), `tails` (302 of a seal) and `selections` (304 of sparse routing). Reads behind the resume
are judged in `toctou`.
"""

from __future__ import annotations

from hkvtool.analyzers.attribution import settle
from hkvtool.analyzers.codecs import Codecs
from hkvtool.analyzers.components import report_left_behind
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.analyzers.hits import report_veto
from hkvtool.model.event import Event
from hkvtool.state.faults import Fault
from hkvtool.state.migration import is_brought, unmigrated
from hkvtool.state.needs import needed
from hkvtool.state.read_faults import arrived
from hkvtool.state.reading import whole_read
from hkvtool.state.resumed import Resumed, due, resume_faults, resumed_groups


class GroupIntersection(Silent):
    """Judges resumes when they are decided and, for what may still heal, when they are used."""

    codes = frozenset({"HKV301", "HKV302", "HKV303", "HKV304", "HKV305", "HKV306", "HKV308"})
    kinds = frozenset(
        {
            "resume",
            "lookup",
            "preempt",
            "abort",
            "finish",
            "use",
            "write",
            "seal",
            "index",
            "retire",
            "store_begin",
            "load_begin",
            "publish",
        }
    )

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.codecs = Codecs(ctx)
        self.pending: dict[tuple[str, str], Resumed] = {}

    def before(self, event: Event) -> None:
        if event.ev == "resume":
            self._resume(event)
        elif event.ev in ("lookup", "preempt", "abort", "finish"):
            # What was resumed is given up or over; whatever follows is checked anew.
            self._give_up(event.req)
        elif event.ev in ("use", "write", "seal", "index") and not event.get("pad"):
            self.due(event)
        elif event.ev == "retire" and self.pending:
            self.overdue(event)

    def after(self, event: Event) -> None:
        self.codecs.follow(event)

    def finish(self) -> None:
        """Requests that the trace leaves between resume and use: what cannot heal is told."""
        for resumed in list(self.pending.values()):
            self._judge_late(resumed.event, resumed, over=True)

    # --- at the resume ---------------------------------------------------------------------

    def _resume(self, event: Event) -> None:
        request = self.ctx.request(event)
        if request is None:
            return
        report_veto(self.ctx, event, request)
        # A request that resumes once more, as after a load that failed, goes on from there only.
        self._give_up(request.name)
        for resumed in resumed_groups(self.ctx, event, request):
            now, later = due(self._faults(resumed), resumed.route)
            if later or resumed.route == "load":
                self.pending[request.name, resumed.group.name] = resumed
            self._settle(event, resumed, now)

    def _give_up(self, req: str | None) -> None:
        for key in [k for k in self.pending if k[0] == req]:
            del self.pending[key]

    def _settle(self, event: Event, resumed: Resumed, faults: list[Fault]) -> None:
        """Tell what is wrong with what is resumed, seen at `event`."""
        group = resumed.group
        slots = [self.ctx.fold.slot(group.pool, b) for b in resumed.blocks]
        read = whole_read(event, group, resumed.request, slots, resumed.event, resumed.route)
        report_left_behind(self.ctx, read, faults)
        settle(self.ctx, read, faults)

    def _faults(self, resumed: Resumed) -> list[Fault]:
        """Why the group cannot resume as things stand."""
        faults = resume_faults(self.ctx, resumed)
        group, at = resumed.group, resumed.event["at"]
        if group.form == "compressed" and needed(self.ctx.fold, group, at):
            faults += self.codecs.faults(group, resumed.blocks)
        return faults

    # --- what was put off ------------------------------------------------------------------

    def due(self, event: Event) -> None:
        """The request comes to use a group whose resume could not be judged before."""
        if event.req is None or not self.pending:
            return
        key = (event.req, str(event["group"]))
        resumed = self.pending.get(key)
        if resumed is None or (event.ev != "use" and self._arriving(resumed)):
            return
        step = event.step
        if step is not None and self.ctx.dispatched.get(step, event.pos) < resumed.event.pos:
            # A step that was under way when the request was preempted is not what it resumed for.
            return
        del self.pending[key]
        self._judge_late(event, resumed)

    def _arriving(self, resumed: Resumed) -> bool:
        """Whether a load into one of the blocks is under way: writing behind them is fine."""
        fold = self.ctx.fold
        slots = [fold.slot(resumed.group.pool, b) for b in resumed.blocks]
        return any(s >= 0 and fold.st.loads[s] > 0 for s in slots)

    def overdue(self, event: Event) -> None:
        """A step ended: what its requests resumed and nobody listed a use for is judged now."""
        dispatched = self.ctx.dispatched.get(event["step"])
        members = set(map(str, event.get("reqs") or ()))
        for key, resumed in list(self.pending.items()):
            if dispatched is None or resumed.event.pos > dispatched or key[0] not in members:
                continue
            del self.pending[key]
            self._judge_late(event, resumed)

    def _judge_late(self, event: Event, resumed: Resumed, *, over: bool = False) -> None:
        if resumed.request.ended is not None:
            return
        faults = arrived(self.ctx, self._faults(resumed), event.get("part"))
        if over:
            faults = [f for f in faults if f.code not in ("HKV103", "HKV305")]
        if is_brought(self.ctx, resumed.request, resumed.group, resumed.route):
            faults = [unmigrated(self.ctx, f) for f in faults]
        self._settle(event, resumed, faults)
