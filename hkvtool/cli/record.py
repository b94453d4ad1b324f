"""`hkvtool record`: start a program and record what its allocator does."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.amounts import seconds, shown_bytes, size
from hkvtool.cli.recorded import ending, folder_of, settings_of, tell_begin
from hkvtool.cli.status_line import StatusLine, expected_a_day
from hkvtool.model.errors import HkvError

if TYPE_CHECKING:
    from hkvtool.recorder.launcher import Ended


_RATED_FROM = 60.0
"""Seconds that must have been recorded before they say something of a day."""


def command(
    program: Annotated[
        list[str],
        typer.Argument(metavar="-- PROGRAM [ARGS]...", help="What to start, as you would without."),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where to: .duckdb, or .hkv to leave it sealed.")
    ] = Path("trace.duckdb"),
    policy: Annotated[
        str,
        typer.Option(
            "--policy",
            metavar="drop|overwrite",
            help="When a ring is full: drop new events, or keep only the latest (flight recorder).",
        ),
    ] = "drop",
    duration: Annotated[
        str | None,
        typer.Option("--duration", help="Record so long, e.g. 10m; the program goes on."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option("--max-size", help="Stop there; with --keep delete the oldest instead."),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", help="Delete what is older, e.g. 24h.")
    ] = None,
    trigger: Annotated[
        str | None,
        typer.Option(
            "--trigger",
            metavar="CODES",
            help="Of the guard's findings, snapshot only at these, e.g. HKV303,HKV702.",
        ),
    ] = None,
    ring_size: Annotated[
        str, typer.Option("--ring-size", help="Of the ring of each thread.")
    ] = "16M",
    ring_memory: Annotated[
        str, typer.Option("--ring-memory", help="Of all rings of a process together.")
    ] = "64M",
    rings: Annotated[
        Path | None,
        typer.Option("--rings", metavar="FOLDER", help="Put the rings there, e.g. /dev/shm."),
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
    """Start PROGRAM and record what the KV cache of its engine does.

    hkvtool must be installed beside the engine too (`pip install --no-deps hkvtool`). The program
    keeps its terminal and its signals; its exit code is passed on. Ctrl-C ends both with a usable
    trace, SIGUSR1 to hkvtool takes a snapshot.
    """
    from hkvtool.recorder.folder import Folder
    from hkvtool.recorder.launcher import launch
    from hkvtool.recorder.outcome import Off
    from hkvtool.recorder.sealing import Bounds

    settings = settings_of(
        policy, size(ring_size, "--ring-size"), size(ring_memory, "--ring-memory"), rings,
        keep_tokens, hash_key, trigger,
    )  # fmt: skip
    bounds = Bounds(size(max_size, "--max-size"), seconds(keep, "--keep"))
    lasts = seconds(duration, "--duration")
    place = folder_of(output, force=force)
    folder = Folder.make(place, settings, force=force)
    if isinstance(folder, Off):
        raise folder.error()
    tell_begin(folder, bounds)
    status = StatusLine()
    began = monotonic()
    made: list[int] = []

    def finish(ended: Ended) -> None:
        status.end()
        folder.end(complete=not ended.died)
        _tell_end(ended, monotonic() - began)
        made.append(ending(folder.path, output, force=force))

    try:
        with status.shown():
            code = launch(
                program, folder, bounds=bounds, duration=lasts, told=status.tell,
                asked=lambda: _snapshot(folder.path), ended=finish,
            )  # fmt: skip
    except HkvError:
        folder.discard()
        raise
    return code or max(made, default=0)


def _snapshot(folder: str) -> None:
    from hkvtool.recorder.snapshot import snapshot

    try:
        print(f"hkvtool: snapshot in {snapshot(folder, 'signal')}", file=sys.stderr)
    except HkvError as e:
        print(f"hkvtool: no snapshot: {e.what}", file=sys.stderr)


def _tell_end(ended: Ended, lasted: float) -> None:
    if ended.sealer:
        print(f"hkvtool: {ended.sealer}; what it left is in the rings", file=sys.stderr)
    status = ended.status
    if status is None or not status.events:
        return
    each = status.bytes / max(1, status.events - status.waiting)
    said = [
        f"{status.events:,} events in {lasted:,.1f} s, {status.dropped:,} dropped",
        f"{each:.1f} bytes an event",
    ]
    if lasted > _RATED_FROM:
        a_day = status.bytes / lasted * 86400
        said.append(f"{shown_bytes(a_day)} a day, {a_day / expected_a_day():.1f} x the expected")
    print(f"hkvtool: {'; '.join(said)}", file=sys.stderr)
