"""Reading a ring, of a program that runs, has ended or was killed."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zlib import adler32, crc32

from hkvtool.model.codec import CodecError, decode, encode
from hkvtool.model.codec_packed import head_of, unpack
from hkvtool.model.regular import regular
from hkvtool.model.ring_format import (
    ERROR_AT,
    ERROR_BYTES,
    HEADER_BYTES,
    MAX_PAYLOAD,
    RECORD,
    RECORD_BYTES,
    Kind,
    Policy,
    RingError,
    RingHeader,
    RingState,
    Word,
)

_TRIES = 4
"""Copies that are made of a ring whose records are being taken out meanwhile."""

_SCAN = 16
"""Bytes that are summed, for each byte of a ring, in search of the next whole record."""


_NEARLY = 8
"""Of a flight recorder that is read on from a position, the part before that position that its
writer may be in: what it is writing there is not in its head yet."""


class Record(NamedTuple):
    """One whole record, and where it starts and ends in what was read."""

    kind: int
    seq: int
    ts: int
    payload: bytes
    end: int


@dataclass
class RingCount:
    """What a ring held: `stored` events came out whole; `dropped` were lost by the recorder or
    to damage and stand in the gaps; `vanished` had been overwritten as agreed. Together they
    are all that were emitted. `torn` counts the places where records were damaged."""

    stored: int = 0
    dropped: int = 0
    vanished: int = 0
    torn: int = 0

    @property
    def emitted(self) -> int:
        return self.stored + self.dropped + self.vanished

    def add(self, other: RingCount) -> None:
        """Take another ring's into account."""
        self.stored += other.stored
        self.dropped += other.dropped
        self.vanished += other.vanished
        self.torn += other.torn


