"""Real bytes: the touched stretches of every pool's storage, packed into torch buffers.

Addresses are those of the recorded geometry. Only what some access can touch is mapped; a stretch
that nothing touches between two that are touched takes no room. Device pools lie on the device,
host and remote tiers in host memory, disk tiers in files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType

import torch

from hkvtool.kernels.rows import Page, Rows
from hkvtool.kernels.stamps import NEVER
from hkvtool.model.errors import HkvError
from hkvtool.replay.capturing import Captures
from hkvtool.replay.cells import Area

BUDGET = 2 << 30
"""Bytes that a replay may map."""

_GAP = 64
"""Stretches as near as this are one."""


@dataclass
class Touched:
    """The blocks of one page that a program can touch."""

    name: str
    page: Page
    medium: str
    blocks: set[int] = field(default_factory=set)


class Memory:
    """The buffers of one program, on one device."""

    def __init__(self, touched: Iterable[Touched], device: str, budget: int = BUDGET) -> None:
        self.device = device
        stretches: dict[str, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        media: dict[str, str] = {}
        for one in touched:
            media[one.name] = one.medium
            stretches.setdefault(one.name, []).append(_intervals(one))
        self._first: dict[str, torch.Tensor] = {}
        self._place: dict[str, torch.Tensor] = {}
        sizes: dict[str, int] = {}
        for name, found in stretches.items():
            first, last = _merged(found)
            size = (last - first + 7) // 8 * 8
            ends = torch.cumsum(size, 0)
            self._first[name], self._place[name] = first, ends - size
            sizes[name] = int(ends[-1]) if len(ends) else 0
        self.bytes = sum(sizes.values())
        if self.bytes > budget:
            raise OverBudget(self.bytes, budget)
        self.buffers = {n: self._buffer(media[n], size) for n, size in sizes.items()}
        self.captures = Captures()

    def _buffer(self, medium: str, size: int) -> torch.Tensor:
        size = max(size, 8)
        if medium == "disk":
            return _on_disk(size)
        if medium == "gpu":
            return torch.empty(size, dtype=torch.uint8, device=self.device)
        pinned = self.device != "cpu"
        return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)

    def reset(self) -> None:
        """Every byte is one that nobody has written."""
        for buffer in self.buffers.values():
            buffer.fill_(NEVER)

    def discard(self, name: str) -> None:
        """What a storage held is gone."""
        buffer = self.buffers.get(name)
        if buffer is not None:
            buffer.fill_(NEVER)

    def at(self, area: Area) -> tuple[torch.Tensor, Rows]:
        """The buffer of an area, and its rows as places in it."""
        first, place = self._first[area.name], self._place[area.name]
        rows = area.rows()
        starts = rows.starts
        which = torch.searchsorted(first, starts.reshape(-1), right=True) - 1
        local = starts.reshape(-1) - first[which] + place[which]
        return self.buffers[area.name], Rows(local.view(starts.shape), rows.lengths)

    def close(self) -> None:
        """Give the memory and the files back."""
        self.captures.made.clear()
        self.buffers.clear()

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def _on_disk(size: int) -> torch.Tensor:
    """A file as a tensor; it has no name any more, so that a killed replay leaves none behind."""
    with tempfile.NamedTemporaryFile(prefix="hkvtool-replay-") as file:
        file.truncate(size)
        return torch.from_file(file.name, shared=True, size=size, dtype=torch.uint8)


class OverBudget(HkvError):
    """The geometry needs more memory than a replay may take."""

    def __init__(self, needed: int, budget: int) -> None:
        super().__init__(
            f"the blocks that the trace touches take {needed:,} bytes, {budget:,} are allowed",
            hint="replay one finding (--finding), or allow more (--memory)",
        )


def _intervals(one: Touched) -> tuple[torch.Tensor, torch.Tensor]:
    """First bytes, and the ones behind the last, of all segments of some blocks."""
    blocks = torch.tensor(sorted(one.blocks), dtype=torch.int64)
    page = one.page
    count = page.rows * page.parts
    entries = torch.arange(count, dtype=torch.int64)
    rows = page.at(blocks.repeat_interleave(count), entries.repeat(len(blocks)))
    lengths = torch.tensor(rows.lengths, dtype=torch.int64).expand(rows.starts.shape)
    return rows.starts.reshape(-1), (rows.starts + lengths).reshape(-1)


def _merged(
    found: list[tuple[torch.Tensor, torch.Tensor]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stretches that do not touch one another, in ascending order; they begin on words."""
    first = torch.cat([f for f, _ in found]) // 8 * 8
    last = torch.cat([e for _, e in found])
    order = torch.argsort(first)
    first, last = first[order], last[order]
    reach = torch.cummax(last, 0).values
    new = torch.ones(len(first), dtype=torch.bool)
    new[1:] = first[1:] > reach[:-1] + _GAP
    heads = new.nonzero().reshape(-1)
    tails = torch.cat((heads[1:], torch.tensor([len(first)]))) - 1
    return first[heads], reach[tails]
