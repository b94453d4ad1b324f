"""A recording: a folder NAME.hkv with the rings of every thread, and the order of their events.

The marker tells outsiders how it stands: `incomplete`, locked by the program that records, is
renamed to `complete` at the end. An `incomplete` that nobody holds is of a program that died.
"""

from __future__ import annotations

import fcntl
import heapq
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.ring_format import HEADER_BYTES, STAMPED, RingError, RingHeader
from hkvtool.model.ring_reader import RingCount, RingReader, held_bytes

INCOMPLETE, COMPLETE = "incomplete", "complete"
RING_SUFFIX = ".ring"
SETTINGS = "settings.json"
RINGS_LINK = "rings"
"""A link to where the rings are, if that is not the recording's own folder."""

SWITCH = "off"
"""While a file of this name is there, nothing is recorded."""

MANIFEST = "manifest.jsonl"
SEGMENT_SUFFIX = ".parquet"
_OURS = (INCOMPLETE, COMPLETE, SETTINGS, RINGS_LINK, SWITCH, MANIFEST)


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


def read_recording(
    folder: str | os.PathLike[str], count: RecordingCount | None = None
) -> Iterator[Event]:
    """The events of a recording in an order that they can have happened in, `pos` from 1.

    A thread's events keep their order, those of several are merged by time. `count` is told what
    was found, and is complete when the events have ended. Raises TraceError where the folder is
    no recording or no ring of it can be read; single rings that cannot be are counted.
    """
    found = count if count is not None else RecordingCount(stage_of(folder))
    writers = _writers(os.fspath(folder), found)
    if not writers and found.unreadable:
        name, why = next(iter(found.unreadable.items()))
        raise TraceError(f"{os.path.join(folder, name)} cannot be read: {why}")
    merged = heapq.merge(*(_read(paths, found) for paths in writers), key=_time)
    lanes: dict[str, int] = {}
    for pos, (ts, flags, data) in enumerate(merged, 1):
        if flags & STAMPED:
            data.setdefault("ts", ts)
            _number(data, lanes)
        yield Event.of(pos, data)


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


def _writers(folder: str, count: RecordingCount) -> list[list[str]]:
    """The rings of each thread in the order they were written; threads in order of their start."""
    writers: dict[tuple[int, int], list[tuple[int, int, str]]] = {}
    for path in ring_files(folder):
        name = os.path.basename(path)
        try:
            with open(path, "rb") as file:
                page = file.read(HEADER_BYTES)
            header = RingHeader.unpack(page)
            count.total_bytes += held_bytes(header, page)
        except RingError as e:
            count.unreadable[name] = str(e)
        except OSError as e:
            count.unreadable[name] = e.strerror or str(e)
        else:
            part = (header.part, header.monotonic, path)
            writers.setdefault((header.pid, header.thread), []).append(part)
    ordered = sorted((sorted(parts) for parts in writers.values()), key=lambda parts: parts[0][1])
    return [[path for _, _, path in parts] for parts in ordered]


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


def _read(paths: list[str], count: RecordingCount) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Time, flags and event of each record of one thread; its rings are opened one by one."""
    for path in paths:
        try:
            ring = RingReader.open(path)
        except (RingError, OSError) as e:
            count.unreadable[os.path.basename(path)] = str(e)
            continue
        if ring.error:
            count.failed[os.path.basename(path)] = ring.error
        before = 0
        for ts, data in ring.events():
            count.read_bytes += ring.at - before
            before = ring.at
            yield ts, ring.header.flags, data
        count.rings.add(ring.count)


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


def remove_recording(folder: str | os.PathLike[str]) -> None:
    """Delete the files that a recorder made, and the folder if nothing else is in it."""
    elsewhere = os.path.join(folder, RINGS_LINK)
    if os.path.islink(elsewhere):
        place = os.path.realpath(elsewhere)
        with suppress(OSError):
            for name in os.listdir(place):
                if name.endswith(RING_SUFFIX):
                    os.unlink(os.path.join(place, name))
            os.rmdir(place)
    for name in os.listdir(folder):
        if name.endswith((RING_SUFFIX, SEGMENT_SUFFIX)) or name in _OURS:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(folder)
