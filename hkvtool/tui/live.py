"""A recording that is still running, read again and again.

Each reading is a trace of its own, as far as the recording had come. How often depends on how
long one takes: never more than a quarter of the time.
"""

from __future__ import annotations

import os
from contextlib import suppress
from time import monotonic

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of
from hkvtool.state.fold import PLAIN_LIMIT
from hkvtool.store import Trace, open_trace
from hkvtool.store.derive_reads import derive_reads
from hkvtool.store.ingesting import ingest
from hkvtool.store.lines import JsonlTrace
from hkvtool.store.segments import segment_rows
from hkvtool.tui.session import Session

SOONEST = 0.2
"""Seconds from one reading to the next, at least."""


class HeldTrace(JsonlTrace):
    """Events of a recording, held as they were read."""

    def __init__(self, path: str, events: list[Event]) -> None:
        super().__init__(path)
        self._kept = events


class Live:
    """A recording and what was read of it; `folder` is where long readings are put."""

    def __init__(self, path: str, folder: str) -> None:
        self.path, self._folder = path, folder
        self.stage = stage_of(path)
        self.found: RecordingCount | None = None
        self.seconds = 0.0
        self._events = self._number = 0
        self._traces: list[Trace] = []
        self._last: Session | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.stage is not Stage.RECORDING

    @property
    def wait(self) -> float:
        """Seconds until the next reading."""
        return max(SOONEST, 3 * self.seconds)

    @property
    def dropped(self) -> int:
        """Events that the recorder lost."""
        return self.found.rings.dropped if self.found is not None else 0

    def first(self) -> Session:
        """The recording as it is. Raises TraceError."""
        session = self.newer()
        if session is None:
            hint = "it is being recorded; try again when something has happened"
            raise TraceError(f"{self.path}: there is no event in it yet", hint=hint)
        return session

    def newer(self) -> Session | None:
        """A reading with more in it than the last, if there is more. Raises TraceError."""
        started = monotonic()
        # What is complete before it is read has nothing behind it.
        stage = stage_of(self.path)
        trace = self._read()
        self.seconds = monotonic() - started
        self.stage = stage
        if trace is None:
            return None
        if trace.count <= self._events:
            trace.close()
            return None
        self._events = trace.count
        self._traces.append(trace)
        # The one before may still be looked at.
        while len(self._traces) > 2:
            self._let_go(self._traces.pop(0))
        session = Session(trace, trace.path if os.path.isfile(trace.path) else self.path)
        session.live = self
        if self._last is not None:
            session.moments.go_on_from(self._last.moments)
        self._last = session
        return session

    def close(self) -> None:
        """Let go of what was read."""
        while self._traces:
            self._let_go(self._traces.pop())

    def _read(self) -> Trace | None:
        if self._events < PLAIN_LIMIT:
            self.found = RecordingCount(stage_of(self.path))
            events = list(derive_reads(read_recording(self.path, self.found, segment_rows)))
            if not events:
                return None
            if len(events) < PLAIN_LIMIT:
                return HeldTrace(self.path, events)
        self._number += 1
        target = os.path.join(self._folder, f"live-{self._number}.duckdb")
        _, self.found = ingest(self.path, target)
        return open_trace(target)

    def _let_go(self, trace: Trace) -> None:
        trace.close()
        if trace.path.startswith(self._folder):
            with suppress(OSError):
                os.unlink(trace.path)
