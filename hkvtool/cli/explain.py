"""`hkvtool explain`: one finding of a trace, told event by event."""

from __future__ import annotations

from typing import Annotated

import typer

from hkvtool.cli.picking import picked
from hkvtool.cli.traces import Format, TraceArgument, print_json, watched_events


def command(
    trace: TraceArgument,
    finding: Annotated[
        str,
        typer.Argument(
            metavar="FINDING", help="F3, or a rule: the first finding of it. Else the first of all."
        ),
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Tell the story of one finding: the check, what changed, the use; what each side believed and
    what was true; why that is a fault, and what usually fixes it.

    The diagram's bar leads from the one telling event to the other; it is dashed where no edge
    orders the two. `*` marks what is different about the block between them.
    """
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.report.story import story_lines
    from hkvtool.report.telling import story_of
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        with watched_events(opened, f"checking {trace}") as events:
            report = check_trace(opened, events=events)
        told = story_of(opened, report, picked(report, finding, trace))
    if format is Format.JSON:
        print_json(told.as_json())
        return
    from hkvtool.cli.console import console

    out = console()
    for line in story_lines(told, out.width, name=trace):
        out.print(line.text, style=line.style or None, soft_wrap=True)
