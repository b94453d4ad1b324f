"""The operations of `reference` as Triton kernels, on the same `Rows`.

They run on a GPU, and
on a CPU under Triton's interpreter (``TRITON_INTERPRET=1``), where the tests hold them equal to
the references.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton

from hkvtool.kernels.reference import FP8_MAX, ODD, ceil_exponent, power
from hkvtool.kernels.rows import Rows, sent
from hkvtool.kernels.stamps import BYTES, FREED, WORDS
from hkvtool.kernels.triton_sources import (
    _carry,
    _expand,
    _mark,
    _move,
    _quantise,
    _score,
    _spin,
    _stamp,
    _sum,
    _whole,
    _zero,
)

_VIEW = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}

TILE = 2048
"""Words that one program has in hand at once."""

ACROSS = 16
"""Words of eight bytes of one row that a tile spans; the rest of it is further rows."""

DEPTH = 8
"""Tiles of a row, side by side, that one program takes one after the other."""

STRETCH = 1024
"""Words of a block that one program moves."""

WARPS = 4


@lru_cache(maxsize=1024)
def _spans(lengths: tuple[int, ...], width: int, device: torch.device) -> torch.Tensor:
    """Of each segment its words, and the byte of the row that it begins with: ``int32[s, 2]``.

    Kept on the device: a kernel that has run once can be captured in a graph.
    """
    made, at = [], 0
    for length in lengths:
        made.append((length // width, at))
        at += length
    return torch.tensor(made, dtype=torch.int32).to(device)


class _Tiles:
    """Rows cut into tiles, and what every kernel over them takes."""

    def __init__(self, buffer: torch.Tensor, rows: Rows) -> None:
        width = rows.word
        if buffer.numel() % width or buffer.data_ptr() % width:
            width = 1
        self.width = width
        self.words = buffer.view(_VIEW[width])
        self.starts = sent(rows.starts, buffer.device).contiguous()
        self.spans = _spans(rows.lengths, width, buffer.device)
        self.count, self.segments = len(rows), len(rows.lengths)
        longest = max(rows.lengths) // width
        self.across = ACROSS * 8 // width
        down = TILE // self.across
        self.grid = (-(-self.count // down), -(-longest // (self.across * DEPTH)))

    def run(self, kernel: Any, *given: Any, split: bool = True, **constants: Any) -> None:
        """Launch a kernel: with `split` a row may be the work of several programs."""
        grid = self.grid if split else self.grid[:1]
        kernel[grid](self.words, self.starts, *given, W=self.width, R=TILE // self.across,
                     C=self.across, num_warps=WARPS, **constants)  # fmt: skip


def gather(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.gather`."""
    packed = torch.empty((len(rows), rows.row_bytes), dtype=torch.uint8, device=buffer.device)
    if len(rows):
        _packed(_Tiles(buffer, rows), packed, OUT=True)
    return packed


def scatter(buffer: torch.Tensor, rows: Rows, packed: torch.Tensor) -> None:
    """As `reference.scatter`."""
    if len(rows):
        _packed(_Tiles(buffer, rows), sent(packed, buffer.device).contiguous(), OUT=False)


