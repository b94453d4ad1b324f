"""A recording into a DuckDB trace, or as it stands."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.jsonl import write_line
from hkvtool.model.recording import (
    RecordingCount,
    Stage,
    read_recording,
    read_recordings,
    stage_of,
    weight_of,
)
from hkvtool.store.derive_reads import derive_reads
from hkvtool.store.duck import DuckTrace
from hkvtool.store.lines import JsonlTrace
from hkvtool.store.scratch import Scratch, Spool
from hkvtool.store.segments import segment_rows
from hkvtool.store.summary import Summary
from hkvtool.store.trace import Trace
from hkvtool.store.writer import TraceWriter

_TOLD_EVERY = 4096

_LONG = 50_000
"""Events from which on a recording is long."""

Progress = Callable[[int, int], None]
"""Told how many bytes of how many have been read."""


def ingest(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *besides: str | os.PathLike[str],
    force: bool = False,
    progress: Progress | None = None,
) -> tuple[Summary, RecordingCount]:
    """Write the events of a recording as one trace; says what was torn or dropped.

    `besides` are recordings of the same thing on other machines. They stay as they are. On any
    failure nothing is left behind. Raises HkvError.
    """
    folders = [folder, *besides]
    count = RecordingCount(_stage_of_all(folders))
    with TraceWriter(output, force=force) as writer:
        told = _told(read_recordings(folders, count, segment_rows), count, progress)
        writer.write(derive_reads(told))
        if not writer.summary.events:
            raise TraceError(
                f"{os.fspath(folder)}: there is no event in it", hint="; ".join(count.problems())
            )
        writer.summary.clocks = [clock.fact() for clock in count.clocks.values()]
        writer.end_source(os.fspath(folder).rstrip("/"))
    return writer.summary, count


def _stage_of_all(folders: list[str | os.PathLike[str]]) -> Stage:
    """Complete where all are; else how the first stands that is not."""
    stages = [stage_of(folder) for folder in folders]
    return next((stage for stage in stages if stage is not Stage.COMPLETE), Stage.COMPLETE)


def open_recording(path: str) -> Trace:
    """A recording as it is now. One that is long is ingested first, into a file that goes away:
    that takes less than reading it twice. Raises TraceError."""
    long = weight_of(path) > _LONG
    return IngestedRecording(path) if long else RecordingTrace(path)


class IngestedRecording(DuckTrace):
    """A long recording as it was when it was opened."""

    def __init__(self, path: str) -> None:
        self._aside = Scratch()
        try:
            target = os.path.join(self._aside.name, os.path.basename(path.rstrip("/")) + ".duckdb")
            _, self.found = ingest(path, target)
            super().__init__(target)
        except BaseException:
            self._aside.cleanup()
            raise
        self.path = path

    @property
    def remarks(self) -> list[str]:
        return self.found.problems()

    def close(self) -> None:
        super().close()
        self._aside.cleanup()


class RecordingTrace(JsonlTrace):
    """A recording as it was when it was opened, be it finished or not.

    Its events are put aside as JSON lines: the rings that they come from may be overwritten
    before they are read a second time.
    """

    def __init__(self, path: str) -> None:
        self.found = RecordingCount(stage_of(path))
        self._spool = Spool()
        try:
            for event in derive_reads(read_recording(path, self.found, segment_rows)):
                self._spool.file.write(write_line(event).encode() + b"\n")
            self._spool.file.flush()
        except OSError as e:
            self.close()
            raise TraceError(
                f"cannot put aside what is in {path}: {e.strerror or e}",
                hint="point TMPDIR to a larger disk",
            ) from e
        except BaseException:
            self.close()
            raise
        super().__init__(path, self._spool.path)

    @property
    def remarks(self) -> list[str]:
        return self.found.problems()

    @property
    def meta(self) -> dict[str, Any]:
        self._summarized().clocks = [clock.fact() for clock in self.found.clocks.values()]
        return super().meta

    def close(self) -> None:
        self._spool.cleanup()


def _told(
    events: Iterator[Event], count: RecordingCount, progress: Progress | None
) -> Iterator[Event]:
    for event in events:
        if progress is not None and event.pos % _TOLD_EVERY == 0:
            progress(count.read_bytes, count.total_bytes)
        yield event
