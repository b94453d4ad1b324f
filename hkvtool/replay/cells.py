"""Which rows of which blocks an access touches, kept short until bytes are moved.

A long trace names many millions of rows. What is kept of an access is its blocks and the tokens
in each; the rows are laid out when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hkvtool.kernels.rows import Page, Rows
from hkvtool.kernels.stamps import pack
from hkvtool.replay.placing import Piece
from hkvtool.state.declarations import Group

Due = tuple[tuple[int, int, int], ...]
"""Token ranges, ascending, and the sequence that their tokens are of."""


@dataclass(frozen=True)
class Cells:
    """Tokens [start, end) of each block; an entry of `ratio` tokens is known by its last one."""

    blocks: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    ratio: int
    rows: int
    state: bool = False

    @property
    def empty(self) -> bool:
        if self.state:
            return not self.blocks
        ratio = self.ratio
        return not any(e // ratio > s // ratio for s, e in zip(self.starts, self.ends, strict=True))

    def laid_out(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Block, entry within it and token of every row, ``int64[n]`` each."""
        blocks = np.array(self.blocks, np.int64)
        ends = np.array(self.ends, np.int64)
        if self.state:
            tokens = ends - 1
            return _torch(blocks), torch.zeros(len(blocks), dtype=torch.int64), _torch(tokens)
        low, high = np.array(self.starts, np.int64) // self.ratio, ends // self.ratio
        counts = np.maximum(high - low, 0)
        before = np.cumsum(counts) - counts
        numbers = np.arange(int(counts.sum()), dtype=np.int64)
        numbers += np.repeat(low - before, counts)
        tokens = numbers * self.ratio + self.ratio - 1
        return _torch(np.repeat(blocks, counts)), _torch(numbers % self.rows), _torch(tokens)

    def by_piece(self, values: Sequence[int]) -> torch.Tensor:
        """A number of each block, as one of each row."""
        given = np.array(values, np.int64)
        if self.state:
            return _torch(given)
        low, high = np.array(self.starts) // self.ratio, np.array(self.ends) // self.ratio
        return _torch(np.repeat(given, np.maximum(high - low, 0)))


def cells(group: Group, rows: int, places: Sequence[int], pieces: Iterable[Piece]) -> Cells:
    """The cells of some pieces; `places` are the pool places of an event's blocks."""
    found = list(pieces)
    return Cells(
        tuple(places[p.place] for p in found), tuple(p.start for p in found),
        tuple(p.end for p in found), group.ratio, rows, group.form == "recurrent",
    )  # fmt: skip


def whole(rows: int, places: Sequence[int]) -> Cells:
    """Every row of some blocks."""
    count = len(places)
    return Cells(tuple(places), (0,) * count, (rows,) * count, 1, rows)


@dataclass(frozen=True, eq=False)
class Area:
    """Cells in one storage. `name` is the storage and which of its lives (a pool that was rebased
    has a second one)."""

    name: str
    page: Page
    cells: Cells

    def rows(self) -> Rows:
        blocks, entries, _ = self.cells.laid_out()
        return self.page.at(blocks, entries)


def stamps(due: Due, group: int, tokens: torch.Tensor, generation: torch.Tensor | int = 0,
           version: torch.Tensor | int = 0) -> torch.Tensor:  # fmt: skip
    """The stamps of tokens of a group, ``int64[n, 4]``."""
    if len(due) == 1:
        return pack(due[0][2], group, tokens, generation, version)
    ends = torch.tensor([end for _, end, _ in due], dtype=torch.int64)
    of = torch.tensor([number for _, _, number in due], dtype=torch.int64)
    which = torch.searchsorted(ends, tokens, right=True).clamp(max=len(due) - 1)
    return pack(of[which], group, tokens, generation, version)


def _torch(array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
