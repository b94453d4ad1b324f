"""A recording that is still running, followed: each time only what is new is read, folded and
checked."""

from __future__ import annotations

from time import monotonic, sleep

from hkvtool.analyzers.going_on import GoingOn
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.model.recording import weight_of
from hkvtool.state.fold import Fold
from hkvtool.store.growing import GrowingTrace
from hkvtool.store.growing_moments import GrowingMoments
from hkvtool.store.timeline import GrowingTimeline, Timeline
from hkvtool.tui.session import STRETCHES, Session

SOONEST, LATEST = 0.1, 0.2
"""Seconds from the end of one reading to the next: ten times a second where there is little to do,
and never more than half of the time."""

AT_MOST = 0.12
"""Seconds of one reading; what is left is for the next."""

_TOO_MANY = 50_000
"""A recording that has so many events when it is opened is not checked as it goes on: the screen
would be behind for minutes."""

_LOOKS = 4
"""Looks at a recording in which there seems to be nothing: its latest events are held back for a
moment, until those of other threads have come."""

_SLICE = 256
"""Events that are folded before somebody else may look."""


class Live:
    """A recording and what was read of it so far."""

    def __init__(self, path: str, check: bool | None = None) -> None:
        self.path = path
        wanted = weight_of(path) <= _TOO_MANY if check is None else check
        self._reading = GoingOn(path, Fold(), check=wanted)
        self._timeline = GrowingTimeline(STRETCHES)
        self._seconds = 0.0
        self.over = False
        self.trace = GrowingTrace(path)
        self.moments = GrowingMoments(self.trace, self._reading.fold)
        self.session = Session(self.trace, path, self.moments)
        self.session.live = self

    @property
    def wait(self) -> float:
        """Seconds until the next reading."""
        return min(LATEST, max(SOONEST, self._seconds))

    @property
    def behind(self) -> bool:
        """Whether more was recorded than there was time to read."""
        return self._reading.waiting

    @property
    def dropped(self) -> int:
        """Events that the recorder lost."""
        return self._reading.dropped

    @property
    def checked(self) -> bool:
        """Whether every event that is there was checked."""
        return self._reading.checked

    def axis(self) -> Timeline:
        """What happened where so far."""
        return self._timeline.now()

    def begin(self) -> bool:
        """Read what is there already; whether there was anything. Raises HkvError."""
        for _ in range(_LOOKS):
            if self.advance() or self.over:
                break
            sleep(SOONEST / _LOOKS)
        return self.moments.last > 0

    def advance(self) -> bool:
        """Read on, for a moment; whether there was anything. Raises HkvError."""
        started, before = monotonic(), self.moments.last
        while True:
            found = self._reading.more(_SLICE)
            if found:
                self._take(found)
            if not self._reading.waiting:
                break
            if monotonic() - started > AT_MOST:
                break
        self._seconds = monotonic() - started
        self.over = self.over or self._reading.over
        return self.moments.last > before

    def report(self) -> Report | None:
        """What was found so far; once it is over, everything."""
        return self._reading.report(ended=self.over)

    def close(self) -> None:
        """Let go of what was read."""
        self.trace.close()

    def _take(self, events: list[Event]) -> None:
        self.trace.extend(events)
        self._timeline.add(events)
        with self.session.lock:
            for event in events:
                self._reading.take(event)
                self.moments.passed(event.pos)
