"""`hkvtool check`: every rule that the evidence supports, over one trace or many."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.errors import tell
from hkvtool.cli.traces import progress
from hkvtool.model.errors import Exit, HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.model.rules import RULES, Severity

if TYPE_CHECKING:
    from hkvtool.store import Trace

_EVERY = 4096
"""Events between two moves of the progress bar."""


class Format(str, Enum):
    """How to print a report."""

    TABLE = "table"
    JSON = "json"


class FailOn(str, Enum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


def command(
    traces: Annotated[
        list[str],
        typer.Argument(metavar="TRACE...", help=".duckdb or .jsonl traces, `-` for stdin."),
    ],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    fail_on: Annotated[
        FailOn, typer.Option("--fail-on", help="The least severity that exits with 1.")
    ] = FailOn.ERROR,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CODE", help="Just these rules.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Show findings of one rule and group one by one.")
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Not these rules.")
    ] = None,
) -> int:
    """Run every rule that the evidence supports and say what could not be resumed, and why.

    Exits with 0 where there is no finding at or above --fail-on, 1 where there is one, 3 where a
    trace cannot be read, 4 where events were lost and so nothing can be said for sure. Of several
    traces the first of 3, 1, 4, 0 that any has. JSON is one object a line, in order.
    """
    from hkvtool.store.opening import refuse_stdin_twice

    chosen = _codes(only), _codes(ignore)
    if only and not chosen[0] - chosen[1]:
        raise HkvError("--ignore leaves nothing of --only: no rule would be run")
    refuse_stdin_twice(traces)
    worst = [Exit.OK]
    for name in traces:
        try:
            report, events = _check(name, with_events=format is Format.TABLE)
        except TraceError as e:
            worst.append(Exit.UNREADABLE)
            tell(e.what, where=e.where or name, hint=e.hint)
            if format is Format.JSON:
                print(json.dumps({"trace": {"path": name}, "error": e.what}))
            continue
        _choose(report, *chosen)
        worst.append(_verdict(report, fail_on))
        if format is Format.JSON:
            report.trace["path"] = name
            print(json.dumps(report.as_json()))
        else:
            _print(report, events, name, again=len(worst) > 2, every=every)
    return next(e for e in (Exit.UNREADABLE, Exit.FINDINGS, Exit.INCONCLUSIVE, Exit.OK)
                if e in worst)  # fmt: skip


def _codes(given: Iterable[str] | None) -> frozenset[str]:
    """Rules as given on the command line, by code or name; a family may be written 3xx."""
    found: set[str] = set()
    for text in (part for one in given or () for part in one.split(",")):
        wanted = text.strip().upper().removeprefix("HKV")
        codes = {
            code
            for code, rule in RULES.items()
            if wanted in (code[3:], rule.name.upper())
            or (wanted.endswith("XX") and code[3] == wanted[0])
        }
        if not codes:
            raise HkvError(f"there is no rule {text!r}", hint="see `hkvtool rules`")
        found |= codes
    return frozenset(found)


def _check(name: str, *, with_events: bool) -> tuple[Report, dict[int, Event]]:
    from hkvtool.analyzers import check
    from hkvtool.report.table import positions
    from hkvtool.store import open_trace

    with open_trace(name) as trace:
        kept: dict[int, Event] = {}
        rereadable = name != "-"
        source = trace.events() if rereadable else _keeping(trace.events(), kept)
        with progress(f"checking {name}", _total(trace) if rereadable else None) as done:
            report = check(counted_events(source, done))
        if with_events and rereadable:
            wanted = positions([report])
            if wanted:
                span = trace.events(since=min(wanted), until=max(wanted))
                kept = {e.pos: e for e in span if e.pos in wanted}
    return report, kept


def _total(trace: Trace) -> int | None:
    return trace.count if sys.stderr.isatty() else None


def _keeping(events: Iterable[Event], kept: dict[int, Event]) -> Iterator[Event]:
    """A stream cannot be read again: what findings may name is kept as it goes by."""
    for event in events:
        kept[event.pos] = event
        yield event


def counted_events(events: Iterable[Event], done: object) -> Iterator[Event]:
    for i, event in enumerate(events):
        if callable(done) and i % _EVERY == 0:
            done(i)
        yield event


def _choose(report: Report, only: frozenset[str], ignore: frozenset[str]) -> None:
    """Keep the findings asked for; what follows from one that is left out stands for itself."""
    if not only and not ignore:
        return
    keep = {f.id for f in report.findings if (not only or f.code in only) and f.code not in ignore}
    report.findings = [f for f in report.findings if f.id in keep]
    for finding in report.findings:
        finding.caused = [c for c in finding.caused if c in keep]
        if finding.cause not in keep:
            finding.cause = None
    report.not_evaluable = {
        c: n for c, n in report.not_evaluable.items()
        if (not only or c in only) and c not in ignore
    }  # fmt: skip


def _verdict(report: Report, fail_on: FailOn) -> Exit:
    if fail_on is not FailOn.NEVER:
        least = Severity(fail_on.value).rank
        if any(f.severity.rank >= least for f in report.findings):
            return Exit.FINDINGS
    return Exit.INCONCLUSIVE if report.inconclusive else Exit.OK


def _print(
    report: Report, events: dict[int, Event], name: str, *, again: bool, every: bool
) -> None:
    from hkvtool.cli.console import console
    from hkvtool.report.table import report_lines

    out = console()
    if again:
        out.print()
    for line in report_lines(report, events, out.width, name=name, every=every):
        out.print(line.text, style=line.style or None, soft_wrap=True)
