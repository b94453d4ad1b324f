"""A finding as it is named on a command line, and what is left of a trace that shows it."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from hkvtool.cli.traces import progress
from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding, Report

if TYPE_CHECKING:
    from hkvtool.replay.minimize import Minimal

_LISTED = 12
"""Findings that are named where the one asked for is not there."""


def picked(report: Report, asked: str | None, trace: str) -> Finding:
    """The finding of an id (F3), or the first of a rule (HKV702, 702, its name; one that follows
    from nothing before one that does); of none asked for the first of the gravest. Raises HkvError
    where there is none such."""
    roots = [f for f in report.findings if not f.cause]
    if not roots:
        raise HkvError(
            "there is no finding in this trace", where=trace, hint="`hkvtool check` says how sure"
        )
    if not asked:
        return min(roots, key=lambda f: (-f.severity.rank, f.events[:1]))
    wanted = asked.strip().upper()
    found = next((f for f in report.findings if f.id == wanted), None)
    if found is None and not re.fullmatch("F[0-9]*", wanted):
        from hkvtool.cli.choosing import rule_codes

        codes = rule_codes([asked])
        found = next((f for f in [*roots, *report.findings] if f.code in codes), None)
    if found is None:
        some = ", ".join(f"{f.id} ({f.code})" for f in roots[:_LISTED])
        more = ", ..." if len(roots) > _LISTED else ""
        raise HkvError(
            f"there is no finding {asked!r}", where=trace, hint=f"there are {some}{more}"
        )
    return found


def root_finding(report: Report, asked: str | None, trace: str) -> Finding:
    """As `picked`; of a finding that follows from another, that one, which is said."""
    found = picked(report, asked, trace)
    by_id = {f.id: f for f in report.findings}
    while found.cause:
        print(f"{found.id} follows from {found.cause}, which is taken instead", file=sys.stderr)
        found = by_id[found.cause]
    return found


def minimized(trace: str, asked: str | None, budget: int) -> tuple[Minimal, Finding]:
    """The finding asked for, and the fewest events that show it, with a bar meanwhile."""
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.replay.minimize import minimize
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        events = list(opened.events())
        report = check_trace(opened, events=events)
    wanted = root_finding(report, asked, trace)
    with progress(f"minimising {wanted.id} {wanted.code}", budget) as bar:
        told = None if bar is None else lambda what, left, checks: bar(checks)
        return minimize(events, report, wanted, budget=budget, told=told), wanted
