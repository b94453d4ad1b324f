"""A recording that goes on: each time only what is new is read, folded and checked."""

from __future__ import annotations

from hkvtool.analyzers.check import Check
from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.findings import Report
from hkvtool.model.recording import Stage
from hkvtool.model.recording_tail import RecordingTail
from hkvtool.state.fold import Fold
from hkvtool.store.derive_reads import Deriving
from hkvtool.store.segments import segment_rows


class GoingOn:
    """A recording and how far it was read. `fold` is the state after the last event that was
    taken. With `check` the rules are asked on the way."""

    def __init__(self, path: str, fold: Fold, *, check: bool) -> None:
        self.fold = fold
        self._tail = RecordingTail(path, segment_rows)
        self._deriving = Deriving()
        self._evidence: Evidence | None = Evidence() if check else None
        self._check: Check | None = None

    @property
    def waiting(self) -> bool:
        """Whether there is more than was read."""
        return self._tail.waiting

    @property
    def over(self) -> bool:
        """Whether the recording has ended and all of it was read."""
        return self._tail.count.stage is not Stage.RECORDING and not self._tail.waiting

    @property
    def dropped(self) -> int:
        """Events that the recorder lost."""
        return self._tail.count.rings.dropped

    @property
    def checked(self) -> bool:
        """Whether every event that was taken was checked."""
        return self._check is not None

    def more(self, most: int) -> list[Event]:
        """What is new, of about so many events that were recorded. Raises TraceError."""
        return [event for raw in self._tail.more(most) for event in self._deriving.of(raw)]

    def take(self, event: Event) -> None:
        """Fold the next event, and check it."""
        if self._evidence is not None:
            self._begin_check(event)
        if self._check is None:
            self.fold.apply(event)
        else:
            self._check.count += 1
            self._check.event(event)

    def report(self, *, ended: bool) -> Report | None:
        """What was found so far; where the recording has `ended`, everything, once."""
        if self._check is None:
            return None
        return self._check.report() if ended else self._check.so_far()

    def forget(self) -> None:
        """Let go of what is over, so that memory does not grow with the recording."""
        if self._check is not None:
            self._check.forget()

    def _begin_check(self, event: Event) -> None:
        """What a recorder could see it says first; where it does not, only the whole tells."""
        assert self._evidence is not None
        self._evidence.see(event)
        if self._evidence.settled:
            self._check = Check(Context(self._evidence, self.fold))
        if self._evidence.settled or event.ev != "trace":
            self._evidence = None
