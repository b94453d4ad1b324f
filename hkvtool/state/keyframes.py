"""Keyframes: the arrays of a compiled fold at some positions, as chunks that changed.

Any moment of a long trace is the keyframe before it and the events behind that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hkvtool.model.errors import TraceError
from hkvtool.state import arrays as a
from hkvtool.state import overview as o
from hkvtool.state.compiled import MAX_BYTES, CompiledFold, Source
from hkvtool.state.soundness import unsound

EVERY = 1 << 16
"""Folded events from one keyframe to the next, about: folded again in a few hundredths of a
second."""

CHUNK = 1 << 14
"""Integers a chunk."""

WHOLE_EVERY = 16
"""Keyframes from one that holds everything to the next."""

_BATCH = 1 << 16

DECLARING = frozenset({"pool", "group", "kernel", "limits", "remap", "rebase"})
"""Control events that the keyframe does not stand for: they are folded again."""

_DECLARED = frozenset(
    [f for f, e in a.EXTENTS.items() if e.per in ("group", "group_pool", "pool_component")]
    + ["base", "size", "tier", "slot_pool"]
)
"""Arrays that hold what was declared, and nothing else."""

_DECLARED_SIZES = [a.COMPONENTS, a.TABLES, a.MAPPED, a.USED]

_USED = {"entry": a.ENTRIES, "arena": a.ARENA}
"""Arrays of which only the beginning is in use, and where the header says how much."""

_HARDLY_TOUCHED = ("own_head", "first_of_hash")
"""Arrays by what a trace names, of which few places hold anything."""

_MOST = MAX_BYTES // 64
"""Hash entries, and integers of the arena, that a keyframe can hold."""

GAPS = "gaps"
"""Stands for an array: the positions of the `dropped` events whose lane was not seen again."""

SEEN = {
    "seen_group": (-1, "i2"), "seen_by": (-1, "i2"), "seen_form": (o.ON_DISK, "u1"),
    "seen_code": (0, "u1"), "seen_flags": (0, "u1"), "seen_owner": (-1, "i4"),
    "seen_written": (-1, ""),
}  # fmt: skip
"""Stand for arrays as well: what every slot's block is, as `Overview` has it, so that the map of a
moment needs no state of blocks that nothing has named since. With the value of a block that
nobody has named, and the type; positions have theirs from the trace."""


class Chunk(NamedTuple):
    """One stretch of one array, as it stood at a keyframe."""

    field: str
    number: int
    values: Any


class Keyframe(NamedTuple):
    """What changed since the keyframe before, or everything; empty stretches are left out."""

    pos: int
    whole: bool
    chunks: list[Chunk]


def keyframes(source: Source, every: int = EVERY) -> Iterator[Keyframe]:
    """Fold a trace and stop every so many events; nothing where it cannot be laid out."""
    fold = CompiledFold(source)
    if not fold.fits:
        return
    digests: dict[tuple[str, int], int] = {}
    events = frames = 0
    for batch in fold.advancing(size=min(every, _BATCH)):
        events += batch.n
        if events < every:
            continue
        whole = frames % WHOLE_EVERY == 0
        if whole:
            digests = {}
        yield Keyframe(int(batch.pos[-1]), whole, list(_changed(fold, digests)))
        events, frames = 0, frames + 1


def _changed(fold: CompiledFold, digests: dict[tuple[str, int], int]) -> Iterator[Chunk]:
    for field, column in _columns(fold):
        # One at least: that nothing is left of something is a change too.
        for number in range(max(1, (len(column) + CHUNK - 1) // CHUNK)):
            values = column[number * CHUNK : (number + 1) * CHUNK]
            # Fast, of 64 bits, and compared within this process only.
            digest = hash(values.tobytes())
            if digests.get((field, number), _empty(field, CHUNK, values.dtype)) != digest:
                digests[field, number] = digest
                yield Chunk(field, number, values.astype(np.int64))


@cache
def _empty(field: str, size: int, kind: Any) -> int | None:
    """The digest of a full chunk that nobody has touched."""
    if field == GAPS:
        return None
    empty = SEEN[field][0] if field in SEEN else a.EXTENTS[field].empty
    return hash(np.full(size, empty, kind).tobytes())


def _columns(fold: CompiledFold) -> Iterator[tuple[str, Any]]:
    """The arrays, as far as they are in use."""
    used = {per: int(fold.st.h[place]) for per, place in _USED.items()}
    for field, extent in a.EXTENTS.items():
        if field not in _DECLARED:
            column = getattr(fold.st, field)
            yield field, column[: used.get(extent.per, len(column))]
    yield from _seen(fold).items()
    yield GAPS, np.array([event.pos for event in fold.gaps.values()], np.int64)


def _seen(fold: CompiledFold) -> dict[str, Any]:
    """What every slot's block is."""
    columns = nobody_seen(len(fold.block_of), fold.st.wpos.dtype)
    for pool in fold.declared.pools.values():
        blocks = o.blocks_of(pool)
        found = o.overview(fold, pool, blocks)
        slots = blocks + int(fold.st.base[pool.id])
        for column, seen in zip(columns.values(), found[1:], strict=True):
            column[slots] = seen
    return columns


