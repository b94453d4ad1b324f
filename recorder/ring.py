"""A ring: the file into which one thread of an engine puts its events.

The file is allocated in full before it is mapped, since a store into a hole of a full disk kills
the process. A mapping outlives it: what `emit` has stored is read back whatever dies next.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from time import monotonic_ns, time_ns
from typing import Any
from zlib import crc32

from hkvtool.model.codec import CodecError, encode
from hkvtool.model.recording import BEGUN
from hkvtool.model.ring_format import (
    BODY,
    ERROR_AT,
    ERROR_BYTES,
    HEADER_BYTES,
    MAX_PAYLOAD,
    RECORD_BYTES,
    STAMPED,
    Kind,
    Policy,
    RingHeader,
    RingState,
    Word,
)
from hkvtool.recorder.cursor import Cursor
from hkvtool.recorder.native import compiled
from hkvtool.recorder.outcome import Off

MIN_BYTES = 4096
RING_BYTES = 16 << 20
"""Default capacity: some 250,000 events of an engine."""

_REASONS, _LONGEST_REASON = 8, 100
"""What is told apart of events that were dropped; it has room in the smallest ring."""

_NO_READER = 1 << 64
"""Stands for how far the reader has come where nobody waits for one."""

_COMPILED = compiled is not None

_EVENT = Kind.EVENT << 24
_GAP = Kind.GAP << 24
_HEAD, _TAIL = int(Word.HEAD), int(Word.TAIL)
_DROPPED, _DROPPED_UNTIL, _STATE = int(Word.DROPPED), int(Word.DROPPED_UNTIL), int(Word.STATE)
_body = BODY.pack


@lru_cache(1)
def host_number() -> int:
    """Of this machine since it was started: processes that share it share a clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            text = file.read()
    except OSError:
        text = socket.gethostname().encode()
    return int.from_bytes(blake2b(text, digest_size=7).digest(), "little")


