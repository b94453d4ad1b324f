"""The manifest of a recording: one line for each segment that the sealer has put in place.

A segment is a Parquet file with the columns of `COLUMNS`, one row an event, one row group a ring.
It counts once its line is there; what a sealer that died left without one is still in the rings.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from typing import Any

from hkvtool.model.errors import TraceError
from hkvtool.model.regular import regular
from hkvtool.model.ring_format import RingHeader

MANIFEST = "manifest.jsonl"
SEGMENT_SUFFIX = ".parquet"
SEGMENT_VERSION = 1

COLUMNS = ("kind", "seq", "ts", "payload")
"""What a segment holds of a record: its `Kind`, its number, nanoseconds, its bytes."""


@dataclass(frozen=True)
class Sealed:
    """What one segment holds of one ring: the events from `first_seq` up to `next_seq`, of which
    `stored` are rows; `tail` is where the ring went on behind them. `started` and `wall` are the
    ring's two clocks."""

    ring: str
    host: int
    pid: int
    thread: int
    part: int
    started: int
    wall: int
    flags: int
    name: str
    rows: int
    first_seq: int
    next_seq: int
    tail: int
    stored: int
    dropped: int
    vanished: int = 0
    torn: int = 0
    error: str = ""


@dataclass(frozen=True)
class Segment:
    """One segment; its row groups are in the order of `rings`. `deleted`: only the declarations in
    it were kept, under the file's new name; "" where there were none."""

    file: str
    number: int
    sealed_at: int
    """Wall clock, in nanoseconds."""
    bytes: int
    rings: tuple[Sealed, ...]
    deleted: bool = False
    host: int = 0
    monotonic: int = 0
    """What the other clock of the sealer's machine read at `sealed_at`."""

    def line(self) -> str:
        """As it stands in the manifest."""
        return json.dumps({"v": SEGMENT_VERSION, **asdict(self)}, separators=(",", ":"))

    @staticmethod
    def of_line(text: str) -> Segment:
        """Raises ValueError, KeyError, TypeError, and TraceError for a newer form."""
        said: dict[str, Any] = json.loads(text)
        if said.pop("v") > SEGMENT_VERSION:
            raise TraceError("its segments are of a newer hkvtool", hint="pip install -U hkvtool")
        rings = tuple(Sealed(**_checked(Sealed, ring)) for ring in said.pop("rings"))
        segment = Segment(rings=rings, **_checked(Segment, said))
        if os.path.basename(segment.file) != segment.file:
            raise ValueError("a file outside of the recording")
        return segment


def _checked(kind: type, said: dict[str, Any]) -> dict[str, Any]:
    """Fields as they were read, each of which must be of the type that it is declared with."""
    types = {"str": str, "int": int, "bool": bool}
    declared = {field.name: types.get(str(field.type)) for field in fields(kind)}
    for name, value in said.items():
        if type(value) is not declared[name] or (type(value) is int and value < 0):
            raise ValueError(f"{name} is {value!r}")
    return said


def sealed_of(name: str, header: RingHeader, **counts: Any) -> Sealed:
    """What is said of a ring in every line."""
    return Sealed(
        name, header.host, header.pid, header.thread, header.part, header.monotonic, header.wall,
        header.flags, header.name, **counts,
    )  # fmt: skip


def read_manifest(folder: str) -> list[Segment]:
    """The segments of a recording in the order they were sealed. A last line that was cut is left
    out. Raises TraceError where another makes no sense, or the file cannot be read."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb", opener=regular) as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as e:
        raise TraceError(f"cannot read {path}: {e.strerror or e}") from e
    found: dict[int, Segment] = {}
    for number, line in enumerate(lines[:-1], 1):
        try:
            segment = Segment.of_line(line.decode())
        except (ValueError, KeyError, TypeError) as e:
            raise TraceError(
                f"{path}, line {number} makes no sense: {type(e).__name__}: {e}",
                hint="the recording was altered; the other files of it are as they were",
            ) from e
        found[segment.number] = segment
    return [found[number] for number in sorted(found)]
