"""One message of a KV event stream, decoded: msgpack or JSON, and never more than is in it.

The decoder is total. What cannot be read is a problem with its offset in the message, and
everything before it counts; memory stays within a small multiple of the message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from hkvtool.importers.json_values import Unread, json_values
from hkvtool.importers.kv_events import KvEvent, Reject, events_of
from hkvtool.model.errors import HkvError

MOST_EVENTS = 100_000
"""Events of one message; no engine comes near in a step."""

_MOST_PROBLEMS = 100
_MOST_ITEMS = 1 << 20
"""Of one list or map, and lists and maps of one message: an empty one is a byte on the wire and
dozens in memory."""

MISSING = "msgpack is needed to read this, and is not installed"
HINT = "pip install 'hkvtool[listen]', or `pip install msgpack` beside it"


@dataclass
class Batch:
    """The events of one message with their offsets in it, and what could not be read.

    `rank` is the data-parallel rank, `at` the time of publication in seconds.
    """

    at: float | None = None
    rank: int | None = None
    events: list[tuple[int, KvEvent]] = field(default_factory=list)
    problems: list[tuple[int, str]] = field(default_factory=list)
    more: int = 0
    """Problems that were counted only."""

    @property
    def unread(self) -> int:
        return len(self.problems) + self.more

    def take(self, offset: int, value: Any) -> None:
        """One decoded event object."""
        try:
            self.events += [(offset, event) for event in events_of(value)]
        except Reject as e:
            self.refuse(offset, str(e))

    def refuse(self, offset: int, problem: str) -> None:
        """Something that cannot be read."""
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append((offset, problem))
        else:
            self.more += 1


def read_batch(payload: bytes) -> Batch:
    """The batch of one message. Raises HkvError only where msgpack is not installed."""
    batch = Batch()
    if payload[:1] in (b"{", b"["):
        _read_json(batch, payload)
    else:
        _read_msgpack(batch, payload)
    return batch


def batch_time(payload: bytes) -> float | None:
    """When a batch was published, without reading all of it; None where that is not plain."""
    # An array of two to fifteen, then a double: what every publisher of msgpack writes.
    if len(payload) >= 10 and 0x92 <= payload[0] <= 0x9F and payload[1] == 0xCB:
        return float(struct.unpack_from(">d", payload, 2)[0])
    return None


def unpacker(data: bytes) -> Any:
    """A msgpack reader over `data` that allocates no more than it can hold. Raises HkvError."""
    try:
        import msgpack
    except ModuleNotFoundError as e:
        raise HkvError(MISSING, hint=HINT) from e
    size = max(1, len(data))
    most = min(size, _MOST_ITEMS)
    containers = count(1)

    def counted(made: Any) -> Any:
        if next(containers) > _MOST_ITEMS:
            raise ValueError(f"more than {_MOST_ITEMS:,} lists and maps")
        return made

    made = msgpack.Unpacker(
        list_hook=counted,
        object_hook=counted,
        raw=False,
        strict_map_key=False,
        unicode_errors="backslashreplace",
        max_buffer_size=size,
        max_str_len=size,
        max_bin_len=size,
        max_array_len=most,
        max_map_len=most,
        max_ext_len=size,
    )
    made.feed(data)
    return made


def unpack_problem(error: BaseException) -> str:
    """What is wrong with bytes that msgpack could not read, in a few words."""
    name = type(error).__name__
    if name == "OutOfData":
        return "it ends too early"
    if name in ("StackError", "RecursionError"):
        return "nested too deeply"
    return f"not msgpack: {str(error)[:80] or name}"


def unpack_errors() -> tuple[type[Exception], ...]:
    """What msgpack raises for bytes that are none."""
    import msgpack

    of_its_own: type[Exception] = msgpack.exceptions.UnpackException
    return (
        of_its_own, ValueError, TypeError, OverflowError, MemoryError, RecursionError, LookupError,
    )  # fmt: skip


def _read_msgpack(batch: Batch, payload: bytes) -> None:
    reader = unpacker(payload)
    offset = 0
    errors = unpack_errors()
    try:
        parts = reader.read_array_header()
        if not 2 <= parts <= 16:
            batch.refuse(0, f"a batch is an array of its time, events and rank, not of {parts}")
            return
        offset = reader.tell()
        at = reader.unpack()
        if isinstance(at, (int, float)) and not isinstance(at, bool):
            batch.at = float(at)
        offset = reader.tell()
        events = reader.read_array_header()
        for number in range(events):
            offset = reader.tell()
            if number >= MOST_EVENTS or batch.more:
                batch.refuse(offset, f"more events than a batch has: {events:,}")
                return
            batch.take(offset, reader.unpack())
        for part in range(parts - 2):
            offset = reader.tell()
            value = reader.unpack()
            if part == 0:
                batch.rank = _rank(value)
        offset = reader.tell()
        if offset != len(payload):
            batch.refuse(offset, f"{len(payload) - offset:,} bytes behind the batch")
    except errors as e:
        batch.refuse(offset, unpack_problem(e))


def _read_json(batch: Batch, payload: bytes) -> None:
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as e:
        batch.refuse(e.start, "not UTF-8")
        return
    for offset, value in json_values(text):
        if len(batch.events) >= MOST_EVENTS or batch.more:
            batch.refuse(offset, "more events than a batch has")
            return
        if isinstance(value, Unread):
            batch.refuse(offset, value.problem)
            return
        _take_json(batch, offset, value)


def _take_json(batch: Batch, offset: int, value: Any) -> None:
    """An event, or one of the three parts of a batch."""
    if isinstance(value, list):
        for each in value[:MOST_EVENTS]:
            batch.take(offset, each)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if batch.events or batch.problems:
            batch.rank = _rank(value)
        else:
            batch.at = float(value) if abs(value) < 1 << 62 else None
    else:
        if isinstance(value, dict):
            batch.rank = _rank(value.get("attention_dp_rank"), batch.rank)
        batch.take(offset, value)


def _rank(value: Any, otherwise: int | None = None) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31
    return value if plain else otherwise
