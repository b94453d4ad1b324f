"""A trace as JSON lines."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from hkvtool.model.event import Event
from hkvtool.model.jsonl import write_line
from hkvtool.store.destination import Destination
from hkvtool.store.trace import Trace

Progress = Callable[[int], None]
"""Told how many events have been written."""

_MAX_BLANK_LINES = 1 << 20
"""A longer gap between two positions was not made by blank lines."""

_TOLD_EVERY = 4096


def export_jsonl(
    trace: Trace,
    stream: IO[bytes],
    progress: Progress | None = None,
    change: Callable[[Event], Event] | None = None,
) -> int:
    """Write every event on the line of its `pos`, blank lines between; returns how many.

    `change` is made to each, in order.
    """
    line = written = 0
    for event in map(change, trace.events()) if change else trace.events():
        gap = event.pos - line - 1
        if 0 < gap <= _MAX_BLANK_LINES:
            stream.write(b"\n" * gap)
        stream.write(write_line(event).encode("utf-8", "backslashreplace") + b"\n")
        line = event.pos
        written += 1
        if progress and written % _TOLD_EVERY == 0:
            progress(written)
    return written


@contextmanager
def writing(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[IO[bytes]]:
    """A stream to a file that is there whole or not at all; gzipped where its name says `.gz`."""
    with Destination(path, force=force) as destination:
        try:
            if os.fspath(path).endswith(".gz"):
                with gzip.open(destination.path, "wb", compresslevel=6) as zipped:
                    yield zipped  # type: ignore[misc]
            else:
                with open(destination.path, "wb", buffering=1 << 20) as plain:
                    yield plain
        except OSError as e:
            raise destination.failure(e) from e
