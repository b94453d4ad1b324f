"""Keyframes: the arrays of a compiled fold at some positions, as chunks that changed.

Any moment of a long trace is the keyframe before it and the events behind that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from hkvtool.state import arrays as a
from hkvtool.state.compiled import CompiledFold, Source

EVERY = 1 << 18
"""Events from one keyframe to the next: folded in well under a tenth of a second."""

CHUNK = 1 << 14
"""Integers a chunk."""


class Chunk(NamedTuple):
    """One stretch of one array, as it stood at a keyframe: little-endian 64-bit integers."""

    field: str
    number: int
    data: bytes


def keyframes(source: Source, positions: Iterable[int]) -> Iterator[tuple[int, list[Chunk]]]:
    """Fold a trace up to each position, ascending, and give the chunks that changed since the
    last. Positions inside a gap of the recording are passed over."""
    fold = CompiledFold(source)
    digests: dict[tuple[str, int], bytes] = {}
    since: int | None = None
    for pos in positions:
        fold.advance(since=since, until=pos)
        since = pos + 1
        if not fold.gaps:
            yield pos, list(_changed(fold, digests))


def _changed(fold: CompiledFold, digests: dict[tuple[str, int], bytes]) -> Iterator[Chunk]:
    for field, column in _columns(fold):
        for number in range((len(column) + CHUNK - 1) // CHUNK):
            data = column[number * CHUNK : (number + 1) * CHUNK].tobytes()
            digest = hashlib.blake2b(data, digest_size=12).digest()
            if digests.get((field, number)) != digest:
                digests[field, number] = digest
                yield Chunk(field, number, data)


def _columns(fold: CompiledFold) -> Iterator[tuple[str, Any]]:
    """The arrays, as far as they are in use."""
    used = {"entry": int(fold.st.h[a.ENTRIES]), "arena": int(fold.st.h[a.ARENA])}
    for field, extent in a.EXTENTS.items():
        column = getattr(fold.st, field)
        yield field, column[: used.get(extent.per, len(column))]


def restored(source: Source, pos: int, chunks: Iterable[Chunk]) -> CompiledFold:
    """The fold as it stood at a keyframe: what was declared up to `pos`, and the chunks."""
    fold = CompiledFold(source)
    for event in source.events(until=pos, kinds={"pool", "group", "kernel", "limits", "remap",
                                                 "rebase"}):  # fmt: skip
        if event.problem is None:
            fold.apply(event)
    chunks = list(chunks)
    for per in ("entry", "arena"):
        last = max((c.number for c in chunks if a.EXTENTS[c.field].per == per), default=-1)
        fold.make_room(per, (last + 1) * CHUNK)
    for chunk in chunks:
        column = getattr(fold.st, chunk.field)
        values = np.frombuffer(chunk.data, np.int64)
        column[chunk.number * CHUNK : chunk.number * CHUNK + len(values)] = values
    return fold
