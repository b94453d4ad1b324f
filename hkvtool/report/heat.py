"""What each stretch of a pool holds over time: the rows and columns of a heat map."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.lifetimes import Lifetimes
from hkvtool.model.event import Event

ROWS, COLUMNS = 96, 160


@dataclass
class Cell:
    """Blocks `first` to `last` of a pool in a stretch of time: what most of those that hold
    anything are, and how many hold something."""

    pool: str
    column: int
    first: int
    last: int
    form: str
    state: str
    holding: int


@dataclass
class PoolMap:
    """One pool's rows as they stand."""

    blocks: int
    rows: list[Counter[tuple[str, str]]] = field(default_factory=list)

    def row(self, block: int) -> int:
        return min(len(self.rows) - 1, block * len(self.rows) // max(1, self.blocks))

    def span(self, row: int) -> tuple[int, int]:
        """First and last block of a row."""
        size, count = self.blocks, len(self.rows)
        first = -(-row * size // count)
        return first, max(first, -(-(row + 1) * size // count) - 1)


class Heat(Lifetimes):
    """Takes a picture of every pool at the end of each of so many stretches of time.

    `first` and `last` are the trace's clock or positions, as an event tells them.
    """

    def __init__(self, ctx: Context, first: int, last: int, columns: int = COLUMNS) -> None:
        super().__init__(ctx)
        self.cells: list[Cell] = []
        self.start, self.width = first, max(1, -(-(last - first + 1) // columns))
        self.column = 0
        self.pools: dict[str, PoolMap] = {}
        self._block_of: dict[int, int] = {}

    def before(self, event: Event) -> None:
        ts = event.get("ts")
        column = max(0, (event.pos if ts is None else ts) - self.start) // self.width
        while self.column < column:
            self._picture()
        super().before(event)

    def finish(self) -> None:
        super().finish()
        self._picture()

    def _see(self, slot: int, event: Event) -> None:
        before = self._state.get(slot)
        super()._see(slot, event)
        now = self._state.get(slot)
        if now == before:
            return
        pool = self.ctx.fold.pool_of(slot)
        found = self.pools.get(pool.name)
        if found is None:
            rows = min(ROWS, max(1, pool.blocks))
            found = PoolMap(pool.blocks, [Counter() for _ in range(rows)])
            self.pools[pool.name] = found
        row = found.rows[found.row(int(self.ctx.fold.block_of[slot]))]
        if before is not None:
            row[before] -= 1
        if now is not None:
            row[now] += 1

    def _picture(self) -> None:
        """What every row is at the end of this stretch; rows that hold nothing are left out."""
        for name, pool in self.pools.items():
            for number, row in enumerate(pool.rows):
                holding = sum(row.values())
                if holding:
                    (form, state), _ = max(row.items(), key=lambda item: item[1])
                    first, last = pool.span(number)
                    self.cells.append(Cell(name, self.column, first, last, form, state, holding))
        self.column += 1