def _packed(tiles: _Tiles, packed: torch.Tensor, *, OUT: bool) -> None:
    # What rows are packed into begins on words too: row bytes are words of the rows' own.
    even = packed if packed.data_ptr() % tiles.width == 0 else packed.clone()
    tiles.run(_carry, even.view(_VIEW[tiles.width]), tiles.spans, tiles.count, tiles.segments,
              packed.shape[1] // tiles.width, OUT=OUT)  # fmt: skip


def _heads(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.heads` of the packed rows, ``int64[n, 4]``."""
    found = torch.zeros((len(rows), WORDS), dtype=torch.int64, device=buffer.device)
    tiles = _Tiles(buffer, rows)
    tiles.run(_carry, found.view(_VIEW[tiles.width]), tiles.spans, tiles.count, tiles.segments,
              BYTES // tiles.width, OUT=True, split=False)  # fmt: skip
    return found


def stamp(buffer: torch.Tensor, rows: Rows, stamps: torch.Tensor) -> None:
    """As `reference.stamp`."""
    if len(rows):
        _over(_Tiles(buffer, rows), sent(stamps, buffer.device).contiguous())


def _over(tiles: _Tiles, stamps: torch.Tensor, due: torch.Tensor | None = None) -> None:
    tiles.run(_stamp, stamps, tiles.spans if due is None else due, tiles.spans, tiles.count,
              tiles.segments, SOME=due is not None)  # fmt: skip


def zero(buffer: torch.Tensor, rows: Rows) -> None:
    """As `reference.zero`."""
    if len(rows):
        tiles = _Tiles(buffer, rows)
        tiles.run(_zero, tiles.spans, tiles.count, tiles.segments)


def verify(
    buffer: torch.Tensor, rows: Rows, expected: torch.Tensor, fields: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.verify`."""
    device = buffer.device
    wrong = torch.empty(len(rows), dtype=torch.int8, device=device)
    if not len(rows):
        return wrong.view(torch.bool), torch.empty((0, WORDS), dtype=torch.int64, device=device)
    tiles = _Tiles(buffer, rows)
    head = tiles.width == WORDS * 2 and rows.lengths[0] >= BYTES
    if head:
        found = torch.empty((len(rows), WORDS), dtype=torch.int64, device=device)
    else:
        found = _heads(buffer, rows)
    care = sent(fields if fields.stride(0) else fields[:1], device).contiguous()
    step = WORDS if len(care) > 1 else 0
    tiles.run(_whole, found, sent(expected, device).contiguous(), care, wrong, tiles.spans,
              tiles.count, tiles.segments, rows.row_bytes, step, HEAD=head,
              split=False)  # fmt: skip
    return wrong.view(torch.bool), found


def fingerprint(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.fingerprint`."""
    sums = torch.empty(len(rows), dtype=torch.int64, device=buffer.device)
    if len(rows):
        tiles = _Tiles(buffer, rows)
        tiles.run(_sum, sums, tiles.spans, tiles.count, tiles.segments, rows.row_bytes, ODD_=ODD,
                  split=False)  # fmt: skip
    return sums


def poison(buffer: torch.Tensor, rows: Rows, *, lifted: bool = False) -> None:
    """As `reference.poison`."""
    if rows.row_bytes < BYTES or not len(rows):
        return
    # Stamps are read by a kernel of its own: within one they could be read once overwritten.
    found = _heads(buffer, rows)
    due = torch.empty(len(rows), dtype=torch.int8, device=buffer.device)
    _mark[(-(-len(rows) // 256),)](found, due, len(rows), FREED, lifted, 256)
    _over(_Tiles(buffer, rows), found, due)


def _meet(source: torch.Tensor, target: torch.Tensor, size: int) -> bool:
    """Whether some stretch that is read is one that is written too."""
    ends = torch.sort(target).values
    near = torch.searchsorted(ends, source - size, right=True)
    reach = near.clamp(max=len(ends) - 1)
    return bool(((near < len(ends)) & (ends[reach] < source + size)).any())


def copy_blocks(
    buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor, size: int
) -> None:
    """As `reference.copy_blocks`: through a scratch where what is read is written too."""
    if not size or not len(source):
        return
    if not _meet(source, target, size):
        swap(buffer, buffer, source, target, size)
        return
    scratch = torch.empty(len(source) * size, dtype=torch.uint8, device=buffer.device)
    into = torch.arange(len(source), dtype=torch.int64, device=source.device) * size
    swap(buffer, scratch, source, into, size)
    swap(scratch, buffer, into, target, size)


def swap(
    source: torch.Tensor, target: torch.Tensor, here: torch.Tensor, there: torch.Tensor, size: int
) -> None:
    """As `reference.swap`; host memory must be pinned for a GPU to reach it."""
    if not size or not len(here):
        return
    device = source.device if source.is_cuda else target.device
    low = size
    for offsets in (here, there):
        low |= sum(bit for bit in (1, 2, 4) if bool((offsets & bit).any()))
    for buffer in (source, target):
        low |= buffer.numel() | buffer.data_ptr()
    low |= 8
    width = low & -low
    view, words = _VIEW[width], size // width
    _move[len(here), -(-words // STRETCH)](
        source.view(view), target.view(view), sent(here // width, device).contiguous(),
        sent(there // width, device).contiguous(), words, STRETCH, num_warps=WARPS,
    )  # fmt: skip


def compress(values: torch.Tensor, block: int, scale: str = "fp32") -> torch.Tensor:
    """As `reference.compress`: the scales by torch, the codes by the kernel."""
    n, d = values.shape
    parts = values.to(torch.float32).contiguous().view(n * (d // block), block)
    most = parts.abs().amax(dim=1).clamp(min=1e-4)
    if scale == "ue8m0":
        exponent = ceil_exponent(most / FP8_MAX)
        unit = power(exponent)
        tail = (exponent + 127).to(torch.uint8).view(n, d // block)
    else:
        unit = most / FP8_MAX
        tail = unit.reshape(-1).clone().view(torch.uint8).view(n, d // block * 4)
    codes = torch.empty(parts.shape, dtype=torch.uint8, device=values.device)
    if len(parts):
        _quantise[(len(parts),)](parts, codes, unit, block, triton.next_power_of_2(block))
    return torch.cat((codes.view(n, d), tail), dim=1)


def decompress(packed: torch.Tensor, d: int, block: int, scale: str = "fp32") -> torch.Tensor:
    """As `reference.decompress`."""
    n = packed.shape[0]
    tail = packed[:, d:].reshape(-1).clone()
    if scale == "ue8m0":
        unit = power(tail.view(n, d // block).to(torch.int32) - 127)
    else:
        unit = tail.view(torch.float32).view(n, d // block)
    codes = packed[:, :d].contiguous()
    values = torch.empty((n, d), dtype=torch.float32, device=packed.device)
    count = n * (d // block)
    if count:
        _expand[(count,)](codes, unit.contiguous(), values, block, triton.next_power_of_2(block))
    return values


def index_rows(keys: torch.Tensor) -> torch.Tensor:
    """As `reference.index_rows`."""
    return compress(keys, keys.shape[1])


def select(
    buffer: torch.Tensor, rows: Rows, query: torch.Tensor, count: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.select`."""
    d = len(query)
    keys = decompress(gather(buffer, rows), d, d)
    scores = torch.empty(len(rows), dtype=torch.float64, device=buffer.device)
    if len(rows):
        wanted = query.to(buffer.device).contiguous()
        _score[(len(rows),)](keys, wanted, scores, d, triton.next_power_of_2(d))
    order = torch.sort(scores, descending=True, stable=True)
    count = min(count, len(rows))
    return order.indices[:count], order.values[:count]


def spin(rounds: int, device: str) -> None:
    """Hold the current stream up by so many rounds of dependent arithmetic."""
    out = torch.zeros(1, dtype=torch.int64, device=device)
    _spin[(1,)](out, rounds)


__all__ = [
    "compress", "copy_blocks", "decompress", "fingerprint", "gather", "index_rows",
    "poison", "scatter", "select", "spin", "stamp", "swap", "verify", "zero",
]  # fmt: skip
