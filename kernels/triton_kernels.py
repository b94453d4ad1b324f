"""The operations of `reference` as Triton kernels, on the same `Rows`.

They run on a GPU, and on a CPU under Triton's interpreter (``TRITON_INTERPRET=1``), where the
tests hold them equal to the references.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton

from hkvtool.kernels.reference import FP8_MAX, ODD, ceil_exponent, power
from hkvtool.kernels.rows import Rows, sent
from hkvtool.kernels.stamps import BYTES, FREED, WORDS
from hkvtool.kernels.triton_sources import (
    _carry,
    _expand,
    _move,
    _poison,
    _quantise,
    _score,
    _spin,
    _stamp,
    _sum,
    _verify,
    _zero,
)


class Shape(NamedTuple):
    """How a kernel divides its work."""

    tile: int
    """Units that a program has in hand at once."""
    times: int
    """How many times it does so; of `fingerprint`, words of one row in a tile."""
    warps: int
    stages: int = 1
    """Tiles that are asked for ahead, and one."""


SHAPES = {
    "gather": {16: Shape(1024, 1, 8), 8: Shape(1024, 1, 8), 4: Shape(512, 2, 4)},
    "scatter": {16: Shape(512, 1, 4), 8: Shape(512, 1, 4), 4: Shape(512, 1, 4)},
    "stamp": {16: Shape(1024, 1, 8), 8: Shape(256, 1, 2), 4: Shape(256, 1, 2)},
    "zero": {16: Shape(512, 1, 4), 8: Shape(1024, 1, 8), 4: Shape(256, 1, 2)},
    "verify": {16: Shape(512, 8, 4), 8: Shape(1024, 4, 8), 4: Shape(256, 2, 2)},
    "poison": {16: Shape(1024, 2, 8), 8: Shape(512, 2, 4), 4: Shape(512, 1, 4)},
    "fingerprint": {16: Shape(512, 32, 4), 8: Shape(1024, 16, 4, 3), 4: Shape(512, 128, 4)},
    "swap": {16: Shape(2048, 1, 8), 8: Shape(2048, 1, 8), 4: Shape(2048, 1, 8)},
}
"""Of each operation by the narrowest of its units (4: or narrower), the fastest of those that
``tests/gpu_check.py --sweep`` tries, as measured on an H200."""

DEPTH = 8
"""Tiles of one long row that one program takes; what is longer is the work of several."""

JUDGED = (16, 64, 128)
"""Rows that a program can judge the stamps of: it has them all in hand at once. Few numbers, as
each is a kernel of its own."""


@dataclass(frozen=True)
class _Plan:
    """How rows divide into units."""

    widths: tuple[int, ...]
    """Bytes of a unit, by kind: segments side by side in the row, of one length but for the last,
    which may be shorter."""
    counts: tuple[int, ...]
    """Units of a segment, by kind."""
    wholes: tuple[int, ...]
    """Units of a row, by kind."""
    rows: int
    parts: int
    """Rows of a program, and programs of a row."""
    abouts: torch.Tensor
    """What `triton_sources._unit` divides by, ``int32[kinds, 8]``; kept on the device, so that a
    kernel that has run once can be captured in a graph."""

    @property
    def code(self) -> int:
        """The widths as one number: three bits each, their logarithms."""
        return sum((w.bit_length() - 1) << 3 * c for c, w in enumerate(self.widths))


def _divisor(by: int, most: int) -> tuple[int, int]:
    """Factor and shift that divide every number below `most` exactly: the factor is too large by
    less than one part in ``most * by``."""
    shift = (by * most).bit_length()
    return (1 << shift) // by + 1, shift


def _widths(lengths: Sequence[int], words: Sequence[int]) -> tuple[int, ...]:
    """Of each segment the widest unit that it divides into, in the row as in its place."""
    found, at = [], 0
    for length, word in zip(lengths, words, strict=True):
        bits = length | word | at
        found.append(bits & -bits)
        at += length
    return tuple(found)


@lru_cache(maxsize=1024)
def _plan(
    lengths: tuple[int, ...], words: tuple[int, ...], tile: int, times: int, cap: int,
    device: torch.device,
) -> _Plan:  # fmt: skip
    """The plan for rows of segments of such lengths and places, cached by geometry."""
    kinds: list[list[int]] = []
    at, before = 0, 0
    for s, (length, width) in enumerate(zip(lengths, _widths(lengths, words), strict=True)):
        if kinds and width == kinds[-1][1] and length <= before == kinds[-1][0]:
            kinds[-1][2] += length // width
        else:
            kinds.append([length, width, length // width, s, at])
        at, before = at + length, length
    most = max(whole for _, _, whole, *_ in kinds)
    rows = min(cap, max(1, tile * times // most))
    abouts = []
    for length, width, whole, first, at in kinds:
        units = length // width
        abouts.append((whole, *_divisor(whole, rows * whole), units, *_divisor(units, whole),
                       first, at))  # fmt: skip
    return _Plan(
        tuple(kind[1] for kind in kinds), tuple(kind[0] // kind[1] for kind in kinds),
        tuple(kind[2] for kind in kinds),
        rows, -(-most // (tile * DEPTH)) if rows == 1 else 1,
        torch.tensor(abouts, dtype=torch.int32).to(device),
    )  # fmt: skip


class _Units:
    """Rows as units, and what every kernel over them takes. `limit` is a number of bytes whose
    multiples units must begin on elsewhere too."""

    def __init__(self, operation: str, buffer: torch.Tensor, rows: Rows, limit: int = 16,
                 lengths: tuple[int, ...] = ()) -> None:  # fmt: skip
        self.buffer = buffer
        self.starts = sent(rows.starts, buffer.device).contiguous()
        self.count, self.segments = len(rows), len(rows.lengths)
        lengths = lengths or rows.lengths
        bits = buffer.data_ptr() | limit | 16
        words = tuple(min(word, bits & -bits) for word in rows.words[: len(lengths)])
        widths = _widths(lengths, words)
        self.head = widths[0] if lengths[0] >= BYTES and widths[0] >= 8 else 0
        if self.head and operation == "verify":
            # Every unit is held against the row's first ones: as they begin, so may it.
            words = tuple(min(word, self.head) for word in words)
        self.shape = SHAPES[operation][max(4, min(widths))]
        cap = JUDGED[-1] if operation in ("verify", "poison") else 1 << 16
        self.plan = _plan(lengths, words, self.shape.tile, self.shape.times, cap, buffer.device)

    @property
    def split(self) -> bool:
        """Whether a row is the work of several programs."""
        return self.plan.parts > 1

    @property
    def judged(self) -> int:
        """Rows that a program judges the stamps of, those of it that there are."""
        return next(rows for rows in JUDGED if rows >= self.plan.rows)

    def run(self, kernel: Any, *given: Any, extra: Sequence[int] = (), **constants: Any) -> None:
        """Launch a kernel. What only judges rows is not the work of several programs a row."""
        plan = self.plan
        judges = constants.get("JUDGE", False) and self.split
        kernel[(-(-self.count // plan.rows), 1 if judges else plan.parts)](
            self.buffer, self.starts, *given, plan.abouts, self.count, self.segments, *extra,
            plan.rows, WIDTHS=plan.code, KINDS=len(plan.widths), T=self.shape.tile,
            STAGES=self.shape.stages, num_warps=self.shape.warps, **constants,
        )  # fmt: skip


def _bytes(words: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Stamps as bytes on a device, where a unit of them can be read at once."""
    there = sent(words, device).contiguous()
    return (there if there.data_ptr() % 16 == 0 else there.clone()).view(torch.uint8)


