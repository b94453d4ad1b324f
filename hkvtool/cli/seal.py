"""`hkvtool seal`: seal the rings of a recording from beside the program, as in a sidecar."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.amounts import KEEP, MAX_SIZE, seconds, size
from hkvtool.cli.status_line import StatusLine
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.recorder.sealing import Bounds

_LOOK = 0.5


def command(
    recording: Annotated[
        Path,
        typer.Argument(
            metavar="NAME.hkv", help="The folder that is recorded to.", show_default=False
        ),
    ],
    max_size: MAX_SIZE = None,
    keep: KEEP = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the folder, if it is not there yet.")
    ] = False,
) -> None:
    """Move what is recorded from the rings into Parquet segments, until SIGTERM or Ctrl-C.

    `hkvtool record` does this by itself. It is for a program that was started with HKV_RECORD by
    something else: in a container of its own, this one beside it.
    """
    from hkvtool.model.recording import is_recording
    from hkvtool.recorder.sealing import Bounds

    stop = threading.Event()
    before = {n: signal.signal(n, lambda *_: stop.set()) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        bounds = Bounds(size(max_size, "--max-size"), seconds(keep, "--keep"))
        folder = os.path.abspath(recording)
        while wait and not is_recording(folder) and not stop.is_set():
            sleep(_LOOK)
        if stop.is_set():
            return
        if not is_recording(folder):
            raise HkvError(f"{folder} holds no recording", hint="--wait waits for it")
        status = StatusLine()
        with status.shown():
            while not stop.is_set():
                _seal(folder, bounds, stop, status)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _seal(folder: str, bounds: Bounds, stop: threading.Event, status: StatusLine) -> None:
    """Seal what is recorded to a folder until we are stopped, or an engine that was started anew
    has set it aside: we hold on to the folder itself, whatever it is called by then."""
    from hkvtool.recorder.sealer import Sealer
    from hkvtool.recorder.sealing import Sealing

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = os.fstat(fd)
        sealing = Sealing(Sealer(f"/proc/self/fd/{fd}"), bounds)

        def over(pause: float) -> bool:
            if stop.wait(pause):
                return True
            try:
                return not os.path.samestat(os.stat(folder), held)
            except FileNotFoundError:
                return False

        sealing.run(over, lambda: False, status.tell)
        sealing.sealer.close()
        last = sealing.status()
        print(f"{shown(folder)}: {last.events:,} events, {last.dropped:,} dropped", file=sys.stderr)
    finally:
        os.close(fd)
