"""Match ratio and resumable ratio, with the reasons between them."""

from __future__ import annotations

from dataclasses import replace

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Ratios, ranked
from hkvtool.model.forms import HISTORY, Form
from hkvtool.model.rules import Severity

_NO_LAYER = "59"
"""Families whose findings cost no token: too much on its way at once, and torn evidence."""


def costs_tokens(finding: Finding) -> bool:
    """Whether it is an error that a resume or a read ran into."""
    judged = finding.check is not None or finding.use is not None
    error = finding.severity is Severity.ERROR
    return judged and error and finding.code[3] not in _NO_LAYER


class Tally(Silent):
    """Counts what lookups asked for and matched, and what of it could be resumed from."""

    kinds: frozenset[str] | None = frozenset({"lookup", "resume"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.asked: dict[str, int] = {}
        self.matched: dict[str, tuple[int, str | None, int]] = {}
        self.begun: dict[str, tuple[int, int]] = {}
        self.total = Ratios()
        self.losses: dict[tuple[str, str | None], int] = {}
        self.resumed: dict[str, int] = {}

    def before(self, event: Event) -> None:
        if event.ev == "lookup":
            self.close(str(event["req"]))
            self._open(event)
        elif event.ev == "resume" and event.req is not None:
            self.resumed[event.req] = event["at"]

    def forget(self, before: int) -> None:
        over = self.ctx.requests.over
        for name in [name for name in self.matched if name in over]:
            self.close(name)

    def finish(self) -> None:
        for name in list(self.matched):
            self.close(name)
        self.total.lost_by = ranked(self.losses)

    def so_far(self) -> Ratios:
        """Of the lookups that are settled."""
        open_ = list(self.matched.items())
        return replace(
            self.total,
            asked=self.total.asked - sum(self.begun[name][1] for name, _ in open_),
            matched=self.total.matched - sum(best for _, (best, _, _) in open_),
            lost_by=ranked(self.losses),
            lookups=self.total.lookups[:],
        )

    def _open(self, event: Event) -> None:
        hits = [
            (tokens, group)
            for group, tokens in ((self.ctx.fold.group(n), t) for n, t in event["hit"].items())
            if group is not None
        ]
        participating = [(t, g) for t, g in hits if g.participates]
        best = max((t for t, _ in hits), default=0)
        asked = max(event.get("tokens") or 0, best)
        limiting = min(participating, key=lambda h: h[0], default=None)
        self.total.asked += asked
        self.total.matched += best
        self.begun[str(event["req"])] = event.pos, asked
        name = limiting[1].name if limiting and limiting[0] < best else None
        self.matched[str(event["req"])] = (best, name, limiting[0] if limiting else best)

    def close(self, request: str) -> None:
        """The request's last lookup is settled: how much of its match could be resumed."""
        held = self.matched.pop(request, None)
        # A resume that no lookup came before says nothing of one that comes behind it.
        at = self.resumed.pop(request, None)
        if held is None:
            return
        best, limiting, least = held
        if at is None:
            at = least
        good = min(at, best)
        broken = self._broken(request)
        if broken:
            bad = min(broken, key=self._reach)
            keeps = min(good, self._reach(bad))
            self._lose(bad.code, bad.group, best - keeps)
            good = keeps
        elif good < best and limiting is not None:
            self._lose("HKV308", limiting, best - good)
        self.total.resumable += good
        self.total.lookups.extend((*self.begun.pop(request), best, good))

    def _broken(self, request: str) -> list[Finding]:
        """The root errors that this request's resume or reads ran into."""
        by_id = {f.id: f for f in self.ctx.findings}
        return [
            by_id.get(finding.cause or "", finding)
            for finding in self.ctx.findings
            if finding.request == request and costs_tokens(finding)
        ]  # fmt: skip

    def _reach(self, finding: Finding) -> int:
        """Tokens that are good all the same. A history is, up to where it is broken; a window, a
        tail or a state that is not there at the resume says nothing of any earlier position."""
        group = self.ctx.fold.group(finding.group)
        if group is None or Form(group.form) not in HISTORY or not finding.tokens:
            return 0
        return finding.tokens[0]

    def _lose(self, code: str, group: str | None, tokens: int) -> None:
        if tokens > 0:
            self.losses[code, group] = self.losses.get((code, group), 0) + tokens
