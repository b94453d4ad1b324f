"""Tables that keep a window: sliding or chunked, cyclic, computed again, or the tail's ring."""

from __future__ import annotations

from collections.abc import Iterator

from .tables import Holding, Row, Table
from .tape import Event


class Window(Table):
    """A sliding or chunked window: blocks before it are given back as it moves."""

    window = 0
    chunked = False
    slack = 0

    def start(self, t: int) -> int:
        if self.chunked:
            return t - t % self.window
        return max(0, t - self.window + 1 - self.slack)

    def needed(self, t: int) -> list[int]:
        sinks = range(-(-min(self.sink, t) // self.bt))
        return sorted({*sinks, *super().needed(t)})

    def begin(self, row: Row, p: int) -> None:
        held = row.held[self.name]
        first = self.start(p)
        gone = [
            i
            for i in sorted(held.blocks)
            if i * self.bt >= self.sink and (i + 1) * self.bt <= first
        ]
        if gone:
            blocks = [held.blocks.pop(i) for i in gone]
            self.tape.emit(
                "slide", group=self.lead, req=row.name, blocks=blocks, window_start=first
            )
            self._let_go(row, blocks)

    def _let_go(self, row: Row, blocks: list[int]) -> None:
        self.pool.release(blocks, group=self.lead, req=row.name)


class Cyclic(Window):
    """A window whose blocks are written over in place; nothing of it is ever published."""

    def blocks_short(self, row: Row, q: int) -> int:
        return max(0, super().blocks_short(row, q) - len(row.held[self.name].spare))

    def grow(self, row: Row, q: int) -> None:
        held = row.held[self.name]
        while held.spare and held.end * self.bt < q:
            held.blocks[held.end] = held.spare.pop(0)
            held.end += 1
        super().grow(row, q)

    def _let_go(self, row: Row, blocks: list[int]) -> None:
        row.held[self.name].spare += blocks

    def settle(self, row: Row, upto: int) -> None:
        """A hash would outlive what it stands for."""


class Replayed(Window):
    """A window that is computed again behind a hit, and so needs nothing to be there."""

    def needed(self, t: int) -> list[int]:
        return []

    def adopt(self, row: Row, t: int, blocks: dict[int, int]) -> None:
        first = self.start(t) if t else 0
        row.held[self.name] = Holding(
            end=first // self.bt, replay=first, published=-(-t // self.bt)
        )

    def writes(self, row: Row, p: int, q: int, sure: int) -> Iterator[Event]:
        held = row.held[self.name]
        first, held.replay = (p if held.replay is None else held.replay), None
        yield from super().writes(row, first, q, sure)

    def settle(self, row: Row, upto: int) -> None:
        """Nobody looks for it."""


class Ring(Window):
    """The tail of a compressed group in a table of its own: open units and their overlap."""

    def start(self, t: int) -> int:
        group = self.groups[0]
        unit = max(0, t - self.drafts) // group.ratio * group.ratio
        return max(0, unit - group.overlap)
