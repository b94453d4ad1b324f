"""The sealer: takes events out of the rings of a recording and seals them in Parquet segments.

It is a process of its own, outside the engine and under the launcher's interpreter. What it reads
stays in the ring until the segment is on disk and in the manifest; so whichever of the two dies at
whatever moment, every event is in one of them, and by its number it is told once.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import monotonic, monotonic_ns, sleep, time_ns

from hkvtool.model.errors import HkvError
from hkvtool.model.events import DECLARATIONS, EVENTS
from hkvtool.model.manifest import SEGMENT_SUFFIX, Sealed, Segment, sealed_of
from hkvtool.model.recording import SEALER_LOCK, ring_files
from hkvtool.model.ring_drain import RingDrain
from hkvtool.model.ring_format import Kind, Policy, RingError
from hkvtool.model.ring_reader import Record, RingCount, opened
from hkvtool.recorder.live_ratio import RATIO_KINDS, Ratio
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.ring import host_number
from hkvtool.recorder.segment_file import append_line, recovered, write_segment

FILLED = 0.25
"""A ring so full is sealed: the rest of it is for what comes meanwhile."""

AGE = 60.0
"""Seconds after which what was read is sealed in any case."""

_HELD_BYTES = 64 << 20
"""Payloads that may wait in memory to be sealed."""

_PAUSE = 5.0
"""Seconds until a segment that could not be written is tried again."""

_TRIES = 20
"""Looks at a file that is no ring, until it is passed over."""

_LOCK_TRIES, _LOCK_PAUSE = 10, 0.05

_DECLARED = {EVENTS[name].code for name in DECLARATIONS}


@dataclass
class Source:
    """One ring that is drained, and what was read of it and is not yet sealed."""

    drain: RingDrain
    first_seq: int
    records: list[Record] = field(default_factory=list)
    since: float = 0.0
    done: bool = False
    """Its writer has ended, and everything is read."""


class Sealer:
    """Of one recording. Raises HkvError where it cannot begin; later it says what fails in
    `trouble` and goes on."""

    def __init__(self, folder: str, *, filled: float = FILLED, age: float = AGE) -> None:
        self.folder = folder
        self.trouble = ""
        self.ratio = Ratio()
        self.count = RingCount()
        """Of all rings, those that are gone included."""
        self.bytes = 0
        self._filled, self._age = filled, age
        self._sources: dict[str, Source] = {}
        self._passed: set[str] = set()
        self._refused: dict[str, int] = {}
        self._held = 0
        self._again = 0.0
        try:
            self._lock = os.open(
                os.path.join(folder, SEALER_LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            try:
                _take(self._lock)
                self.segments = {s.number: s for s in recovered(folder)}
            except BaseException:
                os.close(self._lock)
                raise
        except BlockingIOError:
            raise HkvError(f"{folder} has a sealer already", hint="one is enough") from None
        except OSError as e:
            raise Off.of(e, folder).error() from e
        self._number = max(self.segments, default=-1) + 1
        for segment in self.segments.values():
            self.bytes += segment.bytes
            for sealed in segment.rings:
                self.count.add(_count_of(sealed))

    def poll(self, *, last: bool = False) -> int:
        """Read what has come, and seal where it is time to; `last` seals all that is there.
        Returns how many records there were."""
        read = 0
        for path in self._files():
            source = self._source(path)
            if source is not None:
                read += self._read(source)
        if last or self._due():
            self.seal()
        return read

    def seal(self) -> None:
        """Put what was read into a segment, and give its room in the rings back."""
        sources = [s for s in self._sources.values() if s.records or s.done]
        full = [s for s in sources if s.records or s.drain.place[1] > s.first_seq]
        try:
            if full:
                self._seal(full)
        except Exception as e:
            # pyarrow has errors of its own beside those of the system.
            self.trouble = Off.of(e, self.folder).what
            self._again = monotonic() + _PAUSE
            return
        self.trouble = ""
        for source in sources:
            if source.done:
                self._retire(source)

    @property
    def seen(self) -> RingCount:
        """Everything so far, sealed or not."""
        count = RingCount()
        count.add(self.count)
        for source in self._sources.values():
            count.add(source.drain.count)
        return count

    @property
    def waiting(self) -> int:
        """Events that were read and are in no segment yet."""
        return sum(len(source.records) for source in self._sources.values())

    @property
    def writers(self) -> int:
        """Rings that are sealed."""
        return len(self._sources)

    @property
    def passed(self) -> int:
        """Rings that are not for a sealer, as those of a flight recorder."""
        return len(self._passed)

    def delete(self, segment: Segment) -> None:
        """Let go of a segment, but for what it declares. Raises OSError."""
        import pyarrow.parquet as pq

        from hkvtool.model.manifest import COLUMNS

        path = os.path.join(self.folder, segment.file)
        kept: list[list[Record]] = []
        rings: list[Sealed] = []
        with pq.ParquetFile(path) as file:
            for group, sealed in enumerate(segment.rings):
                columns = file.read_row_group(group).to_pydict()
                records = [
                    Record(kind, seq, ts, payload, 0)
                    for kind, seq, ts, payload in zip(*(columns[n] for n in COLUMNS), strict=True)
                    if _code(kind, payload) in _DECLARED
                ]
                gone = sealed.stored - len(records)
                said = {"rows": len(records), "stored": len(records),
                        "vanished": sealed.vanished + gone}  # fmt: skip
                rings.append(Sealed(**{**sealed.__dict__, **said}))
                kept.append(records)
        name, size = "", 0
        if any(kept):
            name = segment.file.replace(SEGMENT_SUFFIX, f"-kept{SEGMENT_SUFFIX}")
            size = write_segment(self.folder, name, kept)
        after = replace(segment, file=name, bytes=size, rings=tuple(rings), deleted=True)
        append_line(self.folder, after)
        self.segments[segment.number] = after
        self.bytes += size - segment.bytes
        with suppress(OSError):
            os.unlink(path)

    def close(self) -> None:
        """Give everything back."""
        for source in self._sources.values():
            source.drain.close()
        self._sources.clear()
        os.close(self._lock)

    def _files(self) -> Iterable[str]:
        try:
            return ring_files(self.folder)
        except HkvError as e:
            self.trouble = e.what
            return ()

    def _source(self, path: str) -> Source | None:
        """What drains a ring; none of one that is not for a sealer, or cannot be read."""
        name = os.path.basename(path)
        known = self._sources.get(name)
        if known is not None or name in self._passed:
            return known
        try:
            drain = RingDrain(path)
        except FileNotFoundError:
            return None
        except (RingError, OSError, ValueError) as e:
            # One that is just being made has no header yet.
            tries = self._refused[name] = self._refused.get(name, 0) + 1
            if tries > _TRIES:
                self.trouble = f"{name}: {e}"
                self._passed.add(name)
            return None
        if drain.header.policy != Policy.DROP:
            drain.close()
            self._passed.add(name)
            return None
        for segment in self.segments.values():
            for sealed in segment.rings:
                if (sealed.ring, sealed.started) == (name, drain.header.monotonic):
                    drain.skip(sealed.tail, sealed.next_seq)
        found = self._sources[name] = Source(drain, drain.place[1])
        return found

    def _read(self, source: Source) -> int:
        drain = source.drain
        if source.done or self._held > _HELD_BYTES:
            return 0
        ended = drain.ended or not _held_by_writer(drain.path)
        if not ended and not drain.waiting:
            return 0
        try:
            found = drain.read(last=ended)
        except (RingError, OSError) as e:
            self.trouble = f"{os.path.basename(drain.path)}: {e}"
            return 0
        source.done = ended
        if found and not source.records:
            source.since = monotonic()
        source.records += found
        for record in found:
            self._held += len(record.payload)
            self._see(record)
        return len(found)

    def _see(self, record: Record) -> None:
        if _code(record.kind, record.payload) in RATIO_KINDS:
            self.ratio.see(opened(record.kind, record.payload, RingCount()))

    def _due(self) -> bool:
        now = monotonic()
        if now < self._again:
            return False
        return self._held > _HELD_BYTES // 2 or any(
            s.done or s.drain.filled > self._filled or (s.records and now - s.since > self._age)
            for s in self._sources.values()
        )

    def _seal(self, sources: list[Source]) -> None:
        file = f"seg-{self._number:06}{SEGMENT_SUFFIX}"
        size = write_segment(self.folder, file, [source.records for source in sources])
        rings = []
        for source in sources:
            drain = source.drain
            position, seq = drain.place
            counted = drain.count
            rings.append(
                sealed_of(
                    os.path.basename(drain.path), drain.header, rows=len(source.records),
                    first_seq=source.first_seq, next_seq=seq, tail=position,
                    stored=counted.stored, dropped=counted.dropped, vanished=counted.vanished,
                    torn=counted.torn, error=drain.error,
                )
            )  # fmt: skip
        segment = Segment(
            file, self._number, time_ns(), size, tuple(rings), False, host_number(), monotonic_ns()
        )
        append_line(self.folder, segment)
        self._number += 1
        self.segments[segment.number] = segment
        self.bytes += size
        for source in sources:
            source.drain.release()
            self.count.add(source.drain.count)
            source.drain.count = RingCount()
            source.records, source.first_seq = [], source.drain.place[1]
        self._held = 0

    def _retire(self, source: Source) -> None:
        """The ring of a writer that has ended is in segments, all of it."""
        path = source.drain.path
        source.drain.close()
        with suppress(OSError):
            os.unlink(path)
        del self._sources[os.path.basename(path)]


def _take(lock: int) -> None:
    """Lock it; one that was killed a moment ago may still hold it. Raises BlockingIOError."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            sleep(_LOCK_PAUSE)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _count_of(sealed: Sealed) -> RingCount:
    return RingCount(sealed.stored, sealed.dropped, sealed.vanished, sealed.torn)


def _code(kind: int, payload: bytes) -> int:
    """The number of a record's event; of a packed one the lowest byte of its second value."""
    at = 6 if kind == Kind.PACKED else 0
    return payload[at] if len(payload) > at else 0


def _held_by_writer(path: str) -> bool:
    """Whether the process that writes a ring lives: it holds a lock of the file, which tells
    across containers, where process numbers do not."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        # No locks here: only what the writer says itself tells that it has ended.
        return True
    finally:
        os.close(fd)
