"""`hkvtool record`: start a program and record what its allocator does."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.amounts import KEEP, MAX_SIZE, seconds, shown_bytes, size
from hkvtool.cli.live_screen import LiveScreen, unheard
from hkvtool.cli.recorded import beside, ending, folder_of, settings_of, tell_begin
from hkvtool.cli.status_line import StatusLine, expected_a_day
from hkvtool.model.errors import HkvError

if TYPE_CHECKING:
    from hkvtool.recorder.launcher import Ended
    from hkvtool.recorder.sealing import Status


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
    max_size: MAX_SIZE = None,
    keep: KEEP = None,
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
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Look at it meanwhile, as `hkvtool tui` does. What PROGRAM prints goes to a .log "
            "file beside the trace, and it gets no input.",
        ),
    ] = False,
    fingerprint: Annotated[
        str | None,
        typer.Option(
            "--fingerprint", metavar="off|RATE|all", help="Of blocks' bytes, e.g. 0.01 (vLLM)."
        ),
    ] = None,
    fingerprint_match: Annotated[
        list[str] | None,
        typer.Option(
            "--fingerprint-match",
            metavar="KIND=VALUE",
            help="All blocks of request=ID, tenant=NAME or prefix=1,2,3.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing trace.")] = False,
) -> int:
    """Start PROGRAM and record what the KV cache of its engine does.

    hkvtool must be installed beside the engine too (`pip install --no-deps hkvtool`). The program
    keeps its terminal and its signals. Ctrl-C ends both with a usable trace, SIGUSR1 to hkvtool
    takes a snapshot.

    Exits with the code of the program; with 3 where that is 0 and nothing was recorded, or not all
    of it can be read.
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
    _ask_for_fingerprints(fingerprint, fingerprint_match)
    place = folder_of(output, force=force)
    screen = LiveScreen(place, beside(place, ".log"), force=force) if live else None
    folder = Folder.make(place, settings, force=force)
    if isinstance(folder, Off):
        raise folder.error()
    tell_begin(folder, bounds)
    status = StatusLine()
    began = monotonic()
    made: list[int] = []

    def tell(now: Status | None) -> None:
        unheard()
        if screen is None or screen.left:
            status.tell(now)

    def finish(ended: Ended) -> None:
        unheard()
        status.end()
        folder.end(complete=not ended.died)
        lasted = monotonic() - began
        if screen is not None:
            screen.wait()
        unheard()
        _tell_end(ended, lasted)
        made.append(ending(folder.path, output, force=force))

    def snapshot() -> None:
        said = _snapshot(folder.path)
        if screen is None or screen.left:
            print(said, file=sys.stderr)
        else:
            screen.log.write(said.encode() + b"\n")

    try:
        with ExitStack() as stack:
            stack.enter_context(status.shown())
            if screen is not None:
                stack.enter_context(screen)
            code = launch(
                program, folder, bounds=bounds, duration=lasts, told=tell, asked=snapshot,
                ended=finish, output=None if screen is None else screen.log, screen=screen,
            )  # fmt: skip
    except HkvError:
        folder.discard()
        raise
    return code or max(made, default=0)


def _ask_for_fingerprints(share: str | None, match: list[str] | None) -> None:
    """Tell the program by its environment, which it inherits. Raises HkvError."""
    from hkvtool.recorder.vllm.fingerprint_choice import FINGERPRINT, MATCH, Choice, ChoiceError

    if share is not None:
        os.environ[FINGERPRINT] = share
    if match:
        os.environ[MATCH] = ";".join(match)
    try:
        Choice.of_environment()
    except ChoiceError as e:
        raise HkvError(str(e), hint="see `hkvtool record --help`") from e


def _snapshot(folder: str) -> str:
    from hkvtool.recorder.snapshot import snapshot

    try:
        return f"hkvtool: snapshot in {snapshot(folder, 'signal')}"
    except HkvError as e:
        return f"hkvtool: no snapshot: {e.line}"


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
