"""Events of one shape as CPython's own serializer writes their values: the fastest way to bytes.

A prepared emitter (`Recording.emitter`) hands `marshal.dumps` one flat tuple: the number of the
shape, the sequence number, the time in seconds, and the values in the order of the shape's keys;
a value of None is left out. It is read here and not by `marshal.loads`, which may crash on what is
damaged. Version 2 of that format has never changed and has no references between values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from hkvtool.model.codec_keys import KEYS, NAMES_BY_CODE
from hkvtool.model.codec_values import CodecError
from hkvtool.model.events import EVENTS
from hkvtool.model.jsonl import MAX_DEPTH

MARSHAL_VERSION = 2

_TUPLE, _LIST, _DICT, _END = b"("[0], b"["[0], b"{"[0], b"0"[0]
_INT, _LONG, _FLOAT, _TEXT = b"i"[0], b"l"[0], b"g"[0], b"u"[0]
_WORDS = {b"N"[0]: None, b"T"[0]: True, b"F"[0]: False}

_DIGIT = 15
"""Bits in a digit of a long integer."""


class Packed(NamedTuple):
    """What is read of one: the event object, its sequence number and its time in nanoseconds."""

    seq: int
    ts: int
    data: dict[str, Any]


def shape_of(ev: str, keys: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """The number of an event with these keys, and the order of their values. Raises CodecError.

    It is the event's number in the lowest byte, and above it a bit for each key, in the order of
    the event's row in `codec_keys`.
    """
    row = KEYS.get(ev)
    if row is None:
        raise CodecError(f"unknown event {ev!r}")
    for key in keys:
        if key not in row or keys.count(key) > 1:
            raise CodecError(f"{ev} has no key {key!r}, or has it twice")
    order = tuple(key for key in row if key in keys)
    return EVENTS[ev].code | sum(1 << (8 + row.index(key)) for key in order), order


def unpack(payload: bytes) -> Packed:
    """What a packed record holds. Raises CodecError, which names the byte."""
    reader = _Reader(payload)
    values = reader.value(0)
    if type(values) is not list or reader.at != len(payload):
        raise CodecError("no packed record", reader.at)
    if len(values) < 3 or not all(type(v) is int and v >= 0 for v in values[:2]):
        raise CodecError("a packed record without its head", 0)
    shape, seq, seconds = values[:3]
    if type(seconds) is not float or not 0 <= seconds < 1 << 62:
        raise CodecError("a packed record without its time", 0)
    keys = _keys_of(shape)
    if len(keys) != len(values) - 2:
        raise CodecError(f"{len(values) - 3} values for {len(keys) - 1} keys", 0)
    data: dict[str, Any] = {"ev": keys[0]}
    for key, value in zip(keys[1:], values[3:], strict=True):
        if value is not None:
            data[key] = value
    return Packed(seq, round(seconds * 1e9), data)


_HEAD = struct.Struct("<BiBiBiBd")
_PLAIN_HEAD = (_TUPLE, _INT, _INT, _FLOAT)


def head_of(payload: bytes) -> tuple[int, int, int]:
    """Event number, sequence number and time in nanoseconds of a packed record, whose values are
    not looked at. Raises CodecError."""
    if len(payload) >= _HEAD.size:
        outer, _, first, shape, second, seq, third, seconds = _HEAD.unpack_from(payload)
        if (outer, first, second, third) == _PLAIN_HEAD and seq >= 0 and 0 <= seconds < 1 << 62:
            return shape & 255, seq, round(seconds * 1e9)
    found = unpack(payload)
    return EVENTS[found.data["ev"]].code, found.seq, found.ts


_shapes: dict[int, tuple[str, ...]] = {}
_KEPT_SHAPES = 1024


def _keys_of(shape: int) -> tuple[str, ...]:
    """The event's name and its keys."""
    known = _shapes.get(shape)
    if known is not None:
        return known
    ev = NAMES_BY_CODE.get(shape & 255)
    if ev is None:
        raise CodecError(f"event number {shape & 255}, which is not known", 0)
    row, bits = KEYS[ev], shape >> 8
    if bits >> len(row):
        raise CodecError(f"{ev} with a key that is not known", 0)
    keys = (ev, *(key for n, key in enumerate(row) if bits >> n & 1))
    if len(_shapes) >= _KEPT_SHAPES:
        _shapes.clear()
    return _shapes.setdefault(shape, keys)


class _Reader:
    """Reads marshalled values: those that JSON has, tuples as lists."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        """The next value."""
        at, data = self.at, self.data
        if at >= len(data):
            raise CodecError("ends before a value", at)
        tag = data[at]
        self.at = at + 1
        if tag == _INT:
            return int.from_bytes(self._take(4), "little", signed=True)
        if tag == _TEXT:
            return self._text()
        if tag in _WORDS:
            return _WORDS[tag]
        if depth > MAX_DEPTH:
            raise CodecError("nested too deeply", at)
        if tag in (_LIST, _TUPLE):
            return self._list(depth + 1)
        if tag == _FLOAT:
            value = struct.unpack("<d", self._take(8))[0]
            if not math.isfinite(value):
                raise CodecError(f"{value} is not a JSON value", at)
            return value
        if tag == _LONG:
            return self._long()
        if tag == _DICT:
            return self._dict(depth + 1)
        raise CodecError(f"tag {tag:#x}, which stands for nothing", at)

    def _take(self, n: int) -> bytes:
        taken = self.data[self.at : self.at + n]
        if n < 0 or len(taken) != n:
            raise CodecError("ends in the middle of a value", self.at)
        self.at += n
        return taken

    def _count(self) -> int:
        """A count of things of a byte at least, all of which must be there."""
        n = int.from_bytes(self._take(4), "little", signed=True)
        if not 0 <= n <= len(self.data) - self.at:
            raise CodecError(f"{n} values in {len(self.data) - self.at} bytes", self.at)
        return n

    def _list(self, depth: int) -> list[Any]:
        n, at, data = self._count(), self.at, self.data
        # Lists of block ids are what there is most of: five bytes each, all of one tag.
        if n and data[at : at + 5 * n : 5] == b"i" * n and len(data) >= at + 5 * n:
            self.at = at + 5 * n
            stretch = data[at : self.at]
            lanes = bytearray(4 * n)
            for byte in range(4):
                lanes[byte::4] = stretch[byte + 1 :: 5]
            return list(struct.unpack(f"<{n}i", lanes))
        return [self.value(depth) for _ in range(n)]

    def _dict(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.data[self.at : self.at + 1] != b"0":
            at = self.at
            key = self.value(depth)
            if type(key) is not str or key in found:
                raise CodecError("no key, or one that was there", at)
            found[key] = self.value(depth)
        self.at += 1
        return found

    def _long(self) -> int:
        n = int.from_bytes(self._take(4), "little", signed=True)
        digits = self._take(2 * abs(n))
        value = 0
        for place, (digit,) in enumerate(struct.iter_unpack("<H", digits)):
            if digit >> _DIGIT:
                raise CodecError("no digit", self.at)
            value |= digit << _DIGIT * place
        return -value if n < 0 else value

    def _text(self) -> str:
        at = self.at
        try:
            return self._take(self._count()).decode()
        except UnicodeDecodeError as e:
            raise CodecError("not UTF-8", at + e.start) from e