def gather(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.gather`."""
    packed = torch.empty((len(rows), rows.row_bytes), dtype=torch.uint8, device=buffer.device)
    if len(rows):
        _Units("gather", buffer, rows, rows.row_bytes | packed.data_ptr()).run(
            _carry, packed, extra=(rows.row_bytes,), OUT=True)  # fmt: skip
    return packed


def scatter(buffer: torch.Tensor, rows: Rows, packed: torch.Tensor) -> None:
    """As `reference.scatter`."""
    if len(rows):
        even = sent(packed, buffer.device).contiguous()
        _Units("scatter", buffer, rows, rows.row_bytes | even.data_ptr()).run(
            _carry, even, extra=(rows.row_bytes,), OUT=False)  # fmt: skip


def _heads(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.heads` of the packed rows, ``int64[n, 4]``."""
    found = torch.zeros((len(rows), WORDS), dtype=torch.int64, device=buffer.device)
    cut, left = [], BYTES
    for length in rows.lengths:
        if left:
            cut.append(min(length, left))
            left -= cut[-1]
    _Units("gather", buffer, rows, BYTES, tuple(cut)).run(
        _carry, found.view(torch.uint8), extra=(BYTES,), OUT=True)  # fmt: skip
    return found


def stamp(buffer: torch.Tensor, rows: Rows, stamps: torch.Tensor) -> None:
    """As `reference.stamp`."""
    if len(rows):
        _Units("stamp", buffer, rows).run(_stamp, _bytes(stamps, buffer.device))


def zero(buffer: torch.Tensor, rows: Rows) -> None:
    """As `reference.zero`."""
    if len(rows):
        _Units("zero", buffer, rows).run(_zero)


def _held(units: _Units, rows: Rows) -> torch.Tensor:
    """Room for the stamps that rows hold; the stamps, where no first segment has them whole."""
    if not units.head:
        return _heads(units.buffer, rows)
    return torch.empty((len(rows), WORDS), dtype=torch.int64, device=units.buffer.device)


def _stages(units: _Units, last: str) -> list[dict[str, Any]]:
    """Rows are judged and gone through by one launch, or by two: a program must not go through
    what another has yet to judge."""
    if units.split:
        return [{"JUDGE": True, last: False}, {"JUDGE": False, last: True}]
    return [{"JUDGE": True, last: True}]


def verify(
    buffer: torch.Tensor, rows: Rows, expected: torch.Tensor, fields: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `reference.verify`."""
    device = buffer.device
    wrong = torch.empty(len(rows), dtype=torch.int8, device=device)
    if not len(rows):
        return wrong.view(torch.bool), torch.empty((0, WORDS), dtype=torch.int64, device=device)
    units = _Units("verify", buffer, rows)
    found = _held(units, rows)
    care = sent(fields if fields.stride(0) else fields[:1], device).contiguous()
    due = sent(expected, device).contiguous()
    for stage in _stages(units, "WHOLE"):
        units.run(_verify, found.view(torch.uint8), due, care, wrong,
                  extra=(WORDS if len(care) > 1 else 0,), HEAD=units.head,
                  CHECK=rows.row_bytes >= BYTES,
                  N=units.judged, **stage)  # fmt: skip
    return wrong.view(torch.bool), found


def fingerprint(buffer: torch.Tensor, rows: Rows) -> torch.Tensor:
    """As `reference.fingerprint`."""
    sums = torch.empty(len(rows), dtype=torch.int64, device=buffer.device)
    if not len(rows):
        return sums
    units = _Units("fingerprint", buffer, rows)
    tile, across, warps, stages = units.shape
    plan = units.plan
    words = [count * max(1, width // 8) for width, count in zip(plan.widths, plan.counts,
                                                                strict=True)]  # fmt: skip
    wide = [min(across * 8 // min(width, 8), triton.next_power_of_2(count))
            for width, count in zip(plan.widths, words, strict=True)]  # fmt: skip
    # In one step: where a kind is one segment, as wide as the tile at most.
    single = [whole == count and along <= most for whole, count, along, most
              in zip(plan.wholes, plan.counts, words, wide, strict=True)]  # fmt: skip
    once = sum(fits << c for c, fits in enumerate(single))
    down = max(1, tile // max(wide))
    _sum[(-(-len(rows) // down),)](
        buffer, units.starts, sums, plan.abouts, len(rows), units.segments, rows.row_bytes,
        WIDTHS=plan.code, KINDS=len(wide), ONCE=once, R=down, STAGES=stages, ODD_=ODD,
        ACROSS=sum((w.bit_length() - 1) << 4 * c for c, w in enumerate(wide)), num_warps=warps,
    )  # fmt: skip
    return sums


def poison(buffer: torch.Tensor, rows: Rows, *, lifted: bool = False) -> None:
    """As `reference.poison`."""
    if rows.row_bytes < BYTES or not len(rows):
        return
    units = _Units("poison", buffer, rows)
    found = _held(units, rows)
    due = torch.empty(len(rows), dtype=torch.int8, device=buffer.device)
    for stage in _stages(units, "WRITE"):
        units.run(_poison, found.view(torch.uint8), due, HEAD=units.head, FLIP=FREED,
                  LIFTED=lifted,
                  N=units.judged, **stage)  # fmt: skip


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
        low |= sum(bit for bit in (1, 2, 4, 8) if bool((offsets & bit).any()))
    low |= source.data_ptr() | target.data_ptr()
    low |= 16
    width = low & -low
    tile, _, warps, _ = SHAPES["swap"][max(4, width)]
    tiles = -(-size // (width * tile))
    # Sent at once: two transfers take as long as copying many a block.
    places = sent(torch.stack((here, there.to(here.device))), device)
    _move[(len(here) * tiles,)](
        source, target, places, len(here), size // width, tiles, W=width, T=tile, num_warps=warps
    )


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