def nobody_seen(slots: int, position: Any) -> dict[str, Any]:
    """The arrays of `SEEN` where no block was named."""
    return {f: np.full(slots, e, kind or position) for f, (e, kind) in SEEN.items()}


def nonsense(columns: Mapping[str, Any]) -> str | None:
    """What arrays of `SEEN` hold that means nothing, or None."""
    most = {"seen_form": o.ON_DISK, "seen_code": len(o.CODES) - 1}
    for field, limit in most.items():
        if len(columns[field]) and columns[field].max() > limit:
            return f"{field} means nothing"
    return None


def restored(
    source: Source, pos: int, chunks: Iterable[Chunk], room: CompiledFold | None = None
) -> CompiledFold:
    """The fold as it stood at a keyframe: what was declared up to `pos`, and the chunks, the header
    before the others. `room` is as `fold_at` has it.

    Raises TraceError where the chunks cannot be of this trace.
    """
    fold = CompiledFold(source, room)
    declared = [e for e in source.control if e.pos <= pos]
    for event in declared:
        if event.ev in DECLARING:
            fold.apply(event)
    header = fold.st.h.copy()
    told: dict[str, list[Any]] = {field: [] for field in _HARDLY_TOUCHED}
    for chunk in chunks:
        if chunk.field in SEEN:
            continue
        known = chunk.field == GAPS or (chunk.field in a.EXTENTS and chunk.field not in _DECLARED)
        if not known:
            raise altered(source.path, f"chunk {chunk.number} of {chunk.field}")
        values = chunk.values
        if chunk.field == GAPS:
            lost = set(values.tolist())
            fold.gaps = {e.actor: e for e in declared if e.pos in lost and e.ev == "dropped"}
            continue
        first, column = chunk.number * CHUNK, getattr(fold.st, chunk.field)
        place = _USED.get(a.EXTENTS[chunk.field].per)
        if place is not None and first >= fold.st.h[place]:
            # Of an earlier keyframe, when more was in use.
            continue
        if not 0 <= first <= len(column) - len(values):
            raise altered(source.path, f"chunk {chunk.number} of {chunk.field}")
        kind = column.dtype
        if values.dtype.itemsize > kind.itemsize and len(values):
            limits = np.iinfo(kind)
            if not (limits.min <= values.min() and values.max() <= limits.max):
                raise altered(source.path, f"chunk {chunk.number} of {chunk.field}")
        column[first : first + len(values)] = values
        if chunk.field in told:
            told[chunk.field].append(column[first : first + len(values)])
        if chunk.field == "h":
            fold.st.h[_DECLARED_SIZES] = header[_DECLARED_SIZES]
            for per, place in _USED.items():
                if not 0 <= fold.st.h[place] <= _MOST:
                    raise altered(source.path, f"{fold.st.h[place]} places of {per} in use")
                fold.make_room(per, int(fold.st.h[place]) + CHUNK)
    empty = np.zeros(0, np.int64)
    wrong = unsound(fold.st, {f: np.concatenate([*v, empty]) for f, v in told.items()})
    if wrong:
        raise altered(source.path, wrong)
    return fold


def altered(path: str, what: str) -> TraceError:
    """The error of a keyframe that cannot be of its trace."""
    return TraceError(
        f"{path}: a keyframe makes no sense: {what}",
        hint="the file was altered; import or ingest it again",
    )
