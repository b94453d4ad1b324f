"""Who wrote to a recording: threads of processes of machines, each with its rings and segments."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.errors import TraceError
from hkvtool.model.manifest import Sealed, read_manifest
from hkvtool.model.recording_count import RecordingCount
from hkvtool.model.regular import regular
from hkvtool.model.ring_format import HEADER_BYTES, Policy, RingError, RingHeader
from hkvtool.model.ring_reader import RingCount, RingReader, held_bytes, opened

RING_SUFFIX = ".ring"
RINGS_LINK = "rings"
"""A link to where the rings are, if that is not the recording's own folder."""

ROW_BYTES = 64
"""Stands for a row of a segment where it is counted how far the reading is."""

Told = tuple[int, int, dict[str, Any]]
"""Time, flags and event of a record."""

RowsOf = Callable[[str, Sealed, int], Iterator["tuple[int, int, int, bytes]"]]
"""Reads one ring's rows of a segment: the file's path, what it says, the number of the row group.
Gives kind, sequence number, time and payload; raises OSError where the file cannot be read."""


def ring_files(folder: str) -> list[str]:
    """The ring files of a recording, wherever they are, in order of their names."""
    found = []
    for place in (folder, os.path.join(folder, RINGS_LINK)):
        try:
            names = [name for name in os.listdir(place) if name.endswith(RING_SUFFIX)]
        except OSError as e:
            if place != folder and isinstance(e, FileNotFoundError):
                continue
            raise unreadable(place, e) from e
        found += [os.path.join(place, name) for name in sorted(names)]
    return found


@dataclass
class Part:
    """One ring of a writer: what segments hold of it, and the ring itself if it is still there."""

    started: int
    wall: int = 0
    segments: list[tuple[str, Sealed, int]] = field(default_factory=list)
    path: str | None = None
    opened: RingReader | None = None

    def read(self, count: RecordingCount, rows_of: RowsOf) -> Iterator[Told]:
        """Time, flags and event of each record."""
        after = 0
        for path, sealed, group in self.segments:
            own = RingCount(sealed.stored, sealed.dropped, sealed.vanished, sealed.torn)
            try:
                for kind, _, ts, payload in rows_of(path, sealed, group) if sealed.rows else ():
                    yield ts, sealed.flags, opened(kind, payload, own)
            except OSError as e:
                count.unreadable[os.path.basename(path)] = e.strerror or str(e)
                own = RingCount(dropped=sealed.next_seq - sealed.first_seq)
            count.rings.add(own)
            count.read_bytes += ROW_BYTES * sealed.rows
            if sealed.error:
                count.failed[sealed.ring] = sealed.error
            after = sealed.next_seq
        if self.path is not None:
            yield from self._rest(self.path, count, after)

    def _rest(self, path: str, count: RecordingCount, after: int) -> Iterator[Told]:
        try:
            ring = self.opened or RingReader.open(path)
        except FileNotFoundError:
            # A sealer has taken it away; what it held is in the segments.
            return
        except (RingError, OSError) as e:
            count.unreadable[os.path.basename(path)] = str(e)
            return
        self.opened = None
        if ring.error:
            count.failed[os.path.basename(path)] = ring.error
        before = 0
        for ts, data in ring.events(after=after):
            count.read_bytes += ring.at - before
            before = ring.at
            yield ts, ring.header.flags, data
        count.rings.add(ring.count)


@dataclass
class Writer:
    """One thread of one process of one machine: its rings in the order they were written."""

    host: int
    pid: int
    thread: int
    parts: dict[int, Part] = field(default_factory=dict)

    def part(self, started: int) -> Part:
        """The ring that was begun then."""
        return self.parts.setdefault(started, Part(started))

    @property
    def started(self) -> int:
        return min(self.parts)

    def read(self, count: RecordingCount, rows_of: RowsOf, added: int = 0) -> Iterator[Told]:
        """Time, flags and event of each record, with so much added to the time; the rings are
        opened one by one."""
        for started in sorted(self.parts):
            for ts, flags, data in self.parts.pop(started).read(count, rows_of):
                yield ts + added, flags, data


def writers_of(folder: str, count: RecordingCount) -> list[Writer]:
    """Who wrote to a recording, in order of their start."""
    writers: dict[tuple[int, int, int], Writer] = {}

    def writer(host: int, pid: int, thread: int) -> Writer:
        return writers.setdefault((host, pid, thread), Writer(host, pid, thread))

    # The rings come first: what a sealer takes out of them meanwhile, the manifest has by then.
    for path in ring_files(folder):
        name = os.path.basename(path)
        try:
            with open(path, "rb", opener=regular) as file:
                page = file.read(HEADER_BYTES)
            header = RingHeader.unpack(page)
            part = writer(header.host, header.pid, header.thread).part(header.monotonic)
            part.path, part.wall = path, header.wall
            if header.policy == Policy.DROP:
                part.opened = RingReader.open(path)
            count.total_bytes += held_bytes(header, page)
        except FileNotFoundError:
            continue
        except RingError as e:
            count.unreadable[name] = str(e)
        except OSError as e:
            count.unreadable[name] = e.strerror or str(e)
    for segment in read_manifest(folder):
        path = os.path.join(folder, segment.file)
        for group, sealed in enumerate(segment.rings):
            part = writer(sealed.host, sealed.pid, sealed.thread).part(sealed.started)
            part.wall = sealed.wall
            count.total_bytes += ROW_BYTES * sealed.rows
            part.segments.append((path, sealed, group))
    return sorted(writers.values(), key=lambda writer: writer.started)


def unreadable(path: str, error: OSError) -> TraceError:
    """What to tell of a file of a recording that cannot be read."""
    return TraceError(f"cannot read {path}: {error.strerror or error}")
