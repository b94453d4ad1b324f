"""`hkvtool import`: JSON lines into a DuckDB trace."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.traces import counted, progress
from hkvtool.model.text import shown


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="hkv/1 JSON lines (gzipped or not), Parquet that `export` wrote, or `-` for "
            "stdin. Several are parts of one recording, in this order.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; else FILE.duckdb beside the first."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Read hkv/1 JSON lines into a DuckDB trace.

    Nothing is lost: unknown keys, lines that cannot be read and line numbers are kept, and
    `hkvtool export` gives the same events back. But of a line longer than 16 MiB, which no event
    is, only the first 4,096 bytes are kept. The trace appears under its name when all of it is on
    disk.
    """
    from hkvtool.store.importing import default_output, import_traces

    target = output or default_output(files[0])
    sizes = {file: os.path.getsize(file) for file in files if os.path.isfile(file)}
    before = {file: sum(list(sizes.values())[:i]) for i, file in enumerate(sizes)}
    with progress(f"reading {Path(files[0]).name}", sum(sizes.values()) or None) as told:
        summary = import_traces(
            files,
            target,
            force=force,
            progress=told and (lambda file, read: told(before.get(file, 0) + read)),
        )
    bad = int(summary.kinds[0])
    also = f", {bad:,} of them malformed (HKV905)" if bad else ""
    print(f"{shown(target)}: {counted(summary.events, 'event')}{also}", file=sys.stderr)
