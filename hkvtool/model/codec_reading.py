"""Values back out of bytes, whatever the bytes: a value or a CodecError, in bounded memory."""

from __future__ import annotations

import json
import math
import struct
from itertools import accumulate
from typing import Any

from hkvtool.model.codec_values import (
    DELTAS,
    DICT,
    FALSE,
    FLOAT,
    INT,
    JSON,
    LIST,
    LONG_STR,
    NEGATIVE,
    NULL,
    ONE,
    PAIR,
    PLANES,
    RUN,
    RUN_LIMIT,
    SHORT,
    STR,
    TRUE,
    WIDE,
    CodecError,
)  # fmt: skip
from hkvtool.model.jsonl import MAX_DEPTH

RUNS_LIMIT = 1024
"""Runs in one record; the encoder writes what has more of them in another form."""


class Reader:
    """Reads one value after the other from `data`, starting at `at`."""

    __slots__ = ("at", "data", "runs")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.runs = 0

    def value(self, depth: int = 0) -> Any:
        """The next value."""
        at = self.at
        if at >= len(self.data):
            raise CodecError("ends before a value", at)
        tag = self.data[at]
        self.at = at + 1
        if tag < STR:
            return tag
        if tag < NULL:
            return self._text(tag - STR)
        if tag >= SHORT:
            return 128 + ((tag - SHORT) << 8 | self._take(1)[0])
        if INT <= tag < NEGATIVE:
            return int.from_bytes(self._take(tag - INT + 1), "little")
        if PLANES <= tag < WIDE:
            return self._planes(tag - PLANES + 1)
        if tag == ONE:
            return [self.value(self._deeper(depth))]
        if tag == PAIR:
            start = self._integer()
            return [start, start + self._integer()]
        if tag == RUN:
            return self._run(at)
        if tag == DELTAS:
            return self._deltas()
        if NEGATIVE <= tag < LONG_STR:
            return -1 - int.from_bytes(self._take(tag - NEGATIVE + 1), "little")
        if tag == DICT:
            return self._dict(depth)
        if tag == LIST:
            deeper = self._deeper(depth)
            return [self.value(deeper) for _ in range(self._count(1))]
        return self._rarer(tag, at)

    def count(self) -> int:
        """A count of at most 63 bits."""
        data, n, shift = self.data, 0, 0
        for at in range(self.at, min(len(data), self.at + 9)):
            byte = data[at]
            n |= (byte & 127) << shift
            if byte < 128:
                self.at = at + 1
                return n
            shift += 7
        raise CodecError("a count that does not end", self.at)

    def object(self) -> dict[str, Any]:
        """A value that must be an object."""
        at = self.at
        value = self.value()
        if not isinstance(value, dict):
            raise CodecError("no object", at)
        return value

    def _take(self, n: int) -> bytes:
        at = self.at
        taken = self.data[at : at + n]
        if len(taken) != n:
            raise CodecError("ends in the middle of a value", at)
        self.at = at + n
        return taken

    def _count(self, size: int) -> int:
        """A count of things of at least `size` bytes, all of which must be there."""
        at = self.at
        n = self.count()
        if n * size > len(self.data) - self.at:
            raise CodecError(f"{n} values in {len(self.data) - self.at} bytes", at)
        return n

    def _text(self, n: int) -> str:
        at = self.at
        try:
            return self._take(n).decode()
        except UnicodeDecodeError as e:
            raise CodecError("not UTF-8", at + e.start) from e

    def _integer(self) -> int:
        at = self.at
        value = self.value(MAX_DEPTH)
        if type(value) is not int:
            raise CodecError("no integer", at)
        return value

    def _deeper(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise CodecError("nested too deeply", self.at)
        return depth + 1

    def _run(self, at: int) -> list[int]:
        first, n = self._integer(), self.count()
        self.runs += 1
        if n > RUN_LIMIT or self.runs > RUNS_LIMIT:
            raise CodecError(f"a run of {n}, number {self.runs}", at)
        return list(range(first, first + n))

    def _deltas(self) -> list[int]:
        first, at = self._integer(), self.at
        n = self.count()
        if n == 0:
            raise CodecError("differences of nothing", at)
        return list(accumulate((byte - 128 for byte in self._take(n - 1)), initial=first))

    def _planes(self, width: int) -> list[int]:
        n = self._count(width)
        lanes = bytearray(4 * n)
        for plane in range(width):
            lanes[plane::4] = self._take(n)
        return list(struct.unpack(f"<{n}I", lanes))

    def _dict(self, depth: int) -> dict[str, Any]:
        deeper = self._deeper(depth)
        found: dict[str, Any] = {}
        for _ in range(self._count(2)):
            at = self.at
            key = self.value(deeper)
            if type(key) is not str or key in found:
                raise CodecError("no key, or one that was there", at)
            found[key] = self.value(deeper)
        return found

    def _rarer(self, tag: int, at: int) -> Any:
        if tag == NULL:
            return None
        if tag in (FALSE, TRUE):
            return tag == TRUE
        if tag == FLOAT:
            value = struct.unpack("<d", self._take(8))[0]
            if not math.isfinite(value):
                raise CodecError(f"{value} is not a JSON value", at)
            return value
        if tag == LONG_STR:
            return self._text(self._count(1))
        if tag == WIDE:
            n = self._count(8)
            return list(struct.unpack(f"<{n}q", self._take(8 * n)))
        if tag == JSON:
            return self._json(at)
        raise CodecError(f"tag {tag:#x}, which stands for nothing", at)

    def _json(self, at: int) -> Any:
        text = self._text(self._count(1))
        try:
            return json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError) as e:
            raise CodecError("not JSON", at) from e


def _no_constant(name: str) -> Any:
    raise ValueError(name)
