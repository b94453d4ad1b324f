"""`hkvtool snapshot`: what a recording that goes on holds at this moment, as a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.recorded import beside
from hkvtool.cli.traces import counted
from hkvtool.model.errors import HkvError
from hkvtool.model.recording import Stage, stage_of
from hkvtool.model.text import shown


def command(
    recording: Annotated[
        Path,
        typer.Argument(
            metavar="NAME.hkv", help="The folder that is being recorded to.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; else NAME-snapshot.duckdb beside it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Copy the rings of a recording that goes on, and make a trace of them.

    The program is not asked and does not wait. With `--policy overwrite` it is the latest that
    happened, as far back as the rings reach.
    """
    from hkvtool.model.recording import remove_recording
    from hkvtool.recorder.snapshot import snapshot
    from hkvtool.store.destination import Destination
    from hkvtool.store.ingesting import ingest

    if stage_of(recording) is not Stage.RECORDING:
        raise HkvError(
            f"{recording} is not being recorded", hint=f"`hkvtool ingest {recording}` makes a trace"
        )
    target = output or beside(recording, "-snapshot.duckdb")
    Destination(target, force=force)
    place = snapshot(str(recording), "command")
    try:
        summary, count = ingest(place, target, force=force)
    finally:
        remove_recording(place)
    for problem in count.problems():
        print(f"{shown(str(recording))}: {shown(problem)}", file=sys.stderr)
    print(f"{shown(target)}: {counted(summary.events, 'event')}", file=sys.stderr)
