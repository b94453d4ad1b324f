"""The end of a recording that is still being written: only what is new is read each time.

The rings are read where they were read to before, without taking anything out. Where the sealer
was faster, what it took out is in the segments, and the manifest is read on as well.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from time import monotonic_ns

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.manifest import MANIFEST, Sealed, Segment
from hkvtool.model.recording import count_on_lane, stage_of
from hkvtool.model.recording_count import RecordingCount, Stage
from hkvtool.model.regular import regular
from hkvtool.model.ring_format import (
    HEADER_BYTES,
    STAMPED,
    Kind,
    RingError,
    RingHeader,
    RingState,
    Word,
)
from hkvtool.model.ring_reader import RingCount, RingReader, opened
from hkvtool.model.writers import RowsOf, Told, ring_files, unreadable

BEHIND_NS = 20_000_000
"""How far several threads are kept apart from the present: a thread that was interrupted between
taking the time and recording its event tells of it that much later, and seldom more."""

_TRIES = 4
"""Readings of a ring whose events the sealer takes out meanwhile."""


class RecordingTail:
    """Reads a recording on and on. The order of several threads is that of their times; one that
    tells of an event much too late has it where it told of it."""

    def __init__(self, folder: str | os.PathLike[str], rows_of: RowsOf) -> None:
        self.folder = os.fspath(folder)
        self.count = RecordingCount(stage_of(folder))
        self.waiting = False
        """Whether there is more than the last reading gave."""
        self._rows_of = rows_of
        self._rings: dict[tuple[int, int, int, int], _Ring] = {}
        self._manifest = _ManifestTail(self.folder)
        self._clock: tuple[int, int] | None = None
        self._ready: deque[Told] = deque()
        self._lanes: dict[str, int] = {}
        self._pos = 0

    def more(self, most: int) -> list[Event]:
        """At most so many of the events that have come since; `pos` from 1, without accesses that
        are derived. Raises TraceError."""
        if len(self._ready) < most:
            self._read()
        found: list[Event] = []
        while self._ready and len(found) < most:
            ts, flags, data = self._ready.popleft()
            self._pos += 1
            if flags & STAMPED:
                data.setdefault("ts", ts)
                count_on_lane(data, self._lanes)
            found.append(Event.of(self._pos, data))
        self.waiting = bool(self._ready)
        return found

    @property
    def places(self) -> list[tuple[str, tuple[int, int]]]:
        """Up to where each ring that is there was read: position, and number of the next event."""
        return [(r.path, r.place) for r in self._rings.values() if r.path and r.place]

    def _read(self) -> None:
        # What is complete before it is read has nothing behind it.
        stage, now = stage_of(self.folder), monotonic_ns()
        self._look_around()
        self.count.rings = RingCount()
        for ring in self._rings.values():
            ring.read(self._rows_of, self._take_manifest, last=stage is not Stage.RECORDING)
            self.count.rings.add(ring.count)
            if ring.error:
                self.count.failed[ring.name] = ring.error
            if ring.trouble:
                self.count.unreadable[ring.name] = ring.trouble
        self._ready.extend(self._merged(now if stage is Stage.RECORDING else None))
        self.count.stage = stage

    def _merged(self, now: int | None) -> Iterator[Told]:
        """What is old enough that nothing before it can come any more."""
        writers: dict[tuple[int, int, int], list[_Ring]] = {}
        for key in sorted(self._rings):
            writers.setdefault(key[:3], []).append(self._rings[key])
        until = None if now is None or len(writers) < 2 else now - BEHIND_NS
        parts = [
            [told for ring in rings for told in ring.given(until, self._added(ring))]
            for rings in writers.values()
        ]
        yield from merge(*parts, key=_time)

    def _added(self, ring: _Ring) -> int:
        """What brings the times of a ring's machine to those of the first machine, by what their
        wall clocks said."""
        if self._clock is None:
            self._clock = ring.host, ring.wall - ring.started
        host, apart = self._clock
        return 0 if ring.host == host else ring.wall - ring.started - apart

    def _look_around(self) -> None:
        """Rings and segments that have come to be."""
        # The rings come first: what a sealer takes out of them meanwhile, the manifest has by then.
        known = {ring.path for ring in self._rings.values()}
        for path in ring_files(self.folder):
            if path in known:
                continue
            name = os.path.basename(path)
            try:
                with open(path, "rb", opener=regular) as file:
                    header = RingHeader.unpack(file.read(HEADER_BYTES))
            except FileNotFoundError:
                continue
            except (RingError, OSError) as e:
                self.count.unreadable[name] = str(e)
                continue
            self.count.unreadable.pop(name, None)
            key = header.host, header.pid, header.thread, header.monotonic
            self._ring(key, name, header.wall).path = path
        self._take_manifest()

    def _take_manifest(self) -> None:
        for segment in self._manifest.more():
            path = os.path.join(self.folder, segment.file)
            for group, sealed in enumerate(segment.rings):
                key = sealed.host, sealed.pid, sealed.thread, sealed.started
                self._ring(key, sealed.ring, sealed.wall).add(path, sealed, group)

    def _ring(self, key: tuple[int, int, int, int], name: str, wall: int) -> _Ring:
        return self._rings.setdefault(key, _Ring(name, key[0], key[3], wall))


@dataclass
class _Ring:
    """One ring, wherever its events are by now."""

    name: str
    host: int
    started: int
    wall: int
    path: str | None = None
    place: tuple[int, int] | None = None
    """Up to where it was read: the position, and the number of the next event."""
    count: RingCount = field(default_factory=RingCount)
    error: str = ""
    trouble: str = ""
    _segments: deque[tuple[str, Sealed, int]] = field(default_factory=deque)
    _told: deque[Told] = field(default_factory=deque)
    _over: bool = False

    def add(self, path: str, sealed: Sealed, group: int) -> None:
        """A segment has come to be, or another file of it: all but its declarations was deleted."""
        if self.place is not None and sealed.next_seq <= self.place[1]:
            return
        for i, (_, other, _) in enumerate(self._segments):
            if other.next_seq == sealed.next_seq:
                self._segments[i] = path, sealed, group
                return
        self._segments.append((path, sealed, group))

    def given(self, until: int | None, added: int) -> Iterator[Told]:
        """The events up to a time, once."""
        told = self._told
        while told and (until is None or told[0][0] + added <= until):
            ts, flags, data = told.popleft()
            yield ts + added, flags, data

    def read(self, rows_of: RowsOf, take_manifest: Callable[[], None], *, last: bool) -> None:
        """Read on."""
        if self._over:
            return
        try:
            if self.path is None or not self._follow(rows_of, take_manifest, last):
                take_manifest()
                self._sealed(rows_of, None)
        except RingError as e:
            self.trouble, self._over = str(e), True
        except OSError as e:
            self.trouble = e.strerror or str(e)

    def _follow(self, rows_of: RowsOf, take_manifest: Callable[[], None], last: bool) -> bool:
        """Read on in the ring; False where it is gone."""
        assert self.path is not None
        for _ in range(_TRIES):
            try:
                words = _words(self.path)
                if words.taken and (self.place is None or self.place[1] < words.tail[1]):
                    # The sealer puts it down in the manifest before it lets go of it here.
                    take_manifest()
                    self._sealed(rows_of, words.tail)
                if words.head == (self.place or (0, 0))[0] and not (last or words.closed):
                    return True
                reader = RingReader.open(self.path, self.place)
                if _words(self.path).tail[1] > (self.place or words.tail)[1]:
                    continue
            except FileNotFoundError:
                self.path = None
                return False
            self._take(reader, last or words.closed)
            self._over = last or words.closed
            return True
        return True

    def _take(self, reader: RingReader, last: bool) -> None:
        before = self.place[1] if self.place else reader.header.first_seq
        flags = reader.header.flags
        for ts, data in reader.events(last=last, after=before):
            self._told.append((ts, flags, data))
        if reader.wrapped and self.place:
            # It counts from the ring's beginning.
            reader.count.vanished -= before - reader.header.first_seq
        self.count.add(reader.count)
        self.error = reader.error
        self.place = reader.head, reader.next_seq

    def _sealed(self, rows_of: RowsOf, tail: tuple[int, int] | None) -> None:
        """What is in segments by now, up to where the ring goes on."""
        while self._segments:
            path, sealed, group = self._segments.popleft()
            after = self.place[1] if self.place else 0
            if sealed.next_seq <= after:
                continue
            self._segment(path, sealed, group, after, rows_of)
            self.error = sealed.error or self.error
            self.place = sealed.tail, sealed.next_seq
        if tail is not None and (self.place is None or self.place[1] < tail[1]):
            self.place = tail

    def _segment(self, path: str, sealed: Sealed, group: int, after: int, rows_of: RowsOf) -> None:
        # What the ring has told of the segment's beginning is counted already.
        count = RingCount(vanished=sealed.vanished, torn=sealed.torn) if not after else RingCount()
        try:
            for kind, seq, ts, payload in rows_of(path, sealed, group) if sealed.rows else ():
                if seq < after:
                    continue
                count.stored += kind != Kind.GAP
                data = opened(kind, payload, count)
                if kind == Kind.GAP:
                    count.dropped += int(data["count"])
                self._told.append((ts, sealed.flags, data))
        except OSError as e:
            self.trouble = e.strerror or str(e)
            count = RingCount(dropped=sealed.next_seq - max(after, sealed.first_seq))
        self.count.add(count)


@dataclass(frozen=True)
class _Words:
    """What the first page of a ring says now."""

    head: int
    tail: tuple[int, int]
    taken: bool
    closed: bool


def _words(path: str) -> _Words:
    with open(path, "rb", buffering=0, opener=regular) as file:
        page = memoryview(file.read(HEADER_BYTES))
    header = RingHeader.unpack(bytes(page))
    words = page.cast("Q")
    tail = words[Word.TAIL], words[Word.TAIL_SEQ]
    return _Words(
        words[Word.HEAD], tail, tail[1] > header.first_seq, words[Word.STATE] != RingState.OPEN
    )


class _ManifestTail:
    """The lines of a manifest as they come."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, MANIFEST)
        self._at = 0

    def more(self) -> list[Segment]:
        """The lines that have come since. Raises TraceError."""
        try:
            with open(self._path, "rb", opener=regular) as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return []
        except OSError as e:
            raise unreadable(self._path, e) from e
        whole = text[: text.rfind(b"\n") + 1]
        try:
            found = [Segment.of_line(line.decode()) for line in whole.splitlines()]
        except (ValueError, KeyError, TypeError) as e:
            raise TraceError(
                f"{self._path} makes no sense behind byte {self._at}: {type(e).__name__}: {e}",
                hint="the recording was altered; the other files of it are as they were",
            ) from e
        self._at += len(whole)
        return found


def _time(told: Told) -> int:
    return told[0]
