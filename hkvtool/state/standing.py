"""The state at a keyframe, read block by block as it is asked for.

A pool of a million blocks has a hundred megabytes of state, of which a moment shortly behind the
keyframe differs in what a few thousand blocks hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from hkvtool.model.errors import TraceError
from hkvtool.state import arrays as a
from hkvtool.state import keyframes as k
from hkvtool.state.keyframes import Chunk
from hkvtool.state.overview import Overview

Read = Callable[[Sequence[str], Sequence[int] | None], Iterable[Chunk]]
"""Chunks of some arrays, of these numbers where there are some."""

_REBUILT = frozenset(["first_entry", "free_prev", "free_next", "own_prev", "own_next", "slot_pool"])
"""Slot arrays that tell of neighbours: of some blocks they are made anew."""

SLOT = [f for f, e in a.EXTENTS.items() if e.per == "slot" and f not in _REBUILT]
COMPONENT = [f for f, e in a.EXTENTS.items() if e.per == "component"]
ENTRY = ["e_hash", "e_slot", "e_table", "e_gen", "e_hi", "e_epoch", "e_pos"]
_LINKED = [*ENTRY, "e_live", "e_next_slot"]
SMALL = [
    f for f, e in a.EXTENTS.items()
    if e.per in ("steps", "handle", "arena", "req_table") or f == "h"
]  # fmt: skip
"""Arrays that are no longer for more blocks."""


class Layout:
    """Where the blocks of each pool lie in the arrays of a whole fold."""

    def __init__(self, caps: dict[str, int], width: int, kinds: dict[str, Any]) -> None:
        self.caps = np.array(list(caps.values()), np.int64)
        self.bases = np.cumsum(self.caps) - self.caps
        self.width, self.kinds = width, kinds

    @property
    def pools(self) -> int:
        return max(1, len(self.caps))

    @property
    def slots(self) -> int:
        return int(self.caps.sum())

    @property
    def ids(self) -> int:
        """Block ids that any pool can have."""
        return int(self.caps.max(initial=0))

    def blocks(self, slots: Any) -> Any:
        """The block ids of slots."""
        pool = np.searchsorted(self.bases, slots, side="right") - 1
        return slots - self.bases[pool]


class Standing:
    """The state after a position: what was read of it so far.

    Row ``j * pools + p`` of a slot's `columns` is block ``ids[j]`` of pool p; row 0 is nobody's.
    `entries` are the live hashes that lead to these blocks.
    """

    def __init__(self, path: str, pos: int, read: Read | None = None) -> None:
        self.path, self.pos, self._read = path, pos, read
        self.ids = np.zeros(0, np.int64)
        self.columns: dict[str, Any] = {}
        self.entries: dict[str, Any] = {}
        self.looked: dict[int, Overview] = {}
        """What every block of a pool was when it was last looked at. It is not changed again."""
        self._layout: Layout | None = None
        self._small: list[Chunk] | None = None
        self._seen: Overview | None = None

    @property
    def gaps(self) -> bool:
        """Whether something was lost whose end is still open."""
        return any(c.field == k.GAPS and len(c.values) for c in self.small())

    @property
    def count(self) -> int:
        """Blocks that were read."""
        return len(self.ids)

    def lay_out(self, layout: Layout) -> None:
        """From here on blocks can be read."""
        if self._layout is not None:
            return
        self._layout = layout
        self.ids = np.full(1, -1, np.int64)
        for field in (*SLOT, *COMPONENT):
            rows = layout.pools * (layout.width if field in COMPONENT else 1)
            self.columns[field] = np.full(rows, a.EXTENTS[field].empty, layout.kinds[field])
        self.entries = {field: np.zeros(0, layout.kinds[field]) for field in ENTRY}
        self.entries["e"] = np.zeros(0, np.int64)

    def small(self) -> list[Chunk]:
        """What does not hang on the number of blocks, the header first."""
        if self._small is None:
            found = [] if self._read is None else list(self._read([*SMALL, k.GAPS], None))
            self._small = sorted(found, key=lambda c: c.field != "h")
        return self._small

    def bring(self, ids: Any) -> None:
        """Read these blocks, which were not read before; ascending."""
        layout = self._layout
        assert layout is not None
        places = layout.bases[None, :] + ids[:, None]
        there = (ids[:, None] < layout.caps[None, :]).ravel()
        slots = places.ravel()[there]
        order = np.argsort(slots, kind="stable")
        row = np.flatnonzero(there)[order]
        slots, count = slots[order], len(ids) * layout.pools
        shares = np.arange(layout.width)
        parts = (slots[:, None] * layout.width + shares).ravel()
        # Where a block is of one group only both lie at the same places: one question is cheaper.
        together = COMPONENT if layout.width == 1 else []
        found = self._gathered([*SLOT, "first_entry", *together], slots)
        self._append(SLOT, found, row, count)
        self._append(COMPONENT, found if together else self._gathered(COMPONENT, parts),
                     (row[:, None] * layout.width + shares).ravel(),
                     count * layout.width)  # fmt: skip
        first = len(self.ids)
        self.ids = np.concatenate([self.ids, ids])
        live = found["live"] > 0
        if live.any():
            self._bring_entries(
                slots[live], row[live] + first * layout.pools, found["live"][live],
                found["first_entry"][live],
            )  # fmt: skip

    def _append(self, fields: Sequence[str], found: dict[str, Any], rows: Any, count: int) -> None:
        for field in fields:
            column = self.columns[field]
            more = np.full(count, a.EXTENTS[field].empty, column.dtype)
            more[rows] = found[field]
            self.columns[field] = np.concatenate([column, more])

    def _bring_entries(self, slots: Any, rows: Any, live: Any, entries: Any) -> None:
        """The live hashes of slots, which the rows are of, along the chain of each until all of
        them are found."""
        used, left = self._header(a.ENTRIES), live.astype(np.int64)
        while len(slots):
            if not (entries.min() >= 0 and entries.max() < used):
                raise self.altered("first_entry leads nowhere")
            order = np.argsort(entries)
            slots, rows, left, entries = (x[order] for x in (slots, rows, left, entries))
            found = self._gathered(_LINKED, entries.astype(np.int64))
            if (found["e_slot"] != slots).any():
                raise self.altered("e_slot leads elsewhere")
            alive = found["e_live"] == 1
            for field in ENTRY:
                told = rows if field == "e_slot" else found[field]
                self.entries[field] = np.append(
                    self.entries[field], told[alive].astype(self.entries[field].dtype)
                )
            self.entries["e"] = np.append(self.entries["e"], entries[alive])
            left -= alive
            before, on = entries, (left > 0) & (found["e_next_slot"] >= 0)
            slots, rows, left = slots[on], rows[on], left[on]
            entries = found["e_next_slot"][on]
            if (entries >= before[on]).any():
                raise self.altered("e_next_slot goes round")

    def _live_entries(self, field: str) -> Iterator[tuple[int, Any, Any]]:
        """Of each stretch of the hashes in use: where it starts, which are live, and `field`."""
        used = self._header(a.ENTRIES)
        live = {c.number: c.values for c in self._chunks(["e_live"])}
        for chunk in self._chunks([field]):
            first = chunk.number * k.CHUNK
            values = chunk.values[: max(0, used - first)]
            alive = live.get(chunk.number, values[:0])[: len(values)] == 1
            if len(alive) == len(values):
                yield first, alive, values

    def _header(self, place: int) -> int:
        for chunk in self.small():
            if chunk.field == "h" and place // k.CHUNK == chunk.number:
                if place % k.CHUNK < len(chunk.values):
                    return int(chunk.values[place % k.CHUNK])
        return 0

    # --- blocks that an event means without naming them -------------------------------------

    def led_to(self, hashes: Any) -> Any:
        """Blocks that live hashes lead to."""
        found = []
        for first, live, values in self._live_entries("e_hash"):
            found.append(np.flatnonzero(live & np.isin(values, hashes)) + first)
        places = np.sort(np.concatenate([np.zeros(0, np.int64), *found]))
        slots = self._gathered(["e_slot"], places)["e_slot"]
        return self._blocks(slots)

    def owned_by(self, requests: Any) -> Any:
        """Blocks that requests allocated last."""
        found = [
            np.flatnonzero(np.isin(chunk.values, requests)) + chunk.number * k.CHUNK
            for chunk in self._chunks(["owner"])
        ]
        return self._blocks(np.concatenate([np.zeros(0, np.int64), *found]))

    def _blocks(self, slots: Any) -> Any:
        assert self._layout is not None
        if len(slots) and not (slots.min() >= 0 and slots.max() < self._layout.slots):
            raise self.altered("it leads nowhere")
        return self._layout.blocks(slots.astype(np.int64))

    # --- every block at once ----------------------------------------------------------------

    def seen(self) -> Overview:
        """What every block was, by the slots of a whole fold; `blocks` says nothing here."""
        if self._seen is None:
            layout = self._layout
            assert layout is not None
            columns = k.nobody_seen(layout.slots, layout.kinds["wpos"])
            for chunk in self._chunks(list(k.SEEN)):
                column = columns[chunk.field]
                first = chunk.number * k.CHUNK
                if not 0 <= first <= len(column) - len(chunk.values):
                    raise self.altered(f"chunk {chunk.number} of {chunk.field}")
                column[first : first + len(chunk.values)] = self._fit(chunk, column.dtype)
            wrong = k.nonsense(columns)
            if wrong:
                raise self.altered(wrong)
            self._seen = Overview(None, *columns.values())
        return self._seen

    def forget_seen(self) -> None:
        """Every pool was looked at: it goes on from there."""
        self._seen = None

    # --- chunks -----------------------------------------------------------------------------

    def _chunks(self, fields: Sequence[str], numbers: Sequence[int] | None = None) -> Any:
        return () if self._read is None else self._read(fields, numbers)

    def _gathered(self, fields: Sequence[str], places: Any) -> dict[str, Any]:
        """What arrays hold at some places, ascending."""
        assert self._layout is not None
        kinds = self._layout.kinds
        found = {f: np.full(len(places), a.EXTENTS[f].empty, kinds[f]) for f in fields}
        if not len(places) or self._read is None:
            return found
        number = places // k.CHUNK
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        ends = np.append(starts[1:], len(places))
        spans = dict(zip(number[starts].tolist(), zip(starts, ends, strict=True), strict=True))
        for chunk in self._chunks(fields, list(spans)):
            if chunk.number not in spans:
                continue
            start, end = spans[chunk.number]
            local = places[start:end] - chunk.number * k.CHUNK
            if local[-1] >= len(chunk.values):
                raise self.altered(f"chunk {chunk.number} of {chunk.field}")
            part = chunk._replace(values=chunk.values[local])
            found[chunk.field][start:end] = self._fit(part, found[chunk.field].dtype)
        return found

    def _fit(self, chunk: Chunk, kind: Any) -> Any:
        """Values that an array can hold."""
        values = chunk.values
        if values.dtype.itemsize > kind.itemsize and len(values):
            limits = np.iinfo(kind)
            if not (limits.min <= values.min() and values.max() <= limits.max):
                raise self.altered(f"chunk {chunk.number} of {chunk.field}")
        return values

    def altered(self, what: str) -> TraceError:
        return k.altered(self.path, what)
