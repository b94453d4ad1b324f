"""`hkvtool explain`: one finding of a trace, told event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.picking import picked
from hkvtool.cli.traces import Format, TraceArgument, print_json, watched_events
from hkvtool.model.findings import Finding, Report

if TYPE_CHECKING:
    from hkvtool.model.block_state import CacheBlockState
    from hkvtool.report.story import Story
    from hkvtool.store import Trace


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
    from hkvtool.analyzers import check
    from hkvtool.report.story import story_lines
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        with watched_events(opened, f"checking {trace}") as events:
            report = check(events)
        told = _story(opened, report, picked(report, finding, trace))
    if format is Format.JSON:
        print_json(told.as_json())
        return
    from hkvtool.cli.console import console

    out = console()
    for line in story_lines(told, out.width, name=trace):
        out.print(line.text, style=line.style or None, soft_wrap=True)


def _story(trace: Trace, report: Report, finding: Finding) -> Story:
    from hkvtool.report.checked import positions
    from hkvtool.report.story import chosen, ends

    named = positions(finding)
    if not named:
        return chosen(finding, {}, [])
    first, last = min(named), max(named)
    events = {e.pos: e for e in trace.events(since=first, until=last) if e.pos in set(named)}
    between = []
    if finding.pool is not None and finding.blocks:
        block = (finding.pool, finding.blocks[0])
        between = list(trace.events(since=first, until=last, block=block))
    told = chosen(finding, events, between)
    by_id = {f.id: f for f in report.findings}
    told.cause = by_id.get(finding.cause or "")
    told.caused = [by_id[i] for i in finding.caused if i in by_id]
    told.states = [(p, _state(trace, finding, p)) for p in sorted(set(ends(finding)))]
    return told


def _state(trace: Trace, finding: Finding, pos: int) -> CacheBlockState | None:
    """The finding's first block as its group sees it, just before an event."""
    from hkvtool.state.view import block_state
    from hkvtool.store.moments import fold_at

    if not finding.blocks or pos <= 1:
        return None
    fold = fold_at(trace, pos - 1)
    group = fold.group(finding.group)
    if group is None or group.pool.name != finding.pool:
        return None
    return block_state(fold, group, finding.blocks[0])
