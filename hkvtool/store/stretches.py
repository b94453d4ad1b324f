"""Which stretches of a long trace name a block, so that its life is read without all the rest.

The writer notes for each stretch of events the blocks that it names; a reader looks into those
stretches alone. What names a block by another name, the end of a transfer, is not noted here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hkvtool.state import codes
from hkvtool.store.columns import Chunk
from hkvtool.store.moments import packed, unpacked

ROWS = 1 << 15
"""Events of a stretch: read again in a few milliseconds."""

AT_ONCE = 32
"""Stretches that are told of in one row: a block of a long trace is then asked for in few rows."""

IDS = 1 << 14
"""Block ids that one row tells of."""

MOST = 1 << 24
"""Block ids from here on are not told of: reading everything finds them."""

FEWEST = 4
"""A trace of fewer stretches is read as a whole."""

_IN_TEXT = np.array([codes.LOOKUP, codes.RESUME, codes.REMAP])
"""Events whose blocks are in their text."""

_DIGITS = 8
"""Digits of the largest id that is told of."""


class Row(NamedTuple):
    """What some stretches name of some block ids, as it is stored."""

    first: int
    ends: list[int]
    chunk: int
    size: int
    data: bytes


class Named:
    """The blocks that the stretches of a trace name, noted as it is written."""

    def __init__(self) -> None:
        self._mask: Any = np.zeros(0, bool)
        self._rows = 0
        self._first = self._last = 0
        self._ends: list[int] = []
        self._ids: list[Any] = []
        self._stretches = 0

    def add(self, chunk: Chunk) -> Iterator[Row]:
        """Take in the next events; gives what is complete by now."""
        pos = chunk.ints["pos"]
        start = 0
        while start < chunk.n:
            end = min(chunk.n, start + ROWS - self._rows)
            if not self._rows and not self._ends:
                self._first = int(pos[start])
            self._last = int(pos[end - 1])
            for column in (chunk.list_column("blocks"), chunk.list_column("blocks2")):
                self._note(column.values[column.offsets[start] : column.offsets[end]])
            self._note(_told_in_text(chunk, start, end))
            self._rows += end - start
            start = end
            if self._rows == ROWS:
                self._cut()
            if len(self._ends) == AT_ONCE:
                yield from self._told()

    def rest(self) -> Iterator[Row]:
        """What is left at the end of the trace; nothing of a short one."""
        if self._rows:
            self._cut()
        if self._stretches >= FEWEST:
            yield from self._told()

    def _note(self, ids: Any) -> None:
        ids = ids[(ids >= 0) & (ids < MOST)]
        if not len(ids):
            return
        most = int(ids.max())
        if most >= len(self._mask):
            more = np.zeros(min(MOST, most * 5 // 4 + IDS) - len(self._mask), bool)
            self._mask = np.concatenate([self._mask, more])
        self._mask[ids] = True

    def _cut(self) -> None:
        """Here a stretch ends."""
        ids = np.flatnonzero(self._mask).astype(np.int32)
        self._mask[ids] = False
        self._ids.append(ids)
        self._ends.append(self._last)
        self._rows = 0
        self._stretches += 1

    def _told(self) -> Iterator[Row]:
        ends, found = self._ends, self._ids
        self._ends, self._ids = [], []
        if not ends:
            return
        numbers = np.repeat(np.arange(len(found)), [len(ids) for ids in found])
        keys = np.concatenate(found).astype(np.int64) * AT_ONCE + numbers
        keys.sort()
        first, self._first = self._first, self._last + 1
        parts = np.flatnonzero(np.diff(keys // (IDS * AT_ONCE), prepend=-1))
        for part in np.split(keys, parts[1:]) if len(keys) else ():
            chunk = int(part[0]) // (IDS * AT_ONCE)
            yield Row(first, ends, chunk, *packed(part - chunk * IDS * AT_ONCE))


def _told_in_text(chunk: Chunk, start: int, end: int) -> Any:
    """The numbers in the texts of events that name their blocks there: all of them, and others."""
    empty = np.zeros(0, np.int64)
    if chunk.rest is None:
        return empty
    rows = np.flatnonzero(np.isin(chunk.ints["ev"][start:end], _IN_TEXT)) + start
    texts = [text for row in rows.tolist() if (text := chunk.rest[row])]
    return numbers_in(texts) if texts else empty


def numbers_in(texts: Iterable[str]) -> Any:
    """Every number in some texts that is a block id which is told of, as its digits stand."""
    whole = np.frombuffer(f" {' '.join(texts)} ".encode("ascii", "replace"), np.uint8)
    digits = whole - np.uint8(48)
    edges = np.flatnonzero(np.diff((digits < 10).view(np.int8)))
    starts, ends = edges[0::2] + 1, edges[1::2] + 1
    short = ends - starts <= _DIGITS
    starts, lengths = starts[short], (ends - starts)[short]
    found = np.zeros(len(starts), np.int64)
    for place in range(int(lengths.max(initial=0))):
        there = place < lengths
        found[there] = found[there] * 10 + digits[starts[there] + place]
    return found


def spans_of(rows: Sequence[Row], block: int) -> list[tuple[int, int]]:
    """The stretches that name a block, neighbours as one: from the rows of its chunk, in order.
    Raises ValueError where they cannot be of a trace."""
    found: list[tuple[int, int]] = []
    local = block % IDS * AT_ONCE
    for row in rows:
        if not 0 <= row.size <= 8 * IDS * AT_ONCE:
            raise ValueError(f"{row.size:,} bytes in one row")
        keys = unpacked(row.data, row.size)
        low, high = np.searchsorted(keys, [local, local + AT_ONCE])
        for number in (keys[low:high] - local).tolist():
            if number >= len(row.ends):
                raise ValueError(f"stretch {number} of {len(row.ends)}")
            first = row.ends[number - 1] + 1 if number else row.first
            if found and found[-1][1] == first - 1:
                found[-1] = found[-1][0], row.ends[number]
            else:
                found.append((first, row.ends[number]))
    return found
