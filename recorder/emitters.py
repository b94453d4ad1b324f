"""Prepared emitters: one function for the events of one shape, with the ring's work written out.

A call of a method, a dictionary for each event and a look at the type of each value cost more than
all the rest of it. What is not plain (a full ring, a value that is not JSON, a thread that has no
ring yet) goes the long way, through `Recording.emit_dict`, where everything is counted.

`_ring.c` has the same in C, byte for byte, and is used where it was built.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from marshal import dumps
from struct import Struct
from time import monotonic
from typing import Any
from zlib import adler32

from hkvtool.model.codec_packed import MARSHAL_VERSION, shape_of
from hkvtool.model.ring_format import Kind, Word
from hkvtool.recorder.native import compiled

Emitter = Callable[..., bool]

_TEXT = """
def emit({parameters}):
    try:
        ring = mine.ring
        if ring._busy:
            return otherwise({event})
        ring._busy = True
    except AttributeError:
        return otherwise({event})
    try:
        seq = ring._seq
        data = dumps(({values}), {version})
        length = len(data)
        at = ring._at
        end = at + (length + 15 & -8)
        stored = end <= ring._limit
        if stored:
            begin = ring._head
            head = begin + end - at
            put(ring._records, at, adler32(data, begin), length | {kind})
            at += 8
            ring._records[at : at + length] = data
            ring._words[{head}] = head
            ring._head = head
            ring._at = end
            ring._seq = seq + 1
    except Exception:
        stored = False
    finally:
        ring._busy = ring._off
    return stored or otherwise({event})
"""
"""Between the store of the ring's new head and that of its new sequence number comes no call, and
so no signal handler."""


def make_emitter(
    mine: threading.local,
    otherwise: Callable[[Mapping[str, Any]], bool],
    ev: str,
    keys: Sequence[str],
    plain: bool = compiled is None,
) -> Emitter:
    """A function that takes the values of `keys`, by position or by name, and stores one event.

    Raises CodecError where the event has no such key. With `plain` it is Python; its text is made
    of the names in the table of events and of nothing else.
    """
    shape, order = shape_of(ev, keys)
    # `from` is a key and a word of Python.
    name = {key: f"{key}_" if key in ("from", "in", "is", "as", "or") else key for key in keys}
    if not plain:
        in_c: Emitter = compiled.make_emitter(
            mine, otherwise, dumps, ev, tuple(name.values()), tuple(keys), order, shape,
            Kind.PACKED << 24, MARSHAL_VERSION,
        )  # fmt: skip
        return in_c
    values = ", ".join([str(shape), "seq", "now()", *(name[key] for key in order)])
    event = ", ".join([repr(ev), *(f"{key!r}, {name[key]}" for key in order)])
    text = _TEXT.format(
        parameters=", ".join(name[key] for key in keys),
        values=values,
        event=f"of({event})",
        version=MARSHAL_VERSION,
        kind=Kind.PACKED << 24,
        head=int(Word.HEAD),
    )
    scope: dict[str, Any] = {
        "mine": mine, "otherwise": otherwise, "of": _event, "dumps": dumps, "now": monotonic,
        "put": Struct("=II").pack_into, "adler32": adler32,
    }  # fmt: skip
    exec(text, scope)
    made: Emitter = scope["emit"]
    made.__qualname__ = f"emit_{ev}"
    return made


def _event(ev: str, *pairs: Any) -> dict[str, Any]:
    """The event object; what is None is left out."""
    data = {"ev": ev}
    data.update(
        (key, value) for key, value in zip(pairs[::2], pairs[1::2], strict=True)
        if value is not None
    )  # fmt: skip
    return data
