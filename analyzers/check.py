"""One check of one trace: every event past the families in order, then the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from hkvtool.analyzers.admission import Admission
from hkvtool.analyzers.alignment import Alignment
from hkvtool.analyzers.buffers import Buffers
from hkvtool.analyzers.components import Components
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Family, Silent
from hkvtool.analyzers.group_intersection import GroupIntersection
from hkvtool.analyzers.integrity import Integrity
from hkvtool.analyzers.kernel_abi import KernelAbi
from hkvtool.analyzers.keys import Keys
from hkvtool.analyzers.padding import Padding
from hkvtool.analyzers.parts import Parts
from hkvtool.analyzers.pointers import Pointers
from hkvtool.analyzers.progress import Progress
from hkvtool.analyzers.races import Races
from hkvtool.analyzers.ratios import Tally
from hkvtool.analyzers.refcounts import Refcounts
from hkvtool.analyzers.routing import Routing
from hkvtool.analyzers.selections import Selections
from hkvtool.analyzers.stores import Stores
from hkvtool.analyzers.tails import Tails
from hkvtool.analyzers.toctou import Uses
from hkvtool.analyzers.topology import Topology
from hkvtool.analyzers.transfers import Transfers
from hkvtool.analyzers.whole_block import WholeBlock
from hkvtool.analyzers.wire import Wire
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence, evidence_of
from hkvtool.model.findings import Ratios, Report
from hkvtool.model.rules import RULES
from hkvtool.state.moves import copy_slots

FAMILIES: tuple[type[Silent], ...] = (
    KernelAbi, Alignment, Races, Buffers, Refcounts, Pointers, Topology, Padding, Routing,
    Transfers, WholeBlock, Keys, Stores, Parts, GroupIntersection, Uses, Tails, Selections,
    Components, Admission, Progress, Wire,
)  # fmt: skip
"""In this order each family sees an event: who destroys content comes before who reads it."""

IMPLEMENTED: frozenset[str] = frozenset().union(*(f.codes for f in FAMILIES), Integrity.codes)
"""Codes that a check evaluates; the others are reported as not evaluable, needing the rule."""

ON_UNKNOWN = frozenset({"touch", "free", "write", "seal", "use", "publish", "slide", "index"})
"""Events that, met by a block nobody has described, show that recording began midway."""

DESCRIBES = frozenset({"trace", "evidence", "state", "pool", "group", "kernel", "limits"})
"""Events that no evidence is needed for."""

FORGET_EVERY = 1 << 14
"""Events after which what is over is forgotten."""

EVERY = ""
"""Stands for events of whatever kind."""

Look = Callable[[Event], None]

Observer = Callable[[Context], Family]
"""Makes something that sees what the families see, and reports nothing."""


def _as_it_is(look: Look) -> Look:
    return look


def check(
    events: Iterable[Event], evidence: Evidence | None = None, observers: Sequence[Observer] = ()
) -> Report:
    """Run every rule that the evidence supports over a trace, in order.

    `events` is gone through once, unless the trace declares no evidence and none is given: then
    it is held in memory to see which kinds of events it has. `observers` see each event after the
    families have, and finish after them.
    """
    if evidence is None:
        evidence, events = settled(events)
    with uncollected():
        return Check(Context(evidence), observers).run(events)


def settled(events: Iterable[Event]) -> tuple[Evidence, Iterable[Event]]:
    """The evidence of a trace, and all its events: where none is declared they are held in memory
    to see which kinds there are."""
    events = iter(events)
    head: list[Event] = []
    seen = Evidence()
    for event in events:
        head.append(event)
        seen.see(event)
        if seen.settled or event.ev != "trace":
            break
    if seen.settled:
        return seen, chain(head, events)
    rest = [*head, *events]
    return evidence_of(rest), rest


class Check:
    """The families over one trace."""

    def __init__(self, ctx: Context, observers: Sequence[Observer] = ()) -> None:
        self.ctx = ctx
        self.integrity = Integrity(self.ctx)
        self.tally = Tally(self.ctx)
        self.families: list[Family] = [family(self.ctx) for family in FAMILIES]
        self.observers = [observer(self.ctx) for observer in observers]
        self.seeing: list[Family] = [*self.families, self.tally, *self.observers]
        self.wrap: Callable[[Look], Look] | None = None
        """What each look is handed to before it is called, for whoever measures."""
        self._looks: dict[str, tuple[list[Look], list[Look]]] = {}
        self.count = 0
        self.header: dict[str, Any] = {}
        self._coming: frozenset[str] | None = None

    def run(self, events: Iterable[Event], *, ended: bool = True) -> Report:
        """All events in order, then the report; `ended` says that the trace ends with them."""
        for event in events:
            self.count += 1
            self.event(event)
            if self.count % FORGET_EVERY == 0 and not self.observers:
                self.forget()
        return self.report(ended=ended)

    def forget(self) -> None:
        """Let go of what is over, so that memory does not grow with the trace. Observers tell of
        what is long past: they look at all of it."""
        before = self.ctx.horizon()
        self.ctx.forget(before)
        for family in self.families:
            family.forget(before)
        self.tally.forget(before)

    def report(self, *, ended: bool = True) -> Report:
        """What was found, and what could not be evaluated; where the trace has not ended, without
        what only its end shows."""
        ctx = self.ctx
        ctx.event = None
        if ended:
            for family in self.families:
                family.finish()
            self.integrity.finish()
        self.tally.finish()
        for observer in self.observers:
            observer.finish()
        return self._told(self.tally.total)

    def so_far(self) -> Report:
        """What was found in a trace that goes on; what only its end can tell is not in it."""
        return self._told(self.tally.so_far())

    def _told(self, ratios: Ratios) -> Report:
        ctx = self.ctx
        missing = {
            code: rule.missing(ctx.evidence)
            for code, rule in RULES.items()
            if rule.missing(ctx.evidence)
        }
        for code in RULES:
            if code not in IMPLEMENTED and code not in missing:
                missing[code] = ("a later version of hkvtool",)
        inconclusive = []
        if ctx.lost:
            places = ", ".join(map(str, ctx.lost[:4]))
            inconclusive.append(f"events were lost before event {places}")
        self.header["events"] = self.count
        self.header["evidence"] = sorted(ctx.evidence)
        return Report(
            dict(self.header), list(ctx.findings), dict(sorted(missing.items())), ratios,
            inconclusive,
        )  # fmt: skip

    def event(self, event: Event) -> None:
        """Ask every family about one event, before and after it is folded."""
        ctx = self.ctx
        event = event.meant
        problem = event.problem
        # Behind the end of a recording a worker may still tell of the step that was under way.
        late = not self._coming and event.step is not None and event.ev != "dispatch"
        described = event.ev in DESCRIBES and "actor" not in event
        if not described and not late:
            self.go_on()
        ctx.meet(event)
        if problem is None:
            self.note(event)
            self._unknown(event)
        self.integrity.before(event)
        if ctx.after_loss(event):
            # What was lost is for every family to see.
            before, after = self._looks_at(EVERY)
        else:
            before, after = self._looks_at(event.ev)
        if problem is None:
            for look in before:
                look(event)
        refused = ctx.follow(event)
        if refused is not None:
            self.integrity.problem(event, refused)
            return
        self._carry(event)
        for look in after:
            look(event)

    @property
    def coming(self) -> frozenset[str] | None:
        """The evidence that holds as soon as something is told behind what changed it."""
        return self._coming

    def go_on(self) -> None:
        """Something is told: the evidence last stated is in force."""
        if self._coming is not None:
            self.ctx.evidence, self._coming = self._coming, None
            self.ctx.lane_evidence.clear()

    def let_go(self, gap: Event) -> None:
        """Events were lost before what comes next: each family forgets what that makes doubtful."""
        before, after = self._looks_at(EVERY)
        for look in (*before, *after):
            look(gap)

    def _looks_at(self, kind: str) -> tuple[list[Look], list[Look]]:
        """What looks at events of a kind, before and after they are folded, in order."""
        found = self._looks.get(kind)
        if found is None:
            found = self._looks[kind] = self._looks_of(self.seeing, kind)
        return found

    def _looks_of(self, families: Iterable[Family], kind: str) -> tuple[list[Look], list[Look]]:
        """What of some families looks at events of a kind."""
        seeing = []
        for one in families:
            kinds: frozenset[str] | None = getattr(one, "kinds", None)
            if kinds is None or kind in kinds or kind == EVERY:
                seeing.append(one)
        wrap = self.wrap or _as_it_is
        return (
            [wrap(f.before) for f in seeing if type(f).before is not Silent.before],
            [wrap(f.after) for f in seeing if type(f).after is not Silent.after],
        )

    def _carry(self, event: Event) -> None:
        """What is wrong with a source is wrong with its copy."""
        ctx = self.ctx
        if event.ev == "copy":
            src, dst = copy_slots(ctx.fold, event)
            ctx.blame.carry(src, dst)
        elif event.ev in ("store_begin", "load_begin", "store_end", "load_end"):
            transfer = ctx.fold.transfers.get(str(event["handle"]))
            if transfer is None or transfer.far is None:
                return
            near = [ctx.fold.slot(transfer.group.pool, b) for b in transfer.begin["blocks"]]
            far = [ctx.fold.slot(transfer.far, b) for b in transfer.begin.get("peer") or ()]
            if event.ev.startswith("store"):
                ctx.blame.carry(near, far)
            else:
                ctx.blame.carry(far, near)

    def note(self, event: Event) -> None:
        """What an event says of the trace, of steps and of evidence."""
        ctx = self.ctx
        ctx.note(event)
        if event.ev == "trace":
            self.header.update({k: v for k, v in event.data.items() if k in ("engine", "note")})
        elif event.ev == "dispatch":
            if "reqs" in event:
                ctx.step_reqs[event["step"]] = frozenset(map(str, event["reqs"]))
        elif event.ev == "retire":
            ctx.retired[event["step"]] = event.pos
        elif event.ev == "state":
            ctx.midway = True
        elif event.ev == "weights":
            ctx.weights_pos = event.pos
        elif event.ev == "evidence":
            classes = frozenset(str(c) for c in event["evidence"])
            if "actor" in event:
                ctx.lane_evidence[event.actor] = classes
            else:
                # A recording that ends, or pauses and describes anew what it finds, says that it
                # sees nothing; what it told is not the worse for it.
                self._coming = classes

    def _unknown(self, event: Event) -> None:
        """A block that is written, read or released before anyone described it."""
        ctx = self.ctx
        if ctx.midway or event.ev not in ON_UNKNOWN:
            return
        _, pool = ctx.fold.place(event)
        if pool is None or (pool.tier and event.ev not in ("free", "publish")):
            # A lower tier may well hold what was there before the engine started.
            return
        for block in event.get("blocks") or ():
            slot = ctx.fold.find(pool, block)
            unknown = slot is None or ctx.fold.st.known[slot] == 0
            if unknown and pool.tier and slot is not None:
                unknown = ctx.fold.st.refs[slot] <= 0
            if block not in pool.reserved and unknown:
                ctx.midway = True
                return
