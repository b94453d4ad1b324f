"""Rows: where the bytes of a stored entry lie in a page, for every layout that engines use.

A row is a stored entry: a token's K and V, a latent with its scales, an indexer key, a
compressor's state. It lies in one piece or in several *segments* (K and V planes, heads, data
rows and scale rows), always in the same order, so a row is a list of byte offsets and the lengths
that belong to them. Everything else in this package works on such lists, and so on any stride,
overlay or order.

Sources of the byte layouts: FlashMLA's fp8 formats, the cache kernels of vLLM and SGLang.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import torch

SPLIT = frozenset({(584, 8), (132, 4), (68, 4)})
"""Row and scale bytes of the formats that keep the scale rows of a page behind all its data rows:
DeepSeek-V4 latents, indexer keys in fp8 and fp4."""

HEADS = 8
"""Heads of a K/V page whose layout states an axis order and no head count."""


@dataclass(frozen=True)
class Page:
    """One block's share of one layer.

    `starts` is ``int64[rows, segments]``, byte offsets within the block; `lengths` the bytes of
    each segment. Row `e` of block `b` begins at ``(b * parts + e // rows) * stride + offset``,
    where a block of the manager is `parts` blocks of the kernel.
    """

    starts: torch.Tensor
    lengths: tuple[int, ...]
    bytes: int
    stride: int
    offset: int = 0
    parts: int = 1

    @property
    def rows(self) -> int:
        return int(self.starts.shape[0])

    @property
    def row_bytes(self) -> int:
        return sum(self.lengths)

    def at(self, blocks: torch.Tensor, entries: torch.Tensor) -> Rows:
        """The rows `entries` of `blocks`, pair by pair."""
        block = blocks * self.parts + entries.div(self.rows, rounding_mode="floor")
        base = block * self.stride + self.offset
        return Rows(base[:, None] + self.starts[entries % self.rows], self.lengths)

    def span(self, block: int) -> tuple[int, int]:
        """First byte of a block and the one behind its last."""
        first = block * self.parts * self.stride + self.offset
        return first, first + (self.parts - 1) * self.stride + self.bytes


@dataclass(frozen=True)
class Rows:
    """Some rows in a flat buffer: ``starts`` ``int64[n, segments]``, and each segment's bytes."""

    starts: torch.Tensor
    lengths: tuple[int, ...]

    def __len__(self) -> int:
        return int(self.starts.shape[0])

    @property
    def row_bytes(self) -> int:
        return sum(self.lengths)

    def on(self, device: torch.device | str) -> Rows:
        """These rows with their starts on a device: what is done with them there waits for
        nothing here."""
        moved = Rows(sent(self.starts, torch.device(device)).contiguous(), self.lengths)
        # Worked out where the starts already are, or every kernel would have to wait for it.
        moved.__dict__["words"] = self.words
        return moved

    @cached_property
    def words(self) -> tuple[int, ...]:
        """Of each segment the widest access, 16, 8, 4, 2 or 1 bytes, that it begins and ends on
        in every row."""
        bits = [length | 16 for length in self.lengths]
        if len(self):
            for bit in (1, 2, 4, 8):
                off = (self.starts & bit).any(dim=0).tolist()
                bits = [had | (bit if there else 0) for had, there in zip(bits, off, strict=True)]
        return tuple(had & -had for had in bits)

    @property
    def word(self) -> int:
        """The widest access of up to 8 bytes that all segments begin and end on."""
        return min(8, *self.words)


def sent(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A tensor on a device, in the order of the current stream; nothing here waits for the copy."""
    if tensor.device.type != "cpu" or device.type != "cuda" or not tensor.numel():
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def plain_page(rows: int, row_bytes: int, stride: int = 0, page_bytes: int = 0) -> Page:
    """Row after row; one row is a recurrent state page (convolution, then state)."""
    starts = torch.arange(rows, dtype=torch.int64)[:, None] * row_bytes
    size = max(page_bytes, rows * row_bytes)
    return Page(starts, (row_bytes,), size, stride or size)


def split_page(
    rows: int, row_bytes: int, scale_bytes: int, stride: int = 0, page_bytes: int = 0
) -> Page:
    """All data rows of the page first, then all scale rows (DeepSeek-V4, indexer keys)."""
    data = row_bytes - scale_bytes
    entry = torch.arange(rows, dtype=torch.int64)
    starts = torch.stack((entry * data, rows * data + entry * scale_bytes), dim=1)
    size = max(page_bytes, rows * row_bytes)
    return Page(starts, (data, scale_bytes), size, stride or size)


def ordered_page(
    rows: int, row_bytes: int, order: Sequence[str], blocks: int, heads: int = HEADS,
    stride: int = 0, page_bytes: int = 0,
) -> Page:  # fmt: skip
    """A K/V page by its axis order, e.g. ``block,kv,token,head,dim``.

    Axes left of ``block`` are planes over all `blocks` blocks (K of the whole pool, then V).
    """
    sizes = {"block": 1, "kv": 2, "head": heads, "token": rows}
    inner = sizes["kv"] * sizes["head"]
    if row_bytes % inner:
        sizes["head"], inner = 1, 2
    sizes["dim"] = row_bytes // inner
    axes = [axis for axis in order if axis in sizes]
    at = axes.index("block")
    strides: dict[str, int] = {}
    step = 1
    for axis in reversed(axes[at + 1 :]):
        strides[axis] = step
        step *= sizes[axis]
    strides["block"] = max(stride, step)
    plane = strides["block"] * max(1, blocks)
    for axis in reversed(axes[:at]):
        strides[axis] = plane
        plane *= sizes[axis]
    segments = _runs(axes, sizes, strides)
    token = torch.arange(rows, dtype=torch.int64) * strides["token"]
    starts = token[:, None] + torch.tensor([first for first, _ in segments], dtype=torch.int64)
    # Planes beside the block's own belong to it too: its bytes are those of its segments.
    last = max(first for first, _ in segments) + (rows - 1) * strides["token"] + segments[-1][1]
    return Page(
        starts, tuple(length for _, length in segments), max(page_bytes, last), strides["block"]
    )


def _runs(
    axes: Sequence[str], sizes: Mapping[str, int], strides: Mapping[str, int]
) -> list[tuple[int, int]]:
    """Contiguous pieces of one token: offset and length, in axis order."""
    others = [axis for axis in axes if axis not in ("block", "token", "dim")]
    pieces: list[tuple[int, int]] = []
    for index in product(*(range(sizes[axis]) for axis in others)):
        first = sum(i * strides[axis] for i, axis in zip(index, others, strict=True))
        if pieces and sum(pieces[-1]) == first:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + sizes["dim"])
        else:
            pieces.append((first, sizes["dim"]))
    return pieces


def page_of(layout: Mapping[str, Any], rows: int, blocks: int, row_bytes: int) -> Page:
    """The page that a trace's `layout` describes, `rows` entries of `row_bytes` each."""
    scale = layout.get("scale_bytes") or 0
    stride = layout.get("stride_bytes") or 0
    size = layout.get("page_bytes") or 0
    order = str(layout.get("order") or "").split(",")
    if rows > 1 and "kv" in order and "block" in order and "token" in order and row_bytes % 2 == 0:
        return ordered_page(rows, row_bytes, order, blocks, stride=stride, page_bytes=size)
    if (row_bytes, scale) in SPLIT:
        return split_page(rows, row_bytes, scale, stride, size)
    return plain_page(rows, row_bytes, stride, size)
