"""`hkvtool ingest`: a recording into a DuckDB trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.recorded import beside
from hkvtool.cli.traces import counted, progress
from hkvtool.model.text import shown


def command(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="NAME.hkv...",
            help="The folder that a recorder wrote; several of one engine on several machines.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; else NAME.duckdb beside it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Turn a recording into a trace.

    It may have been finished, be going on, or be of a program that was killed: every event that
    was recorded is read. What is damaged is cut out, said, and stands in the trace as lost events.
    Several machines are brought together by their wall clocks and by the edges between them.
    """
    from hkvtool.store.ingesting import ingest

    recording, *besides = recordings
    target = output or beside(recording, ".duckdb")
    with progress(f"reading {recording.name}", 100) as told:
        summary, count = ingest(
            recording,
            target,
            *besides,
            force=force,
            progress=told and (lambda read, total: told(100 * read // max(1, total))),
        )
    for problem in count.problems():
        print(f"{shown(str(recording))}: {shown(problem)}", file=sys.stderr)
    print(f"{shown(target)}: {counted(summary.events, 'event')}", file=sys.stderr)
