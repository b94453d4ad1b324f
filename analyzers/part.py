"""A check of a part: what comes to light in a stretch of a trace, or concerns one request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hkvtool.analyzers.check import Observer, check
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.lookups import Lookups, summed
from hkvtool.analyzers.provenance import Follow
from hkvtool.analyzers.verdict import concerns, names
from hkvtool.analyzers.what_if import under
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report


def check_part(
    events: Iterable[Event],
    request: str | None = None,
    since: int | None = None,
    until: int | None = None,
    limits: Mapping[str, int] | None = None,
) -> Report:
    """The report of a whole trace, cut down; `since` and `until` are positions, both included.

    All events are gone through: state rests on what was before. The ratios are those of the
    lookups that are in the part.
    """
    lookups: list[Lookups] = []
    seen: list[Follow] = []

    def keeping(ctx: Context) -> Lookups:
        lookups.append(Lookups(ctx))
        return lookups[0]

    def following(ctx: Context) -> Follow:
        seen.append(Follow(ctx, request or ""))
        return seen[0]

    watching: list[Observer] = [keeping]
    if request is not None:
        watching.append(following)
    report = check(under(events, limits or {}), observers=watching)
    if limits:
        report.trace["events"] -= 1
        report.trace["limits"] = dict(limits)

    def wanted(finding: Finding) -> bool:
        if not _within(finding.use or max(finding.events, default=0), since, until):
            return False
        return not seen or concerns(finding, seen[0]) or names(finding, seen[0])

    report.keep(wanted)
    report.ratios = summed(
        row
        for row in lookups[0].settled
        if _within(row.pos, since, until) and request in (None, row.request)
    )
    said = {"since": since, "until": until, "request": request}
    report.trace["part"] = {key: value for key, value in said.items() if value is not None}
    return report


def _within(pos: int, since: int | None, until: int | None) -> bool:
    return (since is None or pos >= since) and (until is None or pos <= until)