class Ring(Cursor):
    """Takes the events of one thread. Nothing that goes wrong in it comes out of it."""

    __slots__ = (
        "_capacity", "_failed", "_fd", "_largest", "_lost", "_map", "_nested", "_owing", "_policy",
        "_records", "_tail", "_words", "_words32", "full", "header", "path",
    )  # fmt: skip

    def __init__(
        self, path: str, header: RingHeader, mapped: mmap.mmap, records: mmap.mmap, fd: int
    ) -> None:
        self._fd = fd
        self.path = path
        self.header = header
        self.full = False
        """With `Policy.GROW`: there was no room for the last event, and nothing was counted."""
        self._map = mapped
        self._words = memoryview(mapped).cast("Q")
        self._words32 = memoryview(mapped).cast("I")
        self._capacity = header.capacity
        self._policy = header.policy
        self._largest = min(MAX_PAYLOAD, header.capacity // 2 - RECORD_BYTES)
        self._records = records
        """The same bytes without the header: a prepared emitter has one addition less to do."""
        self._map_records(fd, HEADER_BYTES, header.capacity, _HEAD)
        self._limit = self._head = self._at = 0
        self._tail = _NO_READER if header.policy == Policy.OVERWRITE else 0
        self._seq = header.first_seq
        self._busy = self._off = self._failed = self._owing = False
        self._lost: dict[tuple[str | None, str], int] = {}
        self._nested = 0

    @staticmethod
    def create(
        path: str | os.PathLike[str],
        *,
        capacity: int = RING_BYTES,
        policy: Policy = Policy.DROP,
        name: str = "",
        thread: int = 0,
        part: int = 0,
        first_seq: int = 0,
        flags: int = STAMPED,
    ) -> Ring | Off:
        """Make a new ring file, or say why there is none; then nothing is left of it."""
        place = os.fspath(path)
        aside = place + BEGUN
        fd = -1
        try:
            if os.path.lexists(place):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            capacity = max(MIN_BYTES, capacity) & -8
            fd = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as e:
            return Off.of(e, place)
        try:
            os.posix_fallocate(fd, 0, HEADER_BYTES + capacity)
            with suppress(OSError):
                # Held until the process ends, however it does: that tells a sealer.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            header = RingHeader(
                capacity, policy, os.getpid(), thread, part, first_seq, monotonic_ns(), time_ns(),
                flags, name, host_number(),
            )  # fmt: skip
            mapped = mmap.mmap(fd, HEADER_BYTES + capacity)
            records = mmap.mmap(fd, capacity, offset=HEADER_BYTES)
            mapped[:HEADER_BYTES] = header.pack()
            made = Ring(place, header, mapped, records, fd)
            # Whoever finds it under its name finds a ring.
            os.rename(aside, place)
            return made
        except Exception as e:
            with suppress(OSError):
                os.close(fd)
                os.unlink(aside)
            return Off.of(e, place)

    @property
    def written(self) -> int:
        """Bytes written since it was made, those that have gone included."""
        return int(self._words[_HEAD])

    @property
    def next_seq(self) -> int:
        """Sequence number of the next event."""
        return self._seq

    def emit(self, data: Mapping[str, Any]) -> bool:
        """Store one event with the time; False where it was not, which is counted.

        Never waits and never raises. To be called by one thread only; a call from inside a call
        (a signal handler, a finalizer) is refused and counted.
        """
        if self._busy:
            return self._refuse(data)
        self._busy = True
        try:
            payload = encode(data)
            if _COMPILED and self._put(_EVENT, payload):
                return True
            length = len(payload)
            size = length + 31 & -8
            at = self._at
            if self._owing or at + size > self._capacity or length > self._largest:
                if not self._make_way(data, length, size):
                    return False
                at = self._at
            begin = self._head
            head = begin + size
            if head - self._tail > self._capacity and not self._room(head):
                return self._no_room(data)
            seq = self._seq
            body = _body(length | _EVENT, seq, monotonic_ns()) + payload
            start = at + HEADER_BYTES
            self._map[start + 4 : start + 24 + length] = body
            self._words32[start >> 2] = crc32(body, begin)
            self._words[_HEAD] = head
            # No call, and so no signal handler, comes between these.
            self._head = head
            self._at = at + size
            self._seq = seq + 1
            if self._at > self._limit:
                self._set_limit()
            return True
        except CodecError as e:
            self.refuse(data, f"not encodable: {e}")
        except Exception as e:
            self._disable(e)
        finally:
            self._busy = self._off
        return False

    def refuse(self, data: Mapping[str, Any], reason: str) -> bool:
        """Count an event as dropped without trying to store it."""
        with suppress(Exception):
            self._lose(data, reason)
        return False

    def drop_when_full(self) -> None:
        """There is no next ring to go on in: count from now on what does not fit."""
        self.full = False
        self._policy = Policy.DROP

    def close(self) -> None:
        """Say that no event comes any more, and give the mapping back."""
        self._busy = self._off = True
        with suppress(Exception):
            self._owe_nested()
            if self._owing:
                self._write_gaps(0)
            if self._words[_STATE] == RingState.OPEN:
                self._words[_STATE] = RingState.CLOSED
            self._map.flush()
        with suppress(Exception):
            self._words.release()
            self._words32.release()
            self._map.close()
            self._records.close()
            self._unmap_records()
        self._let_go()

    def pause(self) -> None:
        """Take no events until `go_on`; any thread may say so."""
        if not self._failed and self._fd >= 0:
            self._busy = self._off = True

    def go_on(self) -> None:
        """Take events again."""
        if not self._failed and self._fd >= 0:
            self._off = self._busy = False

    def abandon(self) -> None:
        """Leave the file to the process that it belongs to: after a fork, that is the parent."""
        self._busy = self._off = True
        self._let_go()

    def _let_go(self) -> None:
        fd, self._fd = self._fd, -1
        with suppress(OSError):
            if fd >= 0:
                os.close(fd)

    def _set_limit(self) -> None:
        """Say how far prepared emitters may go on by themselves: not while something is owed."""
        room = self._at + self._tail + self._capacity - self._head
        largest = self._at + self._largest
        self._limit = 0 if self._owing else min(self._capacity, room, largest)

    def _refuse(self, data: Mapping[str, Any]) -> bool:
        """An event from inside an `emit`, or after the end of the ring."""
        if not self._off:
            self._nested += 1
            self._owing = True
            self._limit = 0
        elif self._failed:
            self.refuse(data, "the recorder failed")
        return False

    def _room(self, head: int) -> bool:
        """True where the ring may be written up to `head`; asks how far its reader has come."""
        if self._tail != _NO_READER:
            self._tail = self._words[_TAIL]
        return head - self._tail <= self._capacity

    def _make_way(self, data: Mapping[str, Any], length: int, size: int) -> bool:
        """The rarer things before a record: gaps to be told, the end of the file, a giant."""
        if length > self._largest:
            self._lose(data, f"an event of {length:,} bytes")
            return False
        if self._owing:
            self._owe_nested()
            if not self._write_gaps(size):
                return self._no_room(data)
        if self._at + size > self._capacity and not self._pad(size):
            return self._no_room(data)
        return True

    def _pad(self, size: int) -> bool:
        """Fill the end of the file if `size` bytes have room behind it, at its beginning."""
        left = self._capacity - self._at
        if not self._room(self._head + left + size):
            return False
        if left:
            body = struct.pack("=I", Kind.PAD << 24 | left)
            start = self._at + HEADER_BYTES
            self._map[start : start + 8] = struct.pack("=I", crc32(body, self._head)) + body
            self._words[_HEAD] = self._head + left
            self._head += left
        self._at = self._limit = 0
        return True

    def _no_room(self, data: Mapping[str, Any]) -> bool:
        if self._policy == Policy.GROW:
            self.full = True
        else:
            self._lose(data, "ring full")
        return False

    def _lose(self, data: Mapping[str, Any], reason: str) -> None:
        """Count an event that is not stored."""
        lane = None
        with suppress(Exception):
            lane = data.get("actor")
        self._owe(lane[:_LONGEST_REASON] if isinstance(lane, str) else None, reason)

    def _owe(self, lane: str | None, reason: str) -> None:
        """One more event to tell of. The words are exact even if nothing comes after."""
        key = (lane, reason[:_LONGEST_REASON])
        if key not in self._lost and len(self._lost) >= _REASONS:
            # A faulty caller may come up with a new lane or reason each time.
            key = (None, "several reasons")
        self._lost[key] = self._lost.get(key, 0) + 1
        self._owing = True
        self._limit = 0
        self._seq += 1
        self._words[_DROPPED] += 1
        self._words[_DROPPED_UNTIL] = self._seq

    def _owe_nested(self) -> None:
        nested, self._nested = self._nested, 0
        for _ in range(nested):
            self._owe(None, "emitted inside an emit")

    def _write_gaps(self, size: int) -> bool:
        """Store what was dropped, if that and `size` bytes more have room."""
        payloads = []
        for (lane, reason), count in self._lost.items():
            event = {"ev": "dropped", "count": count, "reason": reason}
            payloads.append(encode(event if lane is None else {**event, "actor": lane}))
        sizes = [len(payload) + 31 & -8 for payload in payloads]
        if not self._room(self._head + sum(sizes) + max(sizes, default=0) + size):
            return False
        for payload, own in zip(payloads, sizes, strict=True):
            if self._at + own > self._capacity and not self._pad(own):
                return False
            body = _body(len(payload) | _GAP, self._seq, monotonic_ns()) + payload
            start = self._at + HEADER_BYTES
            self._map[start + 4 : start + 4 + len(body)] = body
            self._words32[start >> 2] = crc32(body, self._head)
            self._words[_HEAD] = self._head + own
            self._head += own
            self._at += own
        self._lost.clear()
        self._owing = False
        return True

    def _disable(self, error: Exception) -> None:
        """Turn this ring off for good, and say so in its header."""
        self._off = self._failed = True
        with suppress(Exception):
            self._owe(None, "the recorder failed")
            text = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
            text = text[: ERROR_BYTES - 1].replace(b"\0", b" ") + b"\0"
            self._map[ERROR_AT : ERROR_AT + len(text)] = text
            self._words[_STATE] = RingState.DISABLED
