"""An event as bytes and back: the records of rings and segments.

A record stands for itself, since the one before it may be lost: nothing is said once and meant
later. It is the number of the event, one bit for each key it has, and the values in the order of
the bits (`codec_keys`, `codec_values`). What the table of events does not foresee (an unknown
event or key, a value of another type) is kept by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from hkvtool.model.codec_keys import CODEC_VERSION, EXTRAS, KEYS, NAMES_BY_CODE
from hkvtool.model.codec_reading import RUNS_LIMIT, Reader
from hkvtool.model.codec_values import (
    BYTE,
    RUN,
    SHORT_LIMIT,
    SMALL,
    STRINGS,
    CodecError,
    pack,
    pack_dict,
    pack_ints,
    pack_json,
    pack_tokens,
    varint,
)  # fmt: skip
from hkvtool.model.events import EVENTS

__all__ = ["CODEC_VERSION", "CodecError", "decode", "encode", "refuse_newer"]

Encoder = Callable[[Mapping[str, Any]], bytes]

BY_NAME = 0
"""The number of an event that is written as an object, `ev` included."""

_KEPT_SHAPES = 1024

_shapes: dict[Any, dict[tuple[str, ...], Encoder]] = {}
"""By event and its keys in the order they come in: what encodes just that."""

_keys_by_bits: dict[tuple[int, int], tuple[str, ...]] = {}


def encode(data: Mapping[str, Any]) -> bytes:
    """The bytes of an event object. Raises CodecError where it is no JSON."""
    try:
        out = _shapes[data["ev"]][tuple(data)](data)
    except (KeyError, TypeError):
        out = _encode_anything(data)
    except UnicodeEncodeError as e:
        raise CodecError(_SURROGATE) from e
    if len(out) > _SURELY_WITHIN and out.count(BYTE[RUN]) > RUNS_LIMIT:
        return BYTE[BY_NAME] + pack_json(dict(data))
    return out


def decode(payload: bytes) -> dict[str, Any]:
    """The event object of a record. Raises CodecError, which names the byte."""
    if not payload:
        raise CodecError("an empty record", 0)
    reader = Reader(payload, 1)
    if payload[0] == BY_NAME:
        data = reader.object()
    else:
        data = _decode_row(payload[0], reader)
    if reader.at != len(payload):
        raise CodecError(f"{len(payload) - reader.at} bytes too many", reader.at)
    return data


def refuse_newer(version: int) -> None:
    """Raise CodecError where a recording is in a later byte form than this code knows."""
    if version > CODEC_VERSION:
        raise CodecError(
            f"byte form {version}, written by a newer hkvtool; this one reads up to "
            f"{CODEC_VERSION}: upgrade it"
        )


_SURELY_WITHIN = 3 * RUNS_LIMIT
"""A run takes three bytes at least, so that what is shorter cannot have too many."""

_SURROGATE = "half a surrogate pair, which no encoding can hold"


def _encode_anything(data: Mapping[str, Any]) -> bytes:
    """Any event, known or not; the next of the same shape is encoded quickly."""
    try:
        ev = data.get("ev")
        row = KEYS.get(ev) if type(ev) is str else None
        if ev is None or row is None:
            return BYTE[BY_NAME] + pack_dict(dict(data))
        keys = tuple(key for key in row if key in data)
        extras = {key: value for key, value in data.items() if key != "ev" and key not in row}
        bits = sum(1 << (1 + row.index(key)) for key in keys) | bool(extras) << EXTRAS
        head = BYTE[EVENTS[ev].code] + varint(bits)
        make = _encoder(ev, head, keys)
        try:
            out = make(data)
        except TypeError:
            # A list, say, where a name should be.
            return b"".join([head, *(pack(data[key]) for key in keys), _extras(extras)])
        # Unknown keys are anything; the others and their orders are few in any one program.
        known = _shapes.setdefault(ev, {})
        if not extras and len(known) < _KEPT_SHAPES:
            known[tuple(data)] = make
        return out + _extras(extras)
    except UnicodeEncodeError as e:
        raise CodecError(_SURROGATE) from e


def _extras(extras: dict[str, Any]) -> bytes:
    return pack_dict(extras) if extras else b""


_SCALAR = "(SMALL[v] if type(v := data[{0!r}]) is int and 0 <= v < SHORT_LIMIT else pack(v))"
_NAME = "(known(v := data[{0!r}]) or pack(v))"
_BY_TYPE = {
    "integer": _SCALAR,
    "count": _SCALAR,
    "name": _NAME,
    "string": _NAME,
    "list of integers": "pack_ints(data[{0!r}])",
    "token range": "pack_tokens(data[{0!r}])",
}
_IN_SCOPE = {
    "SHORT_LIMIT": SHORT_LIMIT, "SMALL": SMALL, "known": STRINGS.get, "pack": pack,
    "pack_ints": pack_ints, "pack_tokens": pack_tokens, "type": type, "int": int,
}  # fmt: skip


@lru_cache(_KEPT_SHAPES)
def _encoder(ev: str, head: bytes, keys: tuple[str, ...]) -> Encoder:
    """A function for the events of one shape, written out: a loop takes twice as long.

    Its text is made of the names in the table of events and of nothing else.
    """
    types = {name: key.type.name for name, key in EVENTS[ev].keys.items()}
    values = [_BY_TYPE.get(types.get(key, ""), "pack(data[{0!r}])").format(key) for key in keys]
    text = f"lambda data: {' + '.join(['head', *values])}"
    if len(keys) > 3:
        text = f"lambda data: join(({', '.join(['head', *values])},))"
    made: Encoder = eval(text, {"__builtins__": {}, "head": head, "join": b"".join, **_IN_SCOPE})
    return made


def _decode_row(code: int, reader: Reader) -> dict[str, Any]:
    ev = NAMES_BY_CODE.get(code)
    if ev is None:
        raise CodecError(f"event number {code}, which is not known", 0)
    bits = reader.count()
    keys = _keys_by_bits.get((code, bits))
    if keys is None:
        keys = _keys_of(ev, bits)
        if len(_keys_by_bits) >= _KEPT_SHAPES:
            _keys_by_bits.clear()
        _keys_by_bits[code, bits] = keys
    data: dict[str, Any] = {"ev": ev}
    for key in keys:
        data[key] = reader.value()
    if bits >> EXTRAS & 1:
        at = reader.at
        extras = reader.object()
        if not data.keys().isdisjoint(extras):
            raise CodecError("a key that was there", at)
        data.update(extras)
    return data


def _keys_of(ev: str, bits: int) -> tuple[str, ...]:
    row = KEYS[ev]
    if bits >> (len(row) + 1):
        raise CodecError(f"{ev} with a key that is not known", 1)
    return tuple(key for n, key in enumerate(row, 1) if bits >> n & 1)
