"""The map as a text of cells: pools one under the other, as wide as the screen, at one zoom.

Rows are made when they are drawn: a million blocks are a few thousand rows, thirty of them seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from hkvtool.model.findings import Finding
from hkvtool.model.text import shown
from hkvtool.state import overview as o
from hkvtool.tui import cells as c
from hkvtool.tui.lines import Line, fitted, line
from hkvtool.tui.session import PoolSeen

LABEL = 9
DETAIL = 0
"""The zoom at which a block has a letter and a glyph; at 1 it has a letter, and each further
one puts four times as many into a cell."""

MOST_ZOOM = 10

COARSE = 4**5
"""Blocks a cell from which on a whole pool is counted at once."""

_ROWS_AT_ONCE = 16
"""Rows whose cells are made together."""


class Row(NamedTuple):
    """One row of the map: a heading, cells from `first` on, or `blocks` that were never
    used and are told in one line."""

    pool: int
    kind: str
    first: int = 0
    blocks: int = 0


class Place(NamedTuple):
    """One cell of the map."""

    pool: int
    cell: int


@dataclass(frozen=True)
class View:
    """How the map is looked at."""

    width: int
    zoom: int
    colouring: str = "form"

    @property
    def per(self) -> int:
        """Blocks a cell."""
        return 1 if self.zoom <= 1 else 4 ** (self.zoom - 1)

    @property
    def columns(self) -> int:
        """Columns a cell."""
        return 3 if self.zoom == DETAIL else 1

    @property
    def across(self) -> int:
        """Cells a row."""
        fit = max(1, (self.width - LABEL) // self.columns)
        step = 8 if fit >= 16 else 1
        return fit // step * step


def fitting_zoom(pools: Sequence[PoolSeen], width: int, height: int) -> int:
    """The closest zoom at which everything fits on the screen, if any."""
    for zoom in range(MOST_ZOOM):
        view = View(width, zoom)
        runs = (run for pool in pools for run in _runs(pool, view))
        # A heading each, and a line between them.
        if 2 * len(pools) - 1 + sum(run.height for run in runs) <= height:
            return zoom
    return MOST_ZOOM


def layout(pools: Sequence[PoolSeen], view: View) -> list[Row]:
    """The rows of the map; stretches that nothing has ever used are folded into one."""
    rows: list[Row] = []
    for number, pool in enumerate(pools):
        if number:
            rows.append(Row(number, "gap"))
        rows.append(Row(number, "head"))
        rows += _rows(number, pool, view)
    return rows


class _Run(NamedTuple):
    """Neighbouring rows of a pool of which every one was used, or none."""

    start: int
    end: int
    folded: bool

    @property
    def height(self) -> int:
        return 1 if self.folded else self.end - self.start


def _runs(pool: PoolSeen, view: View) -> list[_Run]:
    count = len(pool.seen.blocks)
    if not count:
        return []
    a_row = view.per * view.across
    if a_row not in pool.used:
        named = pool.seen.flags & o.NAMED
        pool.used[a_row] = np.bitwise_or.reduceat(named, np.arange(0, count, a_row)) > 0
    used = pool.used[a_row]
    edges = [0, *(np.flatnonzero(np.diff(used)) + 1).tolist(), len(used)]
    return [
        _Run(start, end, bool(not used[start] and (end - start > 1 or len(used) == 1)))
        for start, end in pairwise(edges)
    ]


def _rows(number: int, pool: PoolSeen, view: View) -> list[Row]:
    a_row, count = view.per * view.across, len(pool.seen.blocks)
    rows: list[Row] = []
    for run in _runs(pool, view):
        if run.folded:
            blocks = min(count, run.end * a_row) - run.start * a_row
            rows.append(Row(number, "unused", run.start * view.across, blocks))
        else:
            cells = range(run.start, run.end)
            rows += [Row(number, "cells", i * view.across) for i in cells]
    return rows


class Mosaic:
    """The cells of every pool at one moment, at one zoom."""

    def __init__(
        self, pools: Sequence[PoolSeen], now: int, view: View, findings: Sequence[Finding] = ()
    ) -> None:
        self.pools, self.now, self.view = tuple(pools), now, view
        self.findings = tuple(findings)
        self._cells: dict[tuple[int, int], c.Cells] = {}
        self.rows = layout(self.pools, view)
        self._starts = {
            number: [(row.first, at) for at, row in enumerate(self.rows)
                     if row.pool == number and row.kind in ("cells", "unused")]
            for number in range(len(self.pools))
        }  # fmt: skip
        self._masks: dict[int, tuple[Any, Any]] = {}
        self._headings: dict[int, Line] = {}

    def count(self, pool: int) -> int:
        """Cells of a pool."""
        return -(-len(self.pools[pool].seen.blocks) // self.view.per)

    def cells(self, pool: int, first: int = 0, end: int | None = None) -> c.Cells:
        """The cells of a pool from the first up to but not the last. They are made in stretches of
        some rows: of a million blocks mostly few are on the screen."""
        last = self.count(pool) if end is None else min(end, self.count(pool))
        a_part = _ROWS_AT_ONCE * self.view.across
        parts = range(first // a_part, -(-last // a_part))
        found = [self._part(pool, number) for number in parts]
        if not found:
            found = [self._part(pool, 0)]
        start = parts.start * a_part
        whole = found[0] if len(found) == 1 else c.Cells(
            *(np.concatenate(column) for column in zip(*found, strict=True))
        )  # fmt: skip
        return c.Cells(*(column[first - start : last - start] for column in whole))

    def _part(self, pool: int, number: int) -> c.Cells:
        if (pool, number) not in self._cells:
            cells = _ROWS_AT_ONCE * self.view.across
            first, end = number * cells, (number + 1) * cells
            made = self._blocks(pool, first, end) if self.view.per == 1 else (
                self._stretches(pool, first, end)
            )  # fmt: skip
            self._cells[pool, number] = made
        return self._cells[pool, number]

    def _blocks(self, pool: int, first: int, end: int) -> c.Cells:
        """Some cells that are a block each."""
        one, here = self.pools[pool], slice(first, end)
        faults, reserved = self._marked(pool)
        return c.of_blocks(
            o.Overview(*(column[here] for column in one.seen)), self.now,
            colouring=self.view.colouring,
            faults=None if faults is None else faults[here],
            inside=None if one.inside is None else one.inside[here],
            reserved=None if reserved is None else reserved[here],
        )  # fmt: skip

    def _stretches(self, pool: int, first: int, end: int) -> c.Cells:
        """Some cells that are many blocks each. Where these are very many, all of the pool is on a
        few screens, and is counted once for every zoom."""
        one, per, colouring = self.pools[pool], self.view.per, self.view.colouring
        if per >= COARSE:
            if colouring not in one.coarse:
                one.coarse[colouring] = c.counted(
                    one.seen, COARSE, colouring=colouring, inside=one.inside
                )
            counts = one.coarse[colouring].fewer(per // COARSE).part(first, end)
        else:
            here = slice(first * per, end * per)
            seen = o.Overview(*(column[here] for column in one.seen))
            inside = None if one.inside is None else one.inside[here]
            counts = c.counted(seen, per, colouring=colouring, inside=inside)
        faults = self._marked(pool)[0]
        if faults is None:
            return c.of_stretches(counts)
        marked = np.zeros(len(counts.size), bool)
        marked[np.flatnonzero(faults[first * per : end * per]) // per] = True
        return c.of_stretches(counts, marked)

    def _marked(self, pool: int) -> tuple[Any, Any]:
        """Masks of the blocks that findings name, and of those that are never handed out."""
        if pool not in self._masks:
            one = self.pools[pool]
            self._masks[pool] = self._faults(one), _mask(one, one.reserved)
        return self._masks[pool]

    def _faults(self, pool: PoolSeen) -> Any:
        named = {b for f in self.findings if f.pool == pool.name for b in f.blocks}
        return _mask(pool, named) if named else None

    # --- places ----------------------------------------------------------------------------

    def row_of(self, place: Place) -> int:
        """The row that a cell is in."""
        starts = self._starts[place.pool]
        at = bisect_right(starts, (place.cell, len(self.rows))) - 1
        return starts[at][1] if at >= 0 else 0

    def place_of(self, pool: str, block: int) -> Place | None:
        """The cell of a block."""
        for number, one in enumerate(self.pools):
            if one.name == pool:
                at = int(np.searchsorted(one.seen.blocks, block))
                if at < len(one.seen.blocks) and one.seen.blocks[at] == block:
                    return Place(number, at // self.view.per)
        return None

    def block_at(self, place: Place) -> tuple[str, int] | None:
        """The block that a cell stands for: of several the first that a finding names, else that
        holds something."""
        pool = self.pools[place.pool]
        first, end = place.cell * self.view.per, (place.cell + 1) * self.view.per
        blocks = pool.seen.blocks[first:end]
        if not len(blocks):
            return None
        faults = self._faults(pool)
        if faults is not None and faults[first:end].any():
            return pool.name, int(blocks[int(np.argmax(faults[first:end]))])
        content = pool.seen.flags[first:end] & (o.FILLED | o.HELD) > 0
        return pool.name, int(blocks[int(np.argmax(content))])

    def place_at(self, row: int, column: int) -> Place | None:
        """The cell at a row and column of the map."""
        if not 0 <= row < len(self.rows) or self.rows[row].kind != "cells":
            return None
        here = self.rows[row]
        across = (column - LABEL) // self.view.columns
        cell = here.first + across
        if not 0 <= across < self.view.across or cell >= self.count(here.pool):
            return None
        return Place(here.pool, cell)

    def moved(self, place: Place, across: int, down: int) -> Place:
        """The cell so many further; goes over into the next pool at the edges."""
        step = across + down * self.view.across
        cell, pool = place.cell + step, place.pool
        here = self.rows[self.row_of(place)]
        if here.kind == "unused" and step:
            # What is folded is stepped over at once.
            span = -(-here.blocks // self.view.per)
            cell = here.first - 1 if step < 0 else here.first + span
        if cell < 0 and pool > 0 and self.count(pool - 1):
            return Place(pool - 1, self.count(pool - 1) - 1)
        if cell >= self.count(pool):
            if pool + 1 < len(self.pools) and self.count(pool + 1):
                return Place(pool + 1, 0)
            cell = self.count(pool) - 1
        return Place(pool, max(0, cell))

    # --- text ------------------------------------------------------------------------------

    def heading(self, pool: int) -> Line:
        """A pool's name and what is in it."""
        if pool not in self._headings:
            self._headings[pool] = self._heading(pool)
        return self._headings[pool]

    def _heading(self, pool: int) -> Line:
        one = self.pools[pool]
        counts, there = one.counts, len(one.seen.blocks)
        parts = [f"{one.count:,} blocks", f"{counts.held:,} held"]
        if one.count > there:
            parts.insert(1, f"the {there:,} that were used")
        if counts.loading:
            parts.append(f"{counts.loading:,} recovering")
        if counts.uncertain:
            parts.append(f"{counts.uncertain:,} uncertain")
        per = f" · a cell is {self.view.per:,} blocks" if self.view.per > 1 else ""
        spans = [
            (shown(one.name), "bold"),
            (f" {one.medium}" if one.medium != one.name else "", "dim"),
            (f"  {' · '.join(parts)} · ", ""),
            (f"{counts.resumable:,} resumable", "good"), (per, "dim"),
        ]  # fmt: skip
        room = self.view.width - sum(len(text) for text, _ in spans)
        groups = ", ".join(map(shown, one.groups))
        return line(*spans, (fitted(f"   {groups}", max(0, room)), "dim"))

    def unused(self, row: Row) -> Line:
        """What is said of blocks that nothing has ever used."""
        first = int(self.pools[row.pool].seen.blocks[row.first * self.view.per])
        text = f"{first:,} to {first + row.blocks - 1:,} were never used"
        return line((self.label(row), "label"), ("┄┄ ", "edge"), (text, "dim"), (" ┄┄", "edge"))

    def label(self, row: Row) -> str:
        """The first block of a row."""
        return f"{int(self.pools[row.pool].seen.blocks[row.first * self.view.per]):>{LABEL - 2}}  "


def _mask(pool: PoolSeen, blocks: Any) -> Any:
    if not blocks:
        return None
    ids = np.fromiter(blocks, np.int64)
    at = np.searchsorted(pool.seen.blocks, ids)
    mask = np.zeros(len(pool.seen.blocks), bool)
    inside = at < len(mask)
    at, ids = at[inside], ids[inside]
    mask[at[pool.seen.blocks[at] == ids]] = True
    return mask
