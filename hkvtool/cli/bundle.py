"""`hkvtool bundle`: a finding in one file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.picking import minimized
from hkvtool.cli.traces import TraceArgument
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.text import shown


def command(
    trace: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to, .zip.")],
    finding: Annotated[
        str | None,
        typer.Option("--finding", metavar="F3", help="As `check` numbers it; else the gravest."),
    ] = None,
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Candidates to check while minimising.")
    ] = 2000,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Minimise a finding and pack it: events, report, failing schedule, test, checksums.

    Every command that reads a trace reads a bundle too: `hkvtool check`, `replay` and `tui`.
    """
    from hkvtool.report.pytest_case import pytest_case
    from hkvtool.store.bundle import REPORT, TEST, TRACE, Bundle, environment, write_bundle
    from hkvtool.store.destination import Destination
    from hkvtool.store.opening import refuse_own_output

    if output.suffix != ".zip":
        raise HkvError(f"{output}: a bundle is a zip", hint="name it .zip")
    # That the bundle could not be written in the end must not turn out after the search.
    refuse_own_output(trace, output, "bundle")
    Destination(output, force=force)
    small, _ = minimized(trace, finding, budget)
    few = [Event.of(pos, data) for pos, data in enumerate(small.events, 1)]
    schedule = _failing(few, small.finding)
    files = {
        TRACE: ("\n".join(small.lines) + "\n").encode(),
        REPORT: json.dumps(small.report.as_json(), indent=2).encode(),
        TEST: pytest_case(few, small.finding).encode(),
    }
    about = Bundle(
        small.finding.id, small.finding.code, small.finding.message, schedule,
        Path(trace).name, small.before, environment(), {},
    )  # fmt: skip
    write_bundle(output, about, files, force=force)
    race = f", failing schedule {schedule}" if schedule else ""
    print(
        f"{shown(output)}: {small.finding.code} in {len(few)} of {small.before:,} events{race}",
        file=sys.stderr,
    )


def _failing(events: list[Event], finding: Finding) -> str | None:
    """The schedule in which a race is lost, if the finding is one and a search finds it."""
    from hkvtool.replay.explore import explore
    from hkvtool.replay.window import window

    if not finding.edge or not finding.pool:
        return None
    places = frozenset((finding.pool, block) for block in finding.blocks)
    found = explore(window(events, places, finding.events)).found
    return found[0].schedule if found else None
