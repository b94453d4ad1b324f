"""A recording: a folder NAME.hkv with the rings of every thread, and the order of their events.

The marker tells outsiders how it stands: `incomplete`, locked by the program that records, is
renamed to `complete` at the end. An `incomplete` that nobody holds is of a program that died.
"""

from __future__ import annotations

import fcntl
import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hkvtool.model.clocks import Clock, Edges, by_edges, by_wall
from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.manifest import MANIFEST, SEGMENT_SUFFIX, Sealed, read_manifest
from hkvtool.model.ring_format import HEADER_BYTES, STAMPED, Policy, RingError, RingHeader
from hkvtool.model.ring_reader import RingCount, RingReader, held_bytes, opened

INCOMPLETE, COMPLETE = "incomplete", "complete"
RING_SUFFIX = ".ring"
BEGUN = "~"
"""Behind the name of a ring that has no header yet."""

SETTINGS = "settings.json"
RINGS_LINK = "rings"
"""A link to where the rings are, if that is not the recording's own folder."""

SWITCH = "off"
"""While a file of this name is there, nothing is recorded."""

SNAPSHOT_PREFIX = "snapshot-"
SEALER_LOCK = "sealer.lock"
_OURS = (INCOMPLETE, COMPLETE, SETTINGS, RINGS_LINK, SWITCH, MANIFEST, SEALER_LOCK)


class Stage(str, Enum):
    """How far a recording has come."""

    RECORDING = "recording"
    DIED = "died"
    COMPLETE = "complete"


@dataclass
class RecordingCount:
    """What was read of a recording; final once its events have ended."""

    stage: Stage
    rings: RingCount = field(default_factory=RingCount)
    total_bytes: int = 0
    read_bytes: int = 0
    """Of `total_bytes`, known from the beginning: for whoever wants to know how far it is."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Ring files that could not be read at all, and why."""
    failed: dict[str, str] = field(default_factory=dict)
    """Rings whose recorder turned itself off, and why."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    """Of the machines that recorded, where there are several."""

    def problems(self) -> list[str]:
        """What a person should know, a sentence each; none where every event is there."""
        count, said = self.rings, []
        if self.stage is Stage.RECORDING:
            said.append("it is still being recorded; this is what it held when it was read")
        if self.stage is Stage.DIED:
            said.append("the program died while it recorded; what it had recorded is here")
        if count.dropped:
            said.append(f"{count.dropped:,} of {count.emitted:,} events were dropped (HKV903)")
        if count.vanished:
            said.append(f"{count.vanished:,} earlier events were overwritten, as it was asked to")
        if count.torn:
            said.append(f"damaged in {count.torn:,} places, which were cut out (HKV903)")
        said += [
            f"the clock of machine {clock.host} drifted by {(clock.lowest or 0) / 1e6:,.3f} ms "
            "against what its edges allow; its order to the others is not certain"
            for clock in self.clocks.values() if not clock.consistent
        ]  # fmt: skip
        said += [f"{name}: {why}" for name, why in self.unreadable.items()]
        said += [f"{name}: recording turned itself off: {why}" for name, why in self.failed.items()]
        return said


def is_recording(folder: str | os.PathLike[str]) -> bool:
    """True for a folder that a recorder has made."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in (INCOMPLETE, COMPLETE))


def stage_of(folder: str | os.PathLike[str]) -> Stage:
    """How a recording stands. Raises TraceError where the folder is none."""
    path = os.path.join(folder, INCOMPLETE)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        if os.path.isfile(os.path.join(folder, COMPLETE)):
            return Stage.COMPLETE
        if isinstance(e, (FileNotFoundError, NotADirectoryError)):
            raise _no_recording(os.fspath(folder)) from None
        raise _unreadable(path, e) from e
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Stage.RECORDING
    except OSError:
        # Some network file systems have no locks; then nothing tells whether it still runs.
        return Stage.DIED
    finally:
        os.close(fd)
    # It may have been completed between the two looks at it.
    return Stage.DIED if os.path.exists(path) else stage_of(folder)


_ROW_BYTES = 64
"""Stands for a row of a segment where it is counted how far the reading is."""

RowsOf = Callable[[str, Sealed, int], Iterator["tuple[int, int, int, bytes]"]]
"""Reads one ring's rows of a segment: the file's path, what it says, the number of the row group.
Gives kind, sequence number, time and payload; raises OSError where the file cannot be read."""


def _no_rows(path: str, sealed: Sealed, group: int) -> Iterator[tuple[int, int, int, bytes]]:
    raise TraceError(
        f"{path} is sealed as Parquet", hint="read the recording with `hkvtool.store.open_trace`"
    )


def read_recording(
    folder: str | os.PathLike[str],
    count: RecordingCount | None = None,
    rows_of: RowsOf = _no_rows,
) -> Iterator[Event]:
    """The events of a recording in an order that they can have happened in, `pos` from 1.

    A thread's events keep their order, those of several are merged by time. `count` is told what
    was found, and is complete when the events have ended. What is sealed is read with `rows_of`
    (`hkvtool.store.segments`). Raises TraceError where the folder is no recording or no ring of it
    can be read; single rings that cannot be are counted.
    """
    return read_recordings([folder], count, rows_of)


