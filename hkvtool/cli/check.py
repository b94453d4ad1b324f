"""`hkvtool check`: every rule that the evidence supports, over one trace or many."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.choosing import keep_rules, rule_codes
from hkvtool.cli.errors import tell
from hkvtool.cli.traces import progress, watched_events
from hkvtool.model.errors import Exit, HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.model.rules import Severity

if TYPE_CHECKING:
    from hkvtool.report.checked import Checked
    from hkvtool.store import Trace


class Format(str, Enum):
    """How to print a report."""

    TABLE = "table"
    JSON = "json"
    SARIF = "sarif"
    JUNIT = "junit"
    GITHUB = "github"


class FailOn(str, Enum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"

    @property
    def severity(self) -> Severity | None:
        return None if self is FailOn.NEVER else Severity(self.value)


FAIL_ON = Annotated[FailOn, typer.Option("--fail-on", help="The least severity that exits with 1.")]
ONLY = Annotated[list[str] | None, typer.Option("--only", metavar="CODE", help="Just these rules.")]
IGNORE = Annotated[
    list[str] | None, typer.Option("--ignore", metavar="CODE", help="Not these rules.")
]


@dataclass(frozen=True)
class Asked:
    """What of a report is asked for, and under which limits."""

    only: frozenset[str] = frozenset()
    ignore: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    request: str | None = None
    known: frozenset[str] = frozenset()
    limits: dict[str, int] = field(default_factory=dict)
    profile: bool = False

    @property
    def everything(self) -> bool:
        """Whether the whole trace is asked about as it stands."""
        return not (self.part or self.limits or self.profile)

    @property
    def part(self) -> bool:
        """Whether only a part of the trace is asked about."""
        return (self.since, self.until, self.request) != (None, None, None)


def command(
    traces: Annotated[
        list[str],
        typer.Argument(metavar="TRACE...", help=".duckdb or .jsonl traces, `-` for stdin."),
    ],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    fail_on: FAIL_ON = FailOn.ERROR,
    only: ONLY = None,
    ignore: IGNORE = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="FILE", help="Not what this JSON report has already."),
    ] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="POS", help="Just what comes to light from here."),
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--until", metavar="POS", help="Just what comes to light up to here."),
    ] = None,
    request: Annotated[
        str | None,
        typer.Option("--request", metavar="ID", help="Just what concerns it, by any id."),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="NAME=N", help="What if there were this limit?"),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Tell what each part of the check took, on stderr.")
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Show findings of one rule and group one by one.")
    ] = False,
) -> int:
    """Run every rule that the evidence supports and say what could not be resumed, and why.

    The whole trace is gone through whatever part of it is asked about, since state rests on what
    was before. A limit is one of `recovering_blocks`, `recovering_bytes`, `stall_steps`, `stall_ns`
    and `thrash_trips`.

    Exits with 0 where there is no finding at or above --fail-on, 1 where there is one, 3 where a
    trace cannot be read, 4 where events were lost and so nothing can be said for sure. Of several
    traces the first of 3, 1, 4, 0 that any has. JSON is one object a line, in order.
    """
    from hkvtool.analyzers.what_if import limits_given
    from hkvtool.report.baseline import known_findings
    from hkvtool.report.checked import Checked
    from hkvtool.store.opening import refuse_stdin_twice

    chosen = rule_codes(only), rule_codes(ignore)
    if only and not chosen[0] - chosen[1]:
        raise HkvError("--ignore leaves nothing of --only: no rule would be run")
    refuse_stdin_twice(traces)
    known = frozenset[str]() if baseline is None else known_findings(baseline)
    asked = Asked(*chosen, since, until, request, known, limits_given(limit or ()), profile)
    if profile and (asked.part or asked.limits):
        raise HkvError(
            "--profile is of a whole check, without --since, --until, --request, --limit"
        )
    worst = [Exit.OK]
    kept: list[Checked] = []
    for name in traces:
        try:
            checked = _checked(name, asked, with_events=format is not Format.JSON)
        except TraceError as e:
            worst.append(Exit.UNREADABLE)
            tell(e.what, where=e.where or name, hint=e.hint)
            checked = Checked(name, None, trouble=e.said)
        if checked.report is not None:
            worst.append(verdict(checked.report, fail_on))
        if format in (Format.SARIF, Format.JUNIT):
            kept.append(checked)
        else:
            _print(checked, format, again=len(worst) > 2, every=every)
    if format is Format.SARIF:
        from hkvtool.report.sarif import sarif

        print(sarif(kept))
    elif format is Format.JUNIT:
        from hkvtool.report.junit import junit

        print(junit(kept, fail_on.severity))
    return next(e for e in (Exit.UNREADABLE, Exit.FINDINGS, Exit.INCONCLUSIVE, Exit.OK)
                if e in worst)  # fmt: skip


def _checked(name: str, asked: Asked, *, with_events: bool) -> Checked:
    from hkvtool.analyzers.what_if import stated
    from hkvtool.report.baseline import leave_out
    from hkvtool.report.checked import Checked
    from hkvtool.report.table import positions
    from hkvtool.store import open_trace

    with open_trace(name) as trace:
        report = _screen(trace, name) if asked.everything else None
        if asked.profile:
            report = _profiled(trace, name)
        if report is None:
            with watched_events(trace, f"checking {name}") as events:
                report = _part(trace, events, asked) if asked.part else _whole(events, asked)
        keep_rules(report, asked.only, asked.ignore)
        if asked.known:
            report.trace["known"] = leave_out(report, asked.known)
        kept: dict[int, Event] = {}
        wanted = positions([report]) if with_events else set()
        if wanted:
            span = trace.events(since=min(wanted), until=max(wanted))
            kept = {e.pos: e for e in span if e.pos in wanted}
        if 0 in wanted:
            kept[0] = stated(asked.limits)
    return Checked(name, report, kept)


def _screen(trace: Trace, name: str) -> Report | None:
    """The report of a long trace that compiled code finds nothing wrong with."""
    from hkvtool.analyzers.long_check import screen_of

    total = trace.count if sys.stderr.isatty() else None
    with progress(f"checking {name}", total) as told:
        return screen_of(trace, told)


def _profiled(trace: Trace, name: str) -> Report:
    """The report as ever, once it is said what took how long."""
    from hkvtool.analyzers.profile import profiled_trace

    total = trace.count if sys.stderr.isatty() else None
    with progress(f"checking {name}", total) as told:
        report, shares = profiled_trace(trace, told)
    _print_shares(shares)
    return report


def _whole(events: Iterable[Event], asked: Asked) -> Report:
    from hkvtool.analyzers import check
    from hkvtool.analyzers.what_if import under

    if not asked.limits:
        return check(events)
    report = check(under(events, asked.limits))
    report.trace["events"] -= 1
    report.trace["limits"] = asked.limits
    return report


def _part(trace: Trace, events: Iterable[Event], asked: Asked) -> Report:
    """What comes to light in a stretch of the trace, or concerns one request, with the ratios of
    the lookups in it."""
    from hkvtool.analyzers.part import check_part
    from hkvtool.store.identity import request_in

    request = None if asked.request is None else request_in(trace, asked.request)
    return check_part(events, request, asked.since, asked.until, asked.limits)


def _print_shares(shares: dict[str, float]) -> None:
    """What each family of rules took, the most first."""
    total = sum(shares.values()) or 1.0
    for name, seconds in sorted(shares.items(), key=lambda item: -item[1]):
        print(f"{seconds:9.3f} s  {100 * seconds / total:5.1f} %  {name}", file=sys.stderr)


def verdict(report: Report, fail_on: FailOn) -> Exit:
    least = fail_on.severity
    if least is not None and any(f.severity.rank >= least.rank for f in report.findings):
        return Exit.FINDINGS
    return Exit.INCONCLUSIVE if report.inconclusive else Exit.OK


def _print(checked: Checked, format: Format, *, again: bool, every: bool) -> None:
    """One trace, in a format that takes one after the other."""
    if format is Format.JSON:
        from hkvtool.report.json_lines import json_line

        print(json_line(checked))
    elif format is Format.GITHUB:
        from hkvtool.report.github import github_lines

        print("\n".join(github_lines(checked)))
    elif checked.report is not None:
        from hkvtool.cli.console import console
        from hkvtool.report.table import report_lines

        out = console()
        if again:
            out.print()
        for line in report_lines(
            checked.report, checked.events, out.width, name=checked.name, every=every
        ):
            out.print(line.text, style=line.style or None, soft_wrap=True)
