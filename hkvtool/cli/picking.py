"""A finding as it is named on a command line, and what is left of a trace that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hkvtool.cli.traces import progress
from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding, Report

if TYPE_CHECKING:
    from hkvtool.replay.minimize import Minimal


def root_finding(report: Report, asked: str | None, trace: str) -> Finding:
    """The finding of an id or a rule code; without one the first of the gravest. Raises HkvError
    where there is none such, or it only follows from another."""
    roots = [f for f in report.findings if not f.cause]
    if asked is None:
        if not roots:
            raise HkvError("the check finds nothing, so there is no finding to take", where=trace)
        return min(roots, key=lambda f: -f.severity.rank)
    for finding in report.findings:
        if asked in (finding.id, finding.code):
            if finding.cause:
                raise HkvError(
                    f"{finding.id} follows from {finding.cause}", hint=f"--finding {finding.cause}"
                )
            return finding
    known = ", ".join(f.id for f in roots[:12]) or "none"
    raise HkvError(f"there is no finding {asked!r}", where=trace, hint=f"root findings: {known}")


def minimized(trace: str, asked: str | None, budget: int) -> tuple[Minimal, Finding]:
    """The finding asked for, and the fewest events that show it, with a bar meanwhile."""
    from hkvtool.analyzers import check
    from hkvtool.replay.minimize import minimize
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        events = list(opened.events())
    report = check(events)
    wanted = root_finding(report, asked, trace)
    with progress(f"minimising {wanted.id} {wanted.code}", budget) as bar:
        told = None if bar is None else lambda what, left, checks: bar(checks)
        return minimize(events, report, wanted, budget=budget, told=told), wanted