def read_recordings(
    folders: Sequence[str | os.PathLike[str]],
    count: RecordingCount | None = None,
    rows_of: RowsOf = _no_rows,
) -> Iterator[Event]:
    """The events of several recordings of one thing, as of the hosts of an engine, in one order."""
    found = count if count is not None else RecordingCount(stage_of(folders[0]))
    writers = [w for folder in folders for w in writers_of(os.fspath(folder), found)]
    if not writers and found.unreadable:
        name, why = next(iter(found.unreadable.items()))
        raise TraceError(f"{os.path.join(folders[0], name)} cannot be read: {why}")
    found.clocks = _clocks(folders, writers, rows_of)
    added = {host: clock.added for host, clock in found.clocks.items()}
    merged = heapq.merge(
        *(writer.read(found, rows_of, added.get(writer.host, 0)) for writer in writers), key=_time
    )
    lanes: dict[str, int] = {}
    for pos, (ts, flags, data) in enumerate(merged, 1):
        if flags & STAMPED:
            data.setdefault("ts", ts)
            _number(data, lanes)
        yield Event.of(pos, data)


def _clocks(
    folders: Sequence[str | os.PathLike[str]], writers: list[Writer], rows_of: RowsOf
) -> dict[int, Clock]:
    """The clocks of the machines; empty where there is one."""
    rings = [
        (w.host, part.started, part.wall) for w in writers for _, part in sorted(w.parts.items())
    ]
    if len({host for host, _, _ in rings}) < 2:
        return {}
    clocks, edges, unused = by_wall(rings), Edges(), RecordingCount(Stage.COMPLETE)
    for folder in folders:
        for writer in writers_of(os.fspath(folder), unused):
            for ts, _, data in writer.read(unused, rows_of, clocks[writer.host].offset):
                edges.see(writer.host, ts, data)
    return by_edges(clocks, edges)


def _number(data: dict[str, Any], lanes: dict[str, int]) -> None:
    """Count an event of its lane; a jump is as wide as what the lane lost."""
    lane = Event(0, data["ev"] if isinstance(data.get("ev"), str) else "", data).actor
    seq = lanes.get(lane, 0)
    if data.get("ev") == "dropped":
        count = data.get("count")
        lanes[lane] = seq + count if isinstance(count, int) else seq
    else:
        data.setdefault("seq", seq)
        lanes[lane] = seq + 1


def _time(item: tuple[int, int, dict[str, Any]]) -> int:
    return item[0]


def ring_files(folder: str) -> list[str]:
    """The ring files of a recording, wherever they are, in order of their names."""
    found = []
    for place in (folder, os.path.join(folder, RINGS_LINK)):
        try:
            names = [name for name in os.listdir(place) if name.endswith(RING_SUFFIX)]
        except OSError as e:
            if place != folder and isinstance(e, FileNotFoundError):
                continue
            raise _unreadable(place, e) from e
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
            count.read_bytes += _ROW_BYTES * sealed.rows
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


Told = tuple[int, int, dict[str, Any]]


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
            with open(path, "rb") as file:
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
            count.total_bytes += _ROW_BYTES * sealed.rows
            part.segments.append((path, sealed, group))
    return sorted(writers.values(), key=lambda writer: writer.started)


def _no_recording(path: str) -> TraceError:
    if not os.path.lexists(path):
        return TraceError(
            f"there is no file or folder {path}", hint="a recording is a folder NAME.hkv"
        )
    if os.path.isdir(path) and path.rstrip("/").endswith(".hkv"):
        return TraceError(f"{path} holds no recording", hint="nothing was ever recorded there")
    return TraceError(f"{path} is no recording", hint="name a folder NAME.hkv")


def _unreadable(path: str, error: OSError) -> TraceError:
    return TraceError(f"cannot read {path}: {error.strerror or error}")


def snapshots_of(folder: str | os.PathLike[str]) -> list[str]:
    """The snapshots that were taken of a recording, each a recording of its own."""
    names = [name for name in os.listdir(folder) if name.startswith(SNAPSHOT_PREFIX)]
    return [os.path.join(folder, name) for name in sorted(names)]


def weight_of(folder: str | os.PathLike[str]) -> int:
    """About how many events a recording holds, at the cost of a look at its headers. Raises
    TraceError where it is none."""
    path, events = os.fspath(folder), 0
    for segment in read_manifest(path):
        events += sum(sealed.rows for sealed in segment.rings)
    for ring in ring_files(path):
        with suppress(OSError, RingError), open(ring, "rb") as file:
            page = file.read(HEADER_BYTES)
            events += held_bytes(RingHeader.unpack(page), page) // _ROW_BYTES
    return events


def remove_recording(folder: str | os.PathLike[str]) -> None:
    """Delete the files that a recorder made, and the folder if nothing else is in it."""
    for place in snapshots_of(folder):
        remove_recording(place)
    elsewhere = os.path.join(folder, RINGS_LINK)
    if os.path.islink(elsewhere):
        place = os.path.realpath(elsewhere)
        with suppress(OSError):
            for name in os.listdir(place):
                if name.endswith(RING_SUFFIX):
                    os.unlink(os.path.join(place, name))
            os.rmdir(place)
    for name in os.listdir(folder):
        if name.endswith((RING_SUFFIX, RING_SUFFIX + BEGUN, SEGMENT_SUFFIX)) or name in _OURS:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(folder)
