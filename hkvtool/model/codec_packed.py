"""Events of one shape as CPython's own serializer writes their values: the fastest way to bytes.

A prepared emitter (`Recording.emitter`) hands `marshal.dumps` one flat tuple: the number of the
shape, the sequence number, the time in seconds, and the values in the order of the shape's keys;
a value of None is left out. It is read here and not by `marshal.loads`, which may crash on what is
damaged. Version 2 of that format has never changed and has no references between values.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from hkvtool.model.codec_keys import KEYS, NAMES_BY_CODE
from hkvtool.model.codec_values import CodecError
from hkvtool.model.events import EVENTS
from hkvtool.model.jsonl import MAX_DEPTH

MARSHAL_VERSION = 2

_TUPLE, _LIST, _DICT, _END = b"("[0], b"["[0], b"{"[0], b"0"[0]
_INT, _LONG, _FLOAT, _TEXT = b"i"[0], b"l"[0], b"g"[0], b"u"[0]
_WORDS = {b"N"[0]: None, b"T"[0]: True, b"F"[0]: False}

_SEQUENCES = (_LIST, _TUPLE)
_NUMBER, _DOUBLE = struct.Struct("<i"), struct.Struct("<d")
_NONE = b"N"[0]

_MOST_INTS = 4096
"""Integers that are read together."""

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
    values = _flat(payload)
    if len(values) < 3:
        raise CodecError("a packed record without its head", 0)
    shape, seq, seconds = values[:3]
    if type(shape) is not int or type(seq) is not int or shape < 0 or seq < 0:
        raise CodecError("a packed record without its number", 0)
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


def _flat(payload: bytes) -> list[Any]:
    """The values of the outermost tuple. What there is most of is read here, the rest by a reader
    that takes a call for each value."""
    if payload[:1] != b"(" or len(payload) < 5:
        raise CodecError("no packed record", 0)
    count, at, size = int.from_bytes(payload[1:5], "little"), 5, len(payload)
    if count > size:
        raise CodecError(f"{count} values in {size} bytes", 1)
    values: list[Any] = []
    add, number_at, double_at = values.append, _NUMBER.unpack_from, _DOUBLE.unpack_from
    for _ in range(count):
        body = at + 5
        tag = payload[at] if body <= size else 0
        if tag == _INT:
            add(number_at(payload, at + 1)[0])
            at = body
            continue
        if tag == _TEXT:
            end = body + number_at(payload, at + 1)[0]
            if body <= end <= size:
                try:
                    add(payload[body:end].decode())
                except UnicodeDecodeError as e:
                    raise CodecError("not UTF-8", body + e.start) from e
                at = end
                continue
        elif tag == _NONE:
            add(None)
            at += 1
            continue
        elif tag == _FLOAT and at + 9 <= size:
            value = double_at(payload, at + 1)[0]
            if math.isfinite(value):
                add(value)
                at += 9
                continue
        elif tag in _SEQUENCES:
            length = number_at(payload, at + 1)[0]
            end = body + 5 * length
            if 0 < length <= _MOST_INTS and end <= size:
                tags, unpacked = _ints(length)
                if payload[body:end:5] == tags:
                    add(list(unpacked(payload[body:end])))
                    at = end
                    continue
        reader = _Reader(payload, at)
        add(reader.value(1))
        at = reader.at
    if at != size:
        raise CodecError(f"{size - at} bytes too many", at)
    return values


@lru_cache(512)
def _ints(count: int) -> tuple[bytes, Callable[[bytes], tuple[int, ...]]]:
    """The tags of so many integers, and what reads them together with those."""
    return b"i" * count, struct.Struct("<" + "xi" * count).unpack


class _Reader:
    """Reads marshalled values: those that JSON has, tuples as lists."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

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
        end = at + 5 * n
        if n <= _MOST_INTS and end <= len(data):
            tags, unpacked = _ints(n)
            if data[at:end:5] == tags:
                self.at = end
                return list(unpacked(data[at:end]))
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
