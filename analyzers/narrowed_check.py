"""The rules over some events of a trace: they are asked of some, and told of others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hkvtool.analyzers.admission import Admission
from hkvtool.analyzers.buffers import Buffers
from hkvtool.analyzers.check import EVERY, Check, Look
from hkvtool.analyzers.components import Components
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Family
from hkvtool.analyzers.group_intersection import GroupIntersection
from hkvtool.analyzers.padding import Padding
from hkvtool.analyzers.places import Place, Touch
from hkvtool.analyzers.pointers import Pointers
from hkvtool.analyzers.progress import Progress
from hkvtool.analyzers.races import Races
from hkvtool.analyzers.recount import Recount
from hkvtool.analyzers.screen_fold import Suspicious
from hkvtool.analyzers.stores import Stores
from hkvtool.analyzers.topology import Topology
from hkvtool.analyzers.transfers import Transfers
from hkvtool.analyzers.unended import Unended
from hkvtool.analyzers.wire import Wire
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.findings import Finding
from hkvtool.state.accesses import Access
from hkvtool.state.fold import Fold
from hkvtool.state.scene import Scene

if TYPE_CHECKING:
    from hkvtool.analyzers.narrowed import Doubts

AT_END = 1 << 62
"""Stands for the position of what only the end of a trace shows."""

_BY_SCREEN = (Admission, Progress, Wire)
"""Families that hang on all of a trace: what they would say, the screen has seen to."""

_TOLD = (
    Races, Buffers, Topology, Padding, Transfers, Pointers, GroupIntersection, Components, Recount,
)  # fmt: skip
"""Families that keep something beside the state of blocks, which later events hang on."""

_AT_END = (Races, Buffers, Transfers, Stores, GroupIntersection)
"""Families whose last word rests on what they were asked of alone."""


class NarrowedContext(Context):
    """Reports what the rules say of events that they are asked of, and where that was found."""

    def __init__(self, evidence: Evidence, fold: Fold, doubts: Doubts) -> None:
        super().__init__(evidence, fold)
        self.doubts = doubts
        self.found_at: list[int] = []
        self.muted = False
        self.window = False
        """Whether the order of lanes matters here."""
        self.here = 0

    @property
    def midway(self) -> bool:
        """Whether recording began midway: without a `state` only all events show it."""
        if not self.described:
            raise Suspicious("began midway or not", 0)
        return True

    @midway.setter
    def midway(self, told: bool) -> None:
        self.described = told

    def meet(self, event: Event) -> None:
        Scene.meet(self, event)
        self.stamp = self.order.feed(event) if self.window else None

    def report(self, code: str, message: str, events: Any, **facts: Any) -> Finding | None:
        if self.muted:
            return None
        found = super().report(code, message, events, **facts)
        pos = AT_END if self.event is None else self.event.pos
        self.found_at += [pos] * (len(self.findings) - len(self.found_at))
        return found

    def horizon(self) -> int:
        return super().horizon() if self.dispatched else self.here

    def forget(self, before: int) -> None:
        """The same, but for names: they are those of the compiled fold, and may still be asked."""
        self.forget_done(before)


class _Races(Races):
    """Remembers who touches the blocks that the rules are asked about."""

    ctx: NarrowedContext

    def _touches(self, event: Event, access: Access) -> Iterator[tuple[Place, Touch]]:
        since = self.ctx.doubts.since
        return (one for one in super()._touches(event, access) if since[one[1].slot])


class NarrowedCheck(Check):
    """The families over some events of one trace."""

    ctx: NarrowedContext

    def __init__(self, ctx: NarrowedContext) -> None:
        super().__init__(ctx)
        self.tally = self.recount = Recount(ctx)
        self.families = [
            self._in_place_of(family)
            for family in self.families if not isinstance(family, _BY_SCREEN)
        ]  # fmt: skip
        self.seeing: list[Family] = [*self.families, self.tally]
        self.races = next(f for f in self.families if isinstance(f, Races))
        self.buffers = next(f for f in self.families if isinstance(f, Buffers))
        self.stores = next(f for f in self.families if isinstance(f, Stores))
        self.resumes = next(f for f in self.families if isinstance(f, GroupIntersection))
        self._keeping: dict[str, tuple[list[Look], list[Look]]] = {}

    def _in_place_of(self, family: Family) -> Family:
        if isinstance(family, Races):
            return _Races(self.ctx)
        if isinstance(family, Transfers):
            return Unended(self.ctx, self.ctx.doubts.unended)
        return family

    def passed(self, event: Event) -> None:
        """An event that is right: just what later ones hang on is taken in."""
        ctx = self.ctx
        ctx.meet(event)
        self.note(event)
        ctx.muted = True
        if event.ev in ("fingerprint", "dropped"):
            self.integrity.before(event)
        before, after = self._keep(EVERY if ctx.after_loss(event) else event.ev)
        for look in before:
            look(event)
        if ctx.follow(event) is not None:
            raise Suspicious("refused", event.pos)
        self._carry(event)
        for look in after:
            look(event)
        ctx.muted = False

    def booked(self, event: Event) -> None:
        """An event that is right, of which only whose the blocks are is taken in."""
        if event.ev == "alloc":
            group = self.ctx.fold.group(event.get("group"))
            for slot in self.ctx.fold.resolve(group.pool if group else None, event["blocks"]):
                self.ctx.moves.stored_from.pop(slot, None)
        self.ctx.requests.follow(event)

    def _unknown(self, event: Event) -> None:
        """What shows that recording began midway is to be seen in all events only."""

    @property
    def waiting(self) -> bool:
        """Whether what is still to come may tell more of what was found, or find more."""
        return bool(
            self.races.explained or self.races.hazards or self.buffers.explained
            or self.stores.early or self.resumes.pending
        )  # fmt: skip

    def finish(self) -> None:
        """The trace has ended."""
        self.ctx.event = None
        for family in self.families:
            if isinstance(family, _AT_END):
                family.finish()
        if self.integrity.midway and not (self.ctx.described or self.ctx.lost):
            raise Suspicious("an end without its begin", 0)
        self.tally.finish()

    def _keep(self, kind: str) -> tuple[list[Look], list[Look]]:
        """What takes in events of a kind that are right."""
        found = self._keeping.get(kind)
        if found is None:
            keeping = [one for one in self.seeing if isinstance(one, _TOLD)]
            found = self._keeping[kind] = self._looks_of(keeping, kind)
        return found
