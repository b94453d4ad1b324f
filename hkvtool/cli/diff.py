"""`hkvtool diff`: where two traces of the same work part, and what that changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import Format, print_json, watched_events
from hkvtool.model.errors import Exit

if TYPE_CHECKING:
    from hkvtool.analyzers.divergence import Lane
    from hkvtool.model.event import Event
    from hkvtool.model.findings import Report
    from hkvtool.store import Trace

_SHOWN = 3
"""Events of a lane that are shown from where it parts."""

_HELP = "A .duckdb trace, a .jsonl file (gzipped or not), an .hkv recording, or `-` (stdin)."


def command(
    one: Annotated[str, typer.Argument(metavar="A", help=_HELP, show_default=False)],
    other: Annotated[str, typer.Argument(metavar="B", help=_HELP, show_default=False)],
    rename: Annotated[
        bool,
        typer.Option("--rename-blocks", help="Know blocks by the order of their first sight."),
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> int:
    """Find where two traces part, lane by lane; findings that only one has; the ratios of both.

    For work that is the same and an engine that is not: it broke between these two versions. Times,
    hashes, handles and the names of edges may differ; requests, steps and blocks may not.

    Exits with 0 where nothing parts and both have the same findings, else with 1.
    """
    from hkvtool.analyzers.divergence import divergence
    from hkvtool.report.difference import Difference, difference_lines
    from hkvtool.store import open_trace
    from hkvtool.store.opening import refuse_stdin_twice

    refuse_stdin_twice([one, other])
    with open_trace(one) as a, open_trace(other) as b:
        with watched_events(a, "comparing") as first:
            lanes = divergence(first, b.events(), rename_blocks=rename)
        found = Difference((one, other), (_check(a, one), _check(b, other)), lanes)
        for side, trace in enumerate((a, b)):
            found.after |= {(lane, side): events for lane, events in _after(trace, lanes, side)}
    if format is Format.JSON:
        print_json(found.as_json())
    else:
        from hkvtool.cli.console import console

        out = console()
        for line in difference_lines(found, out.width):
            out.print(line.text, style=line.style or None, soft_wrap=True)
    return Exit.OK if found.same else Exit.FINDINGS


def _check(trace: Trace, name: str) -> Report:
    from hkvtool.analyzers import check

    with watched_events(trace, f"checking {name}") as events:
        return check(events)


def _after(trace: Trace, lanes: Iterable[Lane], side: int) -> Iterable[tuple[str, list[Event]]]:
    """What comes where the lanes part that are told one by one."""
    from hkvtool.analyzers.divergence import following
    from hkvtool.report.difference import listed

    starts = {lane.name: at for lane in listed(lanes) if (at := lane.at[side]) is not None}
    events = trace.events(since=min(starts.values())) if starts else ()
    return following(events, starts, _SHOWN).items()
