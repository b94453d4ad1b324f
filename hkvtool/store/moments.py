"""The state of a trace at a moment: plain where it is short, else from the keyframe before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from hkvtool.state.fold import PLAIN_LIMIT, Fold

if TYPE_CHECKING:
    from hkvtool.state.compiled import CompiledFold
    from hkvtool.state.keyframes import Chunk, Keyframe
    from hkvtool.store.trace import Trace

_TOLD_EVERY = 4096

_AT_ONCE = 16
"""Chunks for each thread that are unpacked before they are put in place: two megabytes."""


def fold_at(
    trace: Trace,
    pos: int | None = None,
    told: Callable[[int], None] | None = None,
    room: CompiledFold | None = None,
) -> Fold:
    """The fold after every event up to `pos`, included; after all where it is left out.

    A trace below `PLAIN_LIMIT` events never waits for a compiler. `room` is an earlier fold of the
    same trace that nobody needs any more: what memory it has is used again.
    """
    if trace.count >= PLAIN_LIMIT:
        found = _compiled(trace, pos, room)
        if found is not None:
            return found
    fold = Fold()
    for count, event in enumerate(trace.events(until=pos)):
        fold.apply(event)
        if told and count % _TOLD_EVERY == 0:
            told(event.pos)
    return fold


def _compiled(trace: Trace, pos: int | None, room: CompiledFold | None) -> Fold | None:
    """None where the pools are too large to be laid out block by block."""
    from hkvtool.state.compiled import CompiledFold
    from hkvtool.state.keyframes import restored

    last = trace.meta.get("last_pos", 0) if pos is None else pos
    frame = trace.keyframe(last)
    if frame is None:
        fold = CompiledFold(trace, room)
        if not fold.fits:
            return None
        fold.advance(until=pos)
        return fold
    at, chunks = frame
    fold = restored(trace, at, chunks, room)
    if at < last:
        fold.advance(since=at + 1, until=pos)
    return fold


def keyframe_rows(trace: Trace) -> Iterator[Keyframe]:
    """Keyframes of a trace that is long enough to need them, and whose pools can be laid out."""
    from hkvtool.state.keyframes import EVERY, keyframes

    if trace.count > EVERY:
        yield from keyframes(trace, EVERY)


def unpacked_each(rows: Iterable[tuple[str, int, int, bytes]], count: int) -> Iterator[Chunk]:
    """Chunks from their rows: field, number, size, packed data. Only a few of them are unpacked at
    a time, so that they come to lie in the same memory again and again; by so many threads, which
    takes less time and half as much work again."""
    from hkvtool.state.keyframes import Chunk

    def one(row: tuple[str, int, int, bytes]) -> Chunk:
        field, number, size, data = row
        return Chunk(field, number, unpacked(data, size))

    rest = iter(rows)
    if count == 1:
        yield from map(one, rest)
        return
    with ThreadPoolExecutor(count) as pool:
        while some := list(islice(rest, _AT_ONCE * count)):
            yield from pool.map(one, some)


_STEPS = 16
"""Added to the byte in front where the integers are what each is more than the one before."""


def packed(values: Any) -> tuple[int, bytes]:
    """A chunk of 64-bit integers as it is stored, and its bytes before compression: in the fewest
    bytes that hold each of its integers, how many these are in front. Or their differences, where
    these take less: places and positions often count up."""
    import numpy as np

    size, found = _narrow(values)
    steps_size, steps = _narrow(np.diff(values, prepend=0))
    if steps_size <= size and len(steps) < len(found):
        return steps_size, bytes([steps[0] + _STEPS]) + steps[1:]
    return size, found


def _narrow(values: Any) -> tuple[int, bytes]:
    width = 8
    if len(values):
        low, high = int(values.min()), int(values.max())
        width = next(w for w in (1, 2, 4, 8) if -(1 << 8 * w - 1) <= low and high < 1 << 8 * w - 1)
    plain = values.astype(f"<i{width}").tobytes()
    return len(plain), bytes([width]) + bytes(_codec().compress(plain, asbytes=True))


def unpacked(data: bytes, size: int) -> Any:
    """The integers of a chunk."""
    import numpy as np

    # Earlier ones have no such byte: they begin as zstd does, with a larger one.
    kind, body = (data[0], memoryview(data)[1:]) if data[0] <= 24 else (8, memoryview(data))
    width = kind % _STEPS
    found = np.frombuffer(_codec().decompress(body, decompressed_size=size), f"<i{width}")
    return found if kind == width else np.cumsum(found, dtype=np.int64)


@cache
def _codec() -> Any:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)
