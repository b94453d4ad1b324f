"""A recording: a folder NAME.hkv with the rings of every thread, and the order of their events.

The marker tells outsiders how it stands: `incomplete`, locked by the program that records, is
renamed to `complete` at the end. An `incomplete` that nobody holds is of a program that died.
"""

from __future__ import annotations

import fcntl
import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from hkvtool.model.clocks import Clock, Edges, WallClock, by_edges, by_wall
from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event, lane_of
from hkvtool.model.manifest import MANIFEST, SEGMENT_SUFFIX, Sealed, read_manifest
from hkvtool.model.recording_count import RecordingCount, Stage
from hkvtool.model.regular import regular
from hkvtool.model.ring_format import HEADER_BYTES, STAMPED, RingError, RingHeader
from hkvtool.model.ring_reader import held_bytes
from hkvtool.model.writers import (
    RING_SUFFIX,
    RINGS_LINK,
    ROW_BYTES,
    RowsOf,
    Writer,
    ring_files,
    unreadable,
    writers_of,
)

__all__ = [
    "BEGUN", "COMPLETE", "ENGINES_PREFIX", "GUARD_LOCK", "INCOMPLETE", "RINGS_LINK", "RING_SUFFIX",
    "SEALER_LOCK", "SETTINGS", "SNAPSHOT_PREFIX", "STEP_BITS", "SWITCH", "TABLE_BITS",
    "RecordingCount", "RowsOf", "Stage", "count_on_lane", "is_recording", "read_recording",
    "read_recordings", "remove_recording", "ring_files", "snapshots_of", "stage_of", "weight_of",
]  # fmt: skip

INCOMPLETE, COMPLETE = "incomplete", "complete"
BEGUN = "~"
"""Behind the name of a ring that has no header yet."""

SETTINGS = "settings.json"
SWITCH = "off"
"""While a file of this name is there, nothing is recorded."""

SNAPSHOT_PREFIX = "snapshot-"
SEALER_LOCK = "sealer.lock"
GUARD_LOCK = "guard.lock"
"""Held by the guard that follows the recording; says up to when it has judged it."""

ENGINES_PREFIX = "engines-"
"""Before the name of the file that the engines of one kind hold, each at its number."""

STEP_BITS, TABLE_BITS = 40, 16
"""Of the number of a step or a block table; what is above says which engine's it is."""

_OURS = (INCOMPLETE, COMPLETE, SETTINGS, RINGS_LINK, SWITCH, MANIFEST, SEALER_LOCK, GUARD_LOCK)
_OUR_SUFFIXES = (RING_SUFFIX, RING_SUFFIX + BEGUN, SEGMENT_SUFFIX)


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
        raise unreadable(path, e) from e
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
    wall = _wall_clock(folders, writers)
    merged = heapq.merge(
        *(writer.read(found, rows_of, added.get(writer.host, 0)) for writer in writers), key=_time
    )
    lanes: dict[str, int] = {}
    for pos, (ts, flags, data) in enumerate(merged, 1):
        if flags & STAMPED:
            data.setdefault("ts", ts)
            count_on_lane(data, lanes)
            if wall is not None and data.get("ev") == "trace":
                data.setdefault("clock", wall.fact())
        yield Event.of(pos, data)


def _clocks(
    folders: Sequence[str | os.PathLike[str]], writers: list[Writer], rows_of: RowsOf
) -> dict[int, Clock]:
    """The clocks of the machines; empty where there is one."""
    read = [(w.host, p.started, p.wall) for w in writers for _, p in sorted(w.parts.items())]
    hosts = {host for host, _, _ in read}
    if len(hosts) < 2:
        return {}
    for folder in folders:
        # Clocks are set while a recording goes on; what they read at each segment counts too.
        read += [
            (segment.host, segment.monotonic, segment.sealed_at)
            for segment in read_manifest(os.fspath(folder)) if segment.host in hosts
        ]  # fmt: skip
    clocks, edges, unused = by_wall(read), Edges(), RecordingCount(Stage.COMPLETE)
    for folder in folders:
        for writer in writers_of(os.fspath(folder), unused):
            for ts, _, data in writer.read(unused, rows_of, clocks[writer.host].offset):
                edges.see(writer.host, ts, data)
    return by_edges(clocks, edges)


def _wall_clock(
    folders: Sequence[str | os.PathLike[str]], writers: list[Writer]
) -> WallClock | None:
    """The clock that the events' times are by: that of the first machine."""
    if not writers:
        return None
    host = writers[0].host
    pairs = [
        (p.started, p.wall)
        for w in writers if w.host == host for p in w.parts.values() if p.wall
    ]  # fmt: skip
    pairs += [
        (segment.monotonic, segment.sealed_at)
        for folder in folders for segment in read_manifest(os.fspath(folder))
        if segment.host == host and segment.monotonic
    ]  # fmt: skip
    return WallClock.by_pairs(host, pairs) if pairs else None


def count_on_lane(data: dict[str, Any], lanes: dict[str, int]) -> None:
    """Number an event on its lane; a jump is as wide as what the lane lost."""
    ev = data.get("ev")
    lane = lane_of(ev if isinstance(ev, str) else "", data)
    seq = lanes.get(lane, 0)
    if ev == "dropped":
        count = data.get("count")
        lanes[lane] = seq + count if isinstance(count, int) else seq
    else:
        data.setdefault("seq", seq)
        lanes[lane] = seq + 1


def _time(item: tuple[int, int, dict[str, Any]]) -> int:
    return item[0]


def _no_recording(path: str) -> TraceError:
    if not os.path.lexists(path):
        return TraceError(
            f"there is no file or folder {path}", hint="a recording is a folder NAME.hkv"
        )
    if os.path.isdir(path) and path.rstrip("/").endswith(".hkv"):
        return TraceError(f"{path} holds no recording", hint="nothing was ever recorded there")
    return TraceError(f"{path} is no recording", hint="name a folder NAME.hkv")


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
        with suppress(OSError, RingError), open(ring, "rb", opener=regular) as file:
            page = file.read(HEADER_BYTES)
            events += held_bytes(RingHeader.unpack(page), page) // ROW_BYTES
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
        ours = name in _OURS or name.startswith(ENGINES_PREFIX)
        if ours or name.endswith(_OUR_SUFFIXES):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
    with suppress(OSError):
        os.rmdir(folder)
