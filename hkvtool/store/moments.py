"""The state of a trace at a moment: plain where it is short, else from the keyframe before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from hkvtool.state.fold import PLAIN_LIMIT, Fold

if TYPE_CHECKING:
    from hkvtool.state.keyframes import Chunk, Keyframe
    from hkvtool.store.trace import Trace

_TOLD_EVERY = 4096


def fold_at(
    trace: Trace, pos: int | None = None, told: Callable[[int], None] | None = None
) -> Fold:
    """The fold after every event up to `pos`, included; after all where it is left out.

    A trace below `PLAIN_LIMIT` events never waits for a compiler.
    """
    if trace.count >= PLAIN_LIMIT:
        found = _compiled(trace, pos)
        if found is not None:
            return found
    fold = Fold()
    for count, event in enumerate(trace.events(until=pos)):
        fold.apply(event)
        if told and count % _TOLD_EVERY == 0:
            told(event.pos)
    return fold


def _compiled(trace: Trace, pos: int | None) -> Fold | None:
    """None where the pools are too large to be laid out block by block."""
    from hkvtool.state.compiled import CompiledFold
    from hkvtool.state.keyframes import restored

    last = trace.meta.get("last_pos", 0) if pos is None else pos
    frame = trace.keyframe(last)
    if frame is None:
        fold = CompiledFold(trace)
        if not fold.fits:
            return None
        fold.advance(until=pos)
        return fold
    at, chunks = frame
    fold = restored(trace, at, chunks)
    if at < last:
        fold.advance(since=at + 1, until=pos)
    return fold


def keyframe_rows(trace: Trace) -> Iterator[Keyframe]:
    """Keyframes of a trace that is long enough to need them, and whose pools can be laid out."""
    from hkvtool.state.keyframes import EVERY, keyframes

    if trace.count > EVERY:
        yield from keyframes(trace, EVERY)


def unpacked_all(rows: Sequence[tuple[str, int, int, bytes]]) -> list[Chunk]:
    """Chunks from their rows: field, number, size, packed data."""
    from hkvtool.state.keyframes import Chunk
    from hkvtool.store.connect import threads

    def some(first: int) -> list[Chunk]:
        mine = rows[first::count]
        return [Chunk(field, number, unpacked(data, size)) for field, number, size, data in mine]

    count = threads()
    with ThreadPoolExecutor(count) as pool:
        return [chunk for chunks in pool.map(some, range(count)) for chunk in chunks]


def packed(data: bytes) -> bytes:
    """A chunk as it is stored."""
    return _codec().compress(data, asbytes=True)  # type: ignore[no-any-return]


def unpacked(data: bytes, size: int) -> bytes:
    """A chunk as it was, of `size` bytes."""
    return _codec().decompress(data, decompressed_size=size, asbytes=True)  # type: ignore[no-any-return]


def _codec() -> Any:
    import pyarrow as pa

    return pa.Codec("zstd", compression_level=1)
