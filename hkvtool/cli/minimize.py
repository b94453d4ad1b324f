"""`hkvtool minimize`: the fewest events that still show a finding."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.interrupting import spelled
from hkvtool.cli.picking import minimized
from hkvtool.cli.traces import Format, TraceArgument, counted, print_json
from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.replay.minimize import Minimal


def command(
    trace: TraceArgument,
    finding: Annotated[
        str | None,
        typer.Option("--finding", metavar="F3", help="As `check` numbers it; else the first."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to, .jsonl; else stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Check at most so many candidates.")
    ] = 2000,
    format: Annotated[Format, typer.Option("--format", help="How to tell what came out.")] = (
        Format.TABLE
    ),
) -> None:
    """Find the fewest events that still show a finding, as a trace of its own.

    A smaller trace must have the same root finding (rule, group, kinds and lanes of its two ends)
    and no error of another rule. Ctrl-C ends with the smallest found so far.
    """
    from hkvtool.store.destination import Destination
    from hkvtool.store.opening import refuse_own_output

    if output is not None and output.suffix not in (".jsonl", ".json"):
        raise HkvError(f"{output}: a small trace is JSON lines", hint="name it .jsonl")
    if output is None and format is Format.JSON:
        raise HkvError("--format json and the trace would both go to stdout", hint="add -o FILE")
    # That the trace could not be written in the end must not turn out after the search.
    place = None if output is None else Destination(output, force=force)
    if output is not None:
        refuse_own_output(trace, output, "smallest trace")
    small, wanted = minimized(trace, finding, budget)
    if place is None:
        print("\n".join(small.lines))
    else:
        with place:
            place.path.write_text("\n".join(small.lines) + "\n", encoding="ascii")
    if format is Format.JSON:
        print_json(_account(small, wanted))
    else:
        _tell(small, wanted, output)


def _account(small: Minimal, wanted: Finding) -> dict[str, Any]:
    return {
        "finding": wanted.id,
        "code": wanted.code,
        "events_before": small.before,
        "events": len(small.events),
        "declarations": len(small.events) - small.happenings,
        "checks": small.checks,
        "lane_switches": small.switches,
        "complete": small.complete,
        "message": small.finding.message,
    }


def _tell(small: Minimal, wanted: Finding, output: Path | None) -> None:
    where = "stdout" if output is None else shown(output)
    more = "" if small.complete else "; it may go smaller: the search was cut short"
    print(
        f"{where}: {small.happenings} of {small.before:,} events and "
        f"{counted(len(small.events) - small.happenings, 'declaration')} still show {wanted.code} "
        f"({counted(small.checks, 'check')}, "
        f"{small.switches} lane switch{'es' * (small.switches != 1)}){more}",
        file=sys.stderr,
    )
    if output is None:
        return
    if not small.complete:
        further = output.with_name(f"{output.stem}.smaller{output.suffix}")
        words = ("hkvtool", "minimize", output, "--finding", wanted.code, "-o", further)
        print(f"this goes on:\n  {spelled(words)}", file=sys.stderr)
    from hkvtool.cli.console import console
    from hkvtool.model.event import Event
    from hkvtool.model.text import event_line
    from hkvtool.report.table import report_lines

    events = {pos: Event.of(pos, data) for pos, data in enumerate(small.events, 1)}
    out = console()
    for pos, event in events.items():
        out.print(f"{pos:>4}  {event_line(event)}", markup=False, soft_wrap=True)
    out.print()
    for line in report_lines(small.report, events, out.width, name=str(output)):
        out.print(line.text, style=line.style or None, soft_wrap=True)
