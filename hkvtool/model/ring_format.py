"""How a ring file is laid out: what the recorder writes and every reader relies on.

A ring is one file, written by one thread. It is a page of header and then `capacity` bytes of
records, used round and round. Positions in it (`HEAD`, `TAIL`) count bytes since the beginning and
never go back; where a byte lies is the position modulo the capacity. A record starts at a multiple
of eight and never straddles the end: `PAD` fills what is left there.

A record counts once `HEAD` is past it, which is stored last. The checksum is for what the order of
stores does not cover: a machine that lost power, a disk that lies, a reader that was overtaken. It
starts from the record's position, so that what lies about from an earlier round is no record.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from hkvtool.model.codec import CODEC_VERSION, CodecError, refuse_newer

MAGIC = b"HKV ring"
RING_VERSION = 2
"""Version 2 has packed records; every version up to it is read."""

HEADER_BYTES = 4096

RECORD = struct.Struct("=IIQq")
"""Checksum, length of the payload with the kind in its highest byte, sequence number, time."""

RECORD_BYTES = RECORD.size

BODY = struct.Struct("=IQq")
"""A record without its checksum, which covers the rest of it and the payload."""

MAX_PAYLOAD = (1 << 24) - 64
"""The length has three bytes."""


class Kind(IntEnum):
    """What a record is. A `GAP` is a `dropped` event that the ring itself adds: its sequence
    number is that of the next event."""

    EVENT = 1
    GAP = 2
    PAD = 3
    PACKED = 4
    """Of a prepared emitter: checksum (Adler-32) and length, then the payload, which holds the
    sequence number and the time (`codec_packed`). Taking that checksum is twice as fast."""


class Policy(IntEnum):
    """What happens when a ring is full; nothing ever waits."""

    DROP = 0
    """The new event is dropped and counted, and a gap says so once there is room."""
    OVERWRITE = 1
    """The oldest records go: a flight recorder."""
    GROW = 2
    """The next ring file goes on: for programs that may wait for a file to be made."""


class RingState(IntEnum):
    """How far a ring has come."""

    OPEN = 0
    CLOSED = 1
    DISABLED = 2
    """The recorder failed and turned itself off; the header says why."""


class Word(IntEnum):
    """Numbers of the eight-byte words of the header that change. Each is stored at once, and
    those of the writer and of the reader are in cache lines of their own."""

    HEAD = 128
    TAIL = 136
    TAIL_SEQ = 137
    """Sequence number that is expected at `TAIL`."""
    DROPPED = 144
    """Events dropped since the beginning."""
    DROPPED_UNTIL = 145
    """Sequence number behind the last dropped event."""
    STATE = 152


ERROR_AT = 2048
ERROR_BYTES = 1024

STAMPED = 1
"""Flag: time and sequence numbers of the records are the events' own; else they carry theirs."""

_FIXED = struct.Struct("=8s9I7Q")
_NAME_AT = 256
_NAME_BYTES = 512
_CHECK_AT = 1020


class RingError(ValueError):
    """A file that is no ring, or not one that this code can read."""


@dataclass(frozen=True)
class RingHeader:
    """What is said of a ring once. `thread` numbers the writers of a process, `part` the rings
    of one writer; the two clocks were read at the same moment, in nanoseconds."""

    capacity: int
    policy: Policy
    pid: int
    thread: int
    part: int
    first_seq: int
    monotonic: int
    wall: int
    flags: int = STAMPED
    name: str = ""
    host: int = 0
    """Tells machines apart, whose clocks differ; 0 where nobody said."""

    def pack(self) -> bytes:
        """The header's page."""
        name = self.name.encode("utf-8", "replace")[:_NAME_BYTES]
        page = bytearray(HEADER_BYTES)
        _FIXED.pack_into(
            page, 0, MAGIC, RING_VERSION, CODEC_VERSION, HEADER_BYTES, self.policy, self.flags,
            self.thread, self.part, len(name), sys.byteorder == "little",
            self.capacity, self.pid, self.first_seq, self.monotonic, self.wall, self.host, 0,
        )  # fmt: skip
        page[_NAME_AT : _NAME_AT + len(name)] = name
        struct.pack_into("=I", page, _CHECK_AT, crc32(page[:_CHECK_AT]))
        struct.pack_into("=Q", page, 8 * Word.TAIL_SEQ, self.first_seq)
        return bytes(page)

    @staticmethod
    def unpack(page: bytes) -> RingHeader:
        """The header of a ring. Raises RingError."""
        if len(page) < HEADER_BYTES or not page.startswith(MAGIC):
            raise RingError("it is no ring file, or was never begun")
        (
            _, version, form, size, policy, flags, thread, part, length, _,
            capacity, pid, first_seq, monotonic, wall, host, _,
        ) = _FIXED.unpack_from(page)  # fmt: skip
        if not 0 < version <= RING_VERSION:
            raise RingError(
                f"it is a ring of version {version}, this hkvtool reads up to {RING_VERSION}: use "
                "the version that recorded it"
            )
        if struct.unpack_from("=I", page, _CHECK_AT)[0] != crc32(page[:_CHECK_AT]):
            raise RingError("its header is damaged")
        try:
            refuse_newer(form)
            name = page[_NAME_AT : _NAME_AT + length].decode("utf-8", "replace")
            how = Policy(policy)
        except (CodecError, ValueError) as e:
            raise RingError(str(e)) from e
        if size != HEADER_BYTES or not capacity or capacity % 8:
            raise RingError("its header is damaged")
        return RingHeader(
            capacity, how, pid, thread, part, first_seq, monotonic, wall, flags, name, host
        )  # fmt: skip
