"""The operations of `reference` as Triton kernels, on the same `Rows`.

They run on a GPU, and
on a CPU under Triton's interpreter (``TRITON_INTERPRET=1``), where the tests hold them equal to
the references.
"""

from __future__ import annotations

from typing import Any

import torch
import triton

from hkvtool.kernels.reference import FP8_MAX, ODD, ceil_exponent, heads
from hkvtool.kernels.rows import Rows
from hkvtool.kernels.stamps import FREED, WORDS
from hkvtool.kernels.triton_sources import (
    _expand,
    _gather,
    _mark,
    _move,
    _quantise,
    _scatter,
    _score,
    _spin,
    _stamp,
    _sum,
    _whole,
    _zero,
)

_VIEW = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}

SPAN = 256
"""Words that one program moves."""


def _launch(kernel: Any, rows: Rows, buffer: torch.Tensor, run: Any) -> None:
    """Run a kernel over each segment; `run` gives it the arguments behind the buffer."""
    if not len(rows):
        return
    width = rows.word
    if buffer.numel() % width or buffer.data_ptr() % width:
        width = 1
    words = buffer.view(_VIEW[width])
    starts = rows.starts.to(buffer.device).contiguous()
    at = 0
    for seg, length in enumerate(rows.lengths):
        count = length // width
        grid = (len(rows), -(-count // SPAN))
        run(kernel[grid], words, starts, seg, count, at, width)
        at += length


def gather(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.gather`."""
    packed = torch.empty((len(rows), rows.row_bytes), dtype=torch.uint8, device=buffer.device)

    def run(k: Any, words: Any, starts: Any, seg: int, count: int, at: int, width: int) -> None:
        into = packed.view(_VIEW[width])
        k(words, starts, into, len(rows.lengths), count, at // width, seg,
          rows.row_bytes // width, width, SPAN)  # fmt: skip

    _launch(_gather, rows, buffer, run)
    return packed


def scatter(buffer: torch.Tensor, rows: Rows, packed: torch.Tensor) -> None:
    """As `reference.scatter`."""
    packed = packed.to(buffer.device).contiguous()

    def run(k: Any, words: Any, starts: Any, seg: int, count: int, at: int, width: int) -> None:
        k(words, starts, packed.view(_VIEW[width]), len(rows.lengths), count, at // width, seg,
          rows.row_bytes // width, width, SPAN)  # fmt: skip

    _launch(_scatter, rows, buffer, run)


def stamp(buffer: torch.Tensor, rows: Rows, stamps: torch.Tensor) -> None:
    """As `reference.stamp`."""
    given = stamps.to(buffer.device).contiguous()

    def run(k: Any, words: Any, starts: Any, seg: int, count: int, at: int, width: int) -> None:
        k(words, starts, given, len(rows.lengths), count, at, seg, width, SPAN)

    _launch(_stamp, rows, buffer, run)


def zero(buffer: torch.Tensor, rows: Rows) -> None:
    """As `reference.zero`."""

    def run(k: Any, words: Any, starts: Any, seg: int, count: int, at: int, width: int) -> None:
        k(words, starts, len(rows.lengths), count, seg, width, SPAN)

    _launch(_zero, rows, buffer, run)


def verify(
    buffer: torch.Tensor, rows: Rows, expected: torch.Tensor, fields: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.verify`."""
    packed = gather(buffer, rows)
    found = heads(packed).clone()
    wrong = torch.zeros(len(rows), dtype=torch.int8, device=buffer.device)
    if len(rows):
        due = expected.to(buffer.device).contiguous()
        care = fields.to(buffer.device).expand(len(rows), WORDS).contiguous()
        _whole[(len(rows),)](packed, wrong, found, due, care, rows.row_bytes, SPAN)
    return wrong.to(torch.bool), found


def fingerprint(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.fingerprint`."""
    packed = gather(buffer, rows)
    sums = torch.zeros(len(rows), dtype=torch.int64, device=buffer.device)
    if len(rows):
        _sum[(len(rows),)](packed, sums, rows.row_bytes, ODD, SPAN)
    return sums


def poison(buffer: torch.Tensor, rows: Rows, *, lifted: bool = False) -> None:
    """As `reference.poison`."""
    if rows.row_bytes < 8 * WORDS or not len(rows):
        return
    packed = gather(buffer, rows)
    found = heads(packed).clone()
    marked = torch.zeros(len(rows), dtype=torch.int8, device=buffer.device)
    _mark[(len(rows),)](found, marked, FREED, lifted)
    chosen = marked.to(torch.bool)
    if bool(chosen.any()):
        some = Rows(rows.starts[chosen.to(rows.starts.device)], rows.lengths)
        stamp(buffer, some, found[chosen])


def copy_blocks(
    buffer: torch.Tensor, source: torch.Tensor, target: torch.Tensor, size: int
) -> None:
    """As `reference.copy_blocks`: through a scratch, so that all are read before any is written."""
    if not size or not len(source):
        return
    scratch = torch.empty(len(source) * size, dtype=torch.uint8, device=buffer.device)
    into = torch.arange(len(source), dtype=torch.int64) * size
    swap(buffer, scratch, source, into, size)
    swap(scratch, buffer, into, target, size)


def swap(
    source: torch.Tensor, target: torch.Tensor, here: torch.Tensor, there: torch.Tensor, size: int
) -> None:
    """As `reference.swap`; host memory must be pinned for a GPU to reach it."""
    if not size or not len(here):
        return
    device = source.device if source.is_cuda else target.device
    bits = size | 8
    for offsets in (here, there):
        bits |= int(torch.bitwise_and(offsets, 7).max()) if len(offsets) else 0
    width = bits & -bits
    if any(b.numel() % width or b.data_ptr() % width for b in (source, target)) or any(
        bool((o % width).any()) for o in (here, there)
    ):
        width = 1
    view = _VIEW[width]
    grid = (len(here), -(-(size // width) // SPAN))
    _move[grid](source.view(view), target.view(view), (here // width).to(device).contiguous(),
                (there // width).to(device).contiguous(), size // width, SPAN)  # fmt: skip


def compress(values: torch.Tensor, block: int, scale: str = "fp32") -> torch.Tensor:
    """As `reference.compress`: the scales by torch, the codes by the kernel."""
    n, d = values.shape
    parts = values.to(torch.float32).contiguous().view(n * (d // block), block)
    most = parts.abs().amax(dim=1).clamp(min=1e-4)
    if scale == "ue8m0":
        exponent = ceil_exponent(most / FP8_MAX)
        unit = torch.ldexp(torch.ones_like(most), exponent)
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
        exponent = tail.view(n, d // block).to(torch.int32) - 127
        unit = torch.ldexp(torch.ones(exponent.shape, device=packed.device), exponent)
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
