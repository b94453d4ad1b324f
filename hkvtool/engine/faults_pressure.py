"""Faults of admission: more under way than allowed, waits without end, preemptions in vain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import EchoFault, Fault, wrap
from hkvtool.engine.live import Live
from hkvtool.engine.lookup import Hit


class _Uncapped(EchoFault):
    """A load starts whatever is allowed."""

    from_tier = True
    limit = ""

    def put(self, engine: Engine) -> None:
        super().put(engine)
        wrap(engine, "declare", self._declare)
        wrap(engine.tiers, "admits", self._admits)

    def _declare(self, inner: Callable[[str], None], note: str = "") -> None:
        inner(note)
        self.engine.emit("limits", **{self.limit: 1})

    def _admits(self, inner: Callable[[Hit], bool], hit: Hit) -> bool:
        # Until then a limit of one lets no load start at all.
        return self.placed is not None and bool(hit.sources)


class AdmissionCap(_Uncapped):
    """External hits are charged to no limit: every load starts at once."""

    code, limit = "HKV501", "recovering_blocks"


class MigrationStorm(Fault):
    """The byte budget is checked against a transfer alone, not against what is under way."""

    code = "HKV502"

    def put(self, engine: Engine) -> None:
        wrap(engine, "declare", self._declare)
        wrap(engine.tiers, "begin", self._begin)

    def _declare(self, inner: Callable[[str], None], note: str = "") -> None:
        inner(note)
        lead = self.history().lead
        self.budget = 2 * lead.page_bytes * lead.layers
        self.engine.emit("limits", recovering_bytes=self.budget)

    def _begin(self, inner: Callable[..., None], transfer: Any) -> None:
        size = sum(len(m.near) * m.group.page_bytes * m.group.layers for m in transfer.moves)
        if size > self.budget:
            self.mark()
        inner(transfer)


class NoProgress(Fault):
    """A thread waits for an event that nobody signals."""

    code = "HKV503"

    def put(self, engine: Engine) -> None:
        wrap(engine.scheduler, "finish", self._finish)

    def _finish(self, inner: Callable[[Live], None], live: Live) -> None:
        inner(live)
        if self.due():
            self.engine.emit("wait", actor="prefetch", event="never")


class PreemptionWithoutYield(Fault):
    """Blocks of the preempted go to a queue of deferred frees; the retry takes the next victim."""

    code = "HKV504"

    def put(self, engine: Engine) -> None:
        self.late: list[Live] = []
        wrap(engine.scheduler, "refuse", self._refuse)
        wrap(engine.scheduler, "plan", self._plan)

    def _refuse(self, inner: Callable[..., None], live: Live, needs: int, reason: str) -> None:
        inner(live, needs, reason)
        running = self.engine.scheduler.running
        if reason != "out of blocks" or len(running) < 2 or not self.due():
            return
        for victim in running[-1:-3:-1]:
            self.late.append(victim)
            self.engine.emit("preempt", req=victim.request.id, reason="out of blocks")
            live.refused = False
            inner(live, needs, reason)

    def _plan(self, inner: Callable[[], Any]) -> Any:
        late, self.late = self.late, []
        for victim in late:
            if victim in self.engine.scheduler.running:
                self.engine.scheduler.give_back(victim)
        return inner()


FAULTS: tuple[type[Fault], ...] = (
    AdmissionCap, MigrationStorm, NoProgress, PreemptionWithoutYield,
)  # fmt: skip
