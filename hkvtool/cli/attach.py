"""`hkvtool attach`: start recording in a process that loaded us idle."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.amounts import DURATION, seconds, size
from hkvtool.cli.recorded import ending, folder_of, settings_of, tell_begin
from hkvtool.cli.status_line import StatusLine
from hkvtool.model.errors import HkvError


def command(
    pid: Annotated[int, typer.Argument(metavar="PID", help="The engine, or what started it.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to: .duckdb, or .hkv to leave it sealed.")
    ] = Path("trace.duckdb"),
    policy: Annotated[
        str, typer.Option("--policy", metavar="drop|overwrite", help="When a ring is full.")
    ] = "drop",
    duration: DURATION = None,
    max_size: Annotated[
        str | None, typer.Option("--max-size", help="Stop when the recording is so large.")
    ] = None,
    keep_tokens: Annotated[
        bool, typer.Option("--keep-tokens", help="Token ids and text may be recorded.")
    ] = False,
    hash_key: Annotated[
        Path | None,
        typer.Option("--hash-key", metavar="FILE", help="Key of the hashes; else a random one."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing trace.")] = False,
) -> int:
    """Record a running process and its children, from now to Ctrl-C or `hkvtool detach PID`.

    They must have been started with HKV_ATTACH=1, so that they listen: on a socket that only you
    may use. Nothing is injected into a process.

    Exits with 3 where nothing was recorded, or not all of it can be read.
    """
    from hkvtool.recorder.attaching import attach, processes
    from hkvtool.recorder.folder import Folder
    from hkvtool.recorder.outcome import Off
    from hkvtool.recorder.sealing import Bounds

    processes(pid)
    settings = settings_of(policy, None, None, None, keep_tokens, hash_key, None)
    bounds = Bounds(size(max_size, "--max-size"))
    lasts = seconds(duration, "--duration")
    folder = Folder.make(folder_of(output, force=force), settings, force=force)
    if isinstance(folder, Off):
        raise folder.error()
    tell_begin(folder, bounds)
    status = StatusLine()
    try:
        with status.shown():
            _, trouble = attach(pid, folder, bounds=bounds, duration=lasts, told=status.tell)
    except HkvError:
        folder.discard()
        raise
    folder.end()
    if trouble:
        print(f"hkvtool: {trouble}", file=sys.stderr)
    return ending(folder.path, output, force=force)
