"""JSON values as bytes: a tag byte each, with small numbers and short strings inside it.

Written for speed in plain Python, because it is called where an engine allocates: what is done
block by block is done in C (`struct`, slices, arithmetic on long integers).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import lru_cache
from operator import index
from typing import Any

from hkvtool.model.jsonl import MAX_DEPTH

STR = 0x80
"""0x00 to 0x7f are the integer itself; 0x80 to 0xbf a string of so many bytes beyond this."""
NULL, FALSE, TRUE, FLOAT = 0xC0, 0xC1, 0xC2, 0xC3
INT, NEGATIVE = 0xC4, 0xCC
"""Eight tags each: the integer, or -1 minus it, in one to eight bytes, lowest first."""
LONG_STR = 0xD4
RUN = 0xD5
"""First integer and count of integers that go up by one."""
PAIR = 0xD6
"""Two integers, the second as what it has over the first."""
ONE = 0xD7
"""A list of one value."""
PLANES = 0xD8
"""Four tags: a list of integers of one to four bytes; all lowest bytes come first."""
WIDE, LIST, DICT, JSON = 0xDC, 0xDD, 0xDE, 0xDF
DELTAS = 0xE0
"""First integer and count, then for each that follows the difference plus 128 in a byte."""

SHORT = 0xE1
"""The last 31 tags, each with one byte more: integers from 128 on."""

RUN_LIMIT = 1024
"""Longest run: what few bytes can ask for must stay small."""

BYTE = tuple(bytes((n,)) for n in range(256))

SHORT_LIMIT = 128 + 256 * (256 - SHORT)
"""Integers from here on take a tag and all their bytes."""

SMALL = (*BYTE[:128], *(bytes((SHORT + (n >> 8), n & 255)) for n in range(SHORT_LIMIT - 128)))

_KEPT_STRINGS = 8192
_KEPT_LENGTH = 64
STRINGS: dict[str, bytes] = {}
"""Encoded strings: groups, pools and requests come again and again."""


class CodecError(ValueError):
    """Bytes that are no value, or a value that has no bytes; `offset` is where in the bytes."""

    def __init__(self, what: str, offset: int | None = None) -> None:
        super().__init__(what if offset is None else f"{what} at byte {offset}")
        self.offset = offset


def varint(n: int) -> bytes:
    """A count, seven bits a byte, lowest first."""
    if n < 128:
        return BYTE[n]
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def pack(v: Any, depth: int = 0) -> bytes:
    """Any JSON value."""
    t = type(v)
    if t is str:
        return STRINGS.get(v) or _pack_string(v)
    if t is int:
        return SMALL[v] if 0 <= v < SHORT_LIMIT else _pack_wide_int(v)
    if t is list:
        return pack_list(v, depth)
    if t is dict:
        return pack_dict(v, depth)
    if t is bool:
        return BYTE[TRUE if v else FALSE]
    if v is None:
        return BYTE[NULL]
    if t is float:
        if v - v != 0:
            raise CodecError(f"{v} is not a JSON value")
        return struct.pack("<Bd", FLOAT, v)
    return pack(_plain(v), depth)


def pack_ints(v: Any) -> bytes:
    """A list that should be one of integers; anything else comes back as it was, too."""
    if type(v) is not list:
        return pack(v)
    n = len(v)
    if n == 1:
        return BYTE[ONE] + pack(v[0])
    # Two of them stand for all: looking at the type of each costs as much as all the rest.
    if n and type(v[0]) is type(v[-1]) is int:
        try:
            return _pack_integers(v, n)
        except struct.error:
            pass
    return pack_list(v, 0)


def pack_tokens(v: Any) -> bytes:
    """A token range; anything else comes back as it was, too."""
    if type(v) is list and len(v) == 2:
        start, end = v
        if type(start) is type(end) is int and start <= end:
            return BYTE[PAIR] + pack(start) + pack(end - start)
    return pack(v)


def pack_list(v: list[Any], depth: int) -> bytes:
    """A list of anything."""
    if depth >= MAX_DEPTH:
        raise CodecError("a value nested too deeply")
    n = len(v)
    if n == 1:
        return BYTE[ONE] + pack(v[0], depth + 1)
    if n and set(map(type, v)) == _INTEGERS:
        try:
            return _pack_integers(v, n)
        except struct.error:
            pass
    return b"".join([BYTE[LIST], varint(n), *(pack(x, depth + 1) for x in v)])


def pack_dict(v: dict[Any, Any], depth: int = 0) -> bytes:
    """An object; its keys must be strings."""
    if depth >= MAX_DEPTH:
        raise CodecError("a value nested too deeply")
    parts = [BYTE[DICT], varint(len(v))]
    for key, value in v.items():
        if not isinstance(key, str):
            raise CodecError(f"an object with a key of type {type(key).__name__}")
        parts.append(pack(key))
        parts.append(pack(value, depth + 1))
    return b"".join(parts)


def pack_json(v: Any) -> bytes:
    """A value as JSON text, for what the other forms do not hold."""
    try:
        text = json.dumps(v, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise CodecError(f"no JSON value: {e}") from e
    return BYTE[JSON] + varint(len(text)) + text


_INTEGERS = {int}


def _pack_string(v: str) -> bytes:
    text = v.encode()
    n = len(text)
    packed = BYTE[STR + n] + text if n < 64 else BYTE[LONG_STR] + varint(n) + text
    if n <= _KEPT_LENGTH:
        if len(STRINGS) >= _KEPT_STRINGS:
            STRINGS.clear()
        STRINGS[v] = packed
    return packed


def _pack_wide_int(v: int) -> bytes:
    tag, rest = (INT, v) if v >= 0 else (NEGATIVE, -1 - v)
    width = (rest.bit_length() + 7) >> 3 or 1
    if width > 8:
        return pack_json(v)
    return BYTE[tag + width - 1] + rest.to_bytes(width, "little")


@lru_cache(512)
def _lanes(n: int) -> tuple[Callable[..., bytes], int, int, int, int, int, int, bytes]:
    """What is needed to work on `n` integers of four bytes, side by side in one long integer: how
    to put them there, masks (upper half, second byte, highest byte, all lanes but the last), the
    bias for differences, the mask of all but their lowest byte, and the count as bytes."""

    def each(lane: bytes, count: int = n) -> int:
        return int.from_bytes(lane * count, "little")

    return (
        struct.Struct(f"<{n}I").pack,
        each(b"\0\0\xff\xff"),
        each(b"\0\xff\0\0"),
        each(b"\0\0\0\xff"),
        each(b"\xff\xff\xff\xff", n - 1),
        each(b"\x80\0\0\x80", n - 1),
        each(b"\0\xff\xff\xff", n - 1),
        varint(n),
    )


@lru_cache(512)
def _no_difference(n: int) -> int:
    """What all but the lowest bytes of the lanes read where every difference fits in a byte."""
    return int.from_bytes(b"\0\0\0\x80" * (n - 1), "little")


def _pack_integers(v: list[int], n: int) -> bytes:
    """Integers, two or more. Raises struct.error where they are none, or wider than 64 bits."""
    first = v[0]
    if v[-1] - first == n - 1 < RUN_LIMIT and v == list(range(first, first + n)):
        return BYTE[RUN] + pack(first) + varint(n)
    into, upper, second, highest, but_last, bias, but_lowest, count = _lanes(n)
    try:
        data = into(*v)
    except struct.error:
        return BYTE[WIDE] + count + struct.pack(f"<{n}q", *v)
    every = int.from_bytes(data, "little")
    above = every & upper
    if not above and not every & second:
        return BYTE[PLANES] + count + data[0::4]
    if not above or not above & highest:
        # All differences at once: with the bias no lane borrows from the next, since the numbers
        # have three bytes at most, and a lane that reads x 0 0 128 is a difference of x - 128.
        steps = (every >> 32) + bias - (every & but_last)
        if steps & but_lowest == _no_difference(n):
            low = steps.to_bytes(4 * (n - 1), "little")[0::4]
            return BYTE[DELTAS] + pack(first) + count + low
    if not above:
        return BYTE[PLANES + 1] + count + data[0::4] + data[1::4]
    width = 4 if above & highest else 3
    planes = [data[i::4] for i in range(width)]
    return b"".join([BYTE[PLANES + width - 1], count, *planes])


def _plain(v: Any) -> Any:
    """The JSON value that stands for one of a subclass, or of a type of its own."""
    if isinstance(v, str):
        return str.__str__(v)
    if isinstance(v, float):
        return float(v)
    if isinstance(v, dict):
        return dict(v)
    if isinstance(v, (list, tuple)):
        return list(v)
    try:
        return int(index(v))
    except TypeError:
        raise CodecError(f"a value of type {type(v).__name__} is not JSON") from None