@dataclass
class RingReader:
    """What a ring holds at the moment it is opened. `count` is final once `events` has ended."""

    path: str
    header: RingHeader
    state: RingState
    error: str
    head: int
    held: int
    """Bytes up to `head`; `data` has fewer where the file was cut."""
    wrapped: bool
    tail_seq: int
    dropped_until: int
    data: bytes = field(repr=False)
    count: RingCount = field(default_factory=RingCount)
    next_seq: int = 0
    at: int = 0
    """Bytes of `data` that have been read."""
    cut: bool = False
    """What was read last is torn."""

    @staticmethod
    def open(path: str | os.PathLike[str], since: tuple[int, int] | None = None) -> RingReader:
        """Take a copy of what a ring holds now, or of it what comes `since` a position and the
        sequence number there. Raises RingError, OSError."""
        with open(path, "rb", buffering=0, opener=regular) as file:
            fd = file.fileno()
            page = _read(fd, 0, HEADER_BYTES)
            header = RingHeader.unpack(page)
            capacity = header.capacity
            for _ in range(_TRIES):
                head = _word(page, Word.HEAD)
                held = held_bytes(header, page, since)
                data = _stretch(fd, capacity, head - held, head)
                before, page = page, _read(fd, 0, HEADER_BYTES)
                if _word(page, Word.TAIL) == _word(before, Word.TAIL):
                    break
            # A writer that went on meanwhile may have overwritten the oldest that was copied.
            room = capacity if since is None else since[0] + capacity - capacity // _NEARLY
            wrapped = header.policy == Policy.OVERWRITE and _word(page, Word.HEAD) > room
            return RingReader(
                os.fspath(path), header, _state(before), _error(before), head, held, wrapped,
                since[1] if since else _word(before, Word.TAIL_SEQ),
                _word(before, Word.DROPPED_UNTIL), data,
            )  # fmt: skip

    def records(self) -> Iterator[Record]:
        """The whole records in order. What lies between them is torn, and counted."""
        data, at, last = self.data, 0, -1
        begin = self.head - self.held
        # In a flight recorder the oldest record may be half overwritten.
        whole = not self.wrapped
        budget = _SCAN * len(data)
        while at < len(data):
            record = _record(data, at, begin + at)
            if record is None or (record.kind != Kind.PAD and record.seq < last):
                if whole:
                    self.count.torn += 1
                    whole, self.cut = False, True
                budget -= _cost(data, at)
                if budget < 0:
                    return
                at += 8
                continue
            whole, self.cut = True, False
            at = self.at = record.end
            if record.kind != Kind.PAD:
                last = record.seq
                yield record

    def told(self, *, last: bool = True, after: int = 0) -> Iterator[Record]:
        """The records of events, and where events are lost a `GAP` that says so.

        Unless it is the `last` time, the writer is left to tell itself of those it lost since.
        What comes before the number `after` has been told from another file.
        """
        count, marked, ts = self.count, 0, self.header.monotonic
        expected = None if self.wrapped else max(self.tail_seq, after)
        for record in self.records():
            try:
                said = _count(record) if record.kind == Kind.GAP else 0
            except CodecError:
                # It is missed by the next event, as any other that is torn.
                count.torn += 1
                continue
            ts = record.ts
            if expected is None:
                count.vanished = max(0, record.seq - self.header.first_seq - said)
                expected = record.seq - said
            if record.kind == Kind.GAP:
                # Of these, a reader before may have told already.
                found, said = said, min(said, max(0, record.seq - expected - marked))
                if not said:
                    continue
                marked += said
                count.dropped += said
                if said != found:
                    record = _gap({**decode(record.payload), "count": said}, record.seq, ts)
            else:
                lost = record.seq - expected - marked
                if lost < 0 and record.seq < after:
                    continue
                if lost > 0:
                    count.dropped += lost
                    yield _gap(_lost(lost, "damaged"), record.seq, ts)
                expected, marked = record.seq + 1, 0
                count.stored += 1
            yield record
        if expected is None:
            expected = max(self.tail_seq, self.dropped_until)
            count.vanished = expected - self.header.first_seq
        lost = max(self.dropped_until - expected - marked, 0) if last else 0
        reason = self.error or "ring full"
        if self.cut and not lost:
            # One at least; if there were more, the number of the next event tells.
            lost, reason = 1, "damaged"
        if lost:
            count.dropped += lost
            yield _gap(_lost(lost, reason), expected + marked + lost, ts)
        self.next_seq = expected + marked + lost

    def events(self, *, last: bool = True, after: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
        """Time and event of each of those; what cannot be decoded is a `dropped` event."""
        for record in self.told(last=last, after=after):
            yield record.ts, opened(record.kind, record.payload, self.count)


def opened(kind: int, payload: bytes, count: RingCount) -> dict[str, Any]:
    """The event of a record whose checksum was right; a `dropped` event if it is none after all."""
    try:
        return unpack(payload).data if kind == Kind.PACKED else decode(payload)
    except CodecError:
        count.stored -= 1
        count.dropped += 1
        count.torn += 1
        return _lost(1, "damaged")


def _gap(data: dict[str, Any], seq: int, ts: int) -> Record:
    return Record(Kind.GAP, seq, ts, encode(data), 0)


def _lost(count: int, reason: str) -> dict[str, Any]:
    return {"ev": "dropped", "count": count, "reason": reason}


def _count(record: Record) -> int:
    count = decode(record.payload).get("count")
    if type(count) is not int or count < 0:
        raise CodecError("a gap without its count")
    return count


def _read(fd: int, at: int, size: int) -> bytes:
    """Some bytes of a file; fewer where it ends."""
    parts = []
    while size > 0:
        part = os.pread(fd, size, at)
        if not part:
            break
        parts.append(part)
        at += len(part)
        size -= len(part)
    return b"".join(parts)


def _stretch(fd: int, capacity: int, begin: int, end: int) -> bytes:
    """What lies from one position to another, in a row."""
    first, size = begin % capacity, end - begin
    before_end = min(size, capacity - first)
    part = _read(fd, HEADER_BYTES + first, before_end)
    if len(part) < before_end or size == before_end:
        return part
    return part + _read(fd, HEADER_BYTES, size - before_end)


def _record(data: bytes, at: int, position: int) -> Record | None:
    """The record that starts here, if there is a whole one of this round."""
    head = data[at : at + 8]
    if len(head) < 8:
        return None
    check, length = struct.unpack("=II", head)
    kind, length = length >> 24, length & 0xFFFFFF
    if kind == Kind.PAD:
        if check != crc32(head[4:], position) or length % 8 or not length:
            return None
        return Record(kind, 0, 0, b"", at + length)
    if kind == Kind.PACKED:
        return _packed(data, at, position, check, length)
    body = at + RECORD_BYTES
    if kind not in (Kind.EVENT, Kind.GAP) or length > MAX_PAYLOAD or body + length > len(data):
        return None
    if check != crc32(data[at + 4 : body + length], position):
        return None
    _, _, seq, ts = RECORD.unpack_from(data, at)
    return Record(kind, seq, ts, data[body : body + length], body + length + 7 & -8)


def _packed(data: bytes, at: int, position: int, check: int, length: int) -> Record | None:
    """The packed record that starts here, if there is a whole one."""
    body = at + 8
    payload = data[body : body + length]
    if len(payload) != length or adler32(payload, position & 0xFFFFFFFF) != check:
        return None
    try:
        _, seq, ts = head_of(payload)
    except CodecError:
        return None
    return Record(Kind.PACKED, seq, ts, payload, body + length + 7 & -8)


def _cost(data: bytes, at: int) -> int:
    """What looking for a record here has cost, in bytes."""
    if at + 8 > len(data) or data[at + 7] not in (Kind.EVENT, Kind.GAP, Kind.PACKED):
        return 8
    return 8 + min(len(data) - at, int.from_bytes(data[at + 4 : at + 7], "little"))


def held_bytes(header: RingHeader, page: bytes, since: tuple[int, int] | None = None) -> int:
    """How much a ring holds, by its first page; or how much of it comes `since` a position."""
    head = _word(page, Word.HEAD)
    begin = max(0, head - header.capacity)
    if since is not None:
        begin = min(head, max(begin, since[0]))
    elif header.policy != Policy.OVERWRITE:
        begin = min(head, max(begin, _word(page, Word.TAIL)))
    return head - begin


def _word(page: bytes, at: Word) -> int:
    return int(struct.unpack_from("=Q", page, 8 * at)[0])


def _state(page: bytes) -> RingState:
    try:
        return RingState(_word(page, Word.STATE))
    except ValueError:
        return RingState.DISABLED


def _error(page: bytes) -> str:
    text = page[ERROR_AT : ERROR_AT + ERROR_BYTES]
    return text.partition(b"\0")[0].decode("utf-8", "replace")


__all__ = ["Record", "RingCount", "RingError", "RingReader", "held_bytes"]
