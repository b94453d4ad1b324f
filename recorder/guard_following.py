"""The guard beside the engine: it reads a recording as it is being written, and judges it.

The engine pays for recording and for nothing else; what breaks is said a moment later (`LOOK`). It
needs the standard library only, as what runs within the engine does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from time import monotonic_ns

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.model.manifest import Sealed
from hkvtool.model.recording import GUARD_LOCK, Stage
from hkvtool.model.recording_tail import BEHIND_NS, RecordingTail
from hkvtool.model.ring_drain import RingDrain
from hkvtool.model.ring_format import RingError
from hkvtool.model.writers import RowsOf
from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.settings import Settings
from hkvtool.recorder.snapshot import snapshot
from hkvtool.recorder.violation import Violation

LOOK = 0.1
"""Seconds from the end of one reading to the next."""

LATE_NS = 5_000_000_000
"""So far behind, it says so; and again at each doubling."""

_SLICE = 1024


class Following:
    """A recording and how far it was judged. `say` gets what a person should know; with `drains`
    nobody else reads the recording, and what was read makes room."""

    def __init__(
        self,
        folder: str,
        say: Callable[[str], object],
        *,
        drains: bool = False,
        rows_of: RowsOf | None = None,
    ) -> None:
        self.folder = folder
        self.guard = Guard(Mode.LOG, [self._save])
        self.over = False
        """Whether nothing comes any more."""
        self._say = say
        self._tail = RecordingTail(folder, rows_of or self._sealed_already)
        self._drains: dict[str, RingDrain] | None = {} if drains else None
        self._declared: dict[tuple[str, str], Event] = {}
        self._said: set[str] = set()
        self._late = LATE_NS
        self._sealed = self._gone = 0
        self._anew = False
        """Whether it knows the beginning no more."""
        self._read_to = os.open(
            os.path.join(folder, GUARD_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )

    def advance(self) -> None:
        """Judge what has come since. Raises HkvError."""
        while True:
            before = monotonic_ns()
            found = self._tail.more(_SLICE)
            self._release()
            if self._gaps():
                continue
            for event in found:
                self._take(event)
            self._say_if_late(found if self._tail.waiting else [])
            if not self._tail.waiting:
                break
        # What other threads told a moment ago is held back as long as that.
        os.pwrite(self._read_to, (before - BEHIND_NS).to_bytes(8, "little"), 0)
        self.over = self._tail.count.stage is not Stage.RECORDING

    def close(self) -> None:
        """Let go of the rings."""
        for drain in (self._drains or {}).values():
            drain.close()
        os.close(self._read_to)

    def _take(self, event: Event) -> None:
        if "round" in event:
            # For who begins to read in the middle.
            return
        if event.ev == "dropped":
            self._lose(int(event.get("count", 1)), str(event.get("reason", "")))
            return
        if event.ev == "evidence" and event.get("evidence") == [] and "actor" not in event:
            # It was switched off; hook sets begin anew, with what is there.
            self._anew = True
            self.guard.restart()
        self._declare(event)
        if self._anew and "gens" in event:
            # Generations are counted from a beginning that is not known any more.
            kept = {key: value for key, value in event.data.items() if key != "gens"}
            event = Event(event.pos, event.ev, kept, event.problem)
        self.guard.read(event)

    def _declare(self, event: Event) -> None:
        if event.ev in DECLARATIONS and event.problem is None:
            key = event.ev, str(event.get("group", event.get("pool")))
            self._declared.pop(key, None)
            self._declared[key] = event

    def _gaps(self) -> bool:
        """Whether something cannot be read any more; then all that was read was let go too: where
        in it the gap is cannot be told."""
        count = self._tail.count
        gone = self._sealed + count.rings.vanished
        unreadable = [name for name in count.unreadable if name not in self._said]
        if gone == self._gone and not unreadable:
            return False
        self._said.update(unreadable)
        while self._tail.waiting:
            for event in self._tail.more(_SLICE):
                self._declare(event)
        gone = self._sealed + count.rings.vanished
        self._lose(gone - self._gone, "; ".join(count.unreadable[n] for n in unreadable))
        self._gone = gone
        return True

    def _sealed_already(
        self, path: str, sealed: Sealed, group: int
    ) -> Iterator[tuple[int, int, int, bytes]]:
        self._sealed += sealed.rows
        raise OSError(0, "the sealer was faster")

    def _lose(self, count: int, why: str) -> None:
        """Go on from here: of each block nothing is known until it is handed out."""
        self._anew = True
        self._say(
            f"{count or 'some'} events could not be judged{why and f' ({why})'}: "
            "the guard goes on with what is handed out from here on"
        )
        self.guard.restart()
        for event in self._declared.values():
            self.guard.read(event)

    def _say_if_late(self, found: list[Event]) -> None:
        told = found[-1].get("ts") if found else None
        behind = monotonic_ns() - told if isinstance(told, int) else 0
        if behind > self._late:
            self._say(f"the guard is {behind / 1e9:.0f} s behind the engine")
            while self._late < behind:
                self._late *= 2
        elif not found and self._late > LATE_NS:
            self._say("the guard has caught up with the engine")
            self._late = LATE_NS

    def _release(self) -> None:
        """Let writers have the room of what was read."""
        if self._drains is None:
            return
        for path, place in self._tail.places:
            try:
                drain = self._drains.get(path) or self._drains.setdefault(path, RingDrain(path))
                drain.skip(*place)
            except (RingError, OSError, ValueError):
                # It is gone, or its writer is; nobody needs the room.
                continue

    def _save(self, violation: Violation) -> None:
        """The rings as they are at the first violation of each rule."""
        if self._drains is not None or violation.code in self._said:
            return
        if self._tail.count.stage is not Stage.RECORDING:
            # All of it is there, and stays.
            return
        self._said.add(violation.code)
        reason = f"guard {violation.code}"
        try:
            triggers = Settings.read(self.folder).triggers
            if not triggers or any(code in reason.upper() for code in triggers):
                snapshot(self.folder, reason)
        except (HkvError, OSError) as e:
            self._say(f"the rings were not saved: {e}")
