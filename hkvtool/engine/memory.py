"""Real bytes behind block ids: every stored entry carries a stamp that says what it is.

A stamp is 16 bytes: the content of the token (what the sequence is up to it), and the group, the
token position, the version and the generation it was written in. What a read must find follows
from the request's own tokens and the kernel's arguments alone, so a mismatch is a witness that
knows nothing of hashes, counts or validation. One representative layer a group is kept, or all of
them, one behind the other; all tables overlay the same pages, as they do in an engine, so a stale
block table reads whatever form the block holds now.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hkvtool.engine.geometry import Group, Preset
from hkvtool.engine.workload import SALT_SHIFT, TOKEN_BITS, Request
from hkvtool.model.errors import HkvError
from hkvtool.model.forms import Form

VERSION_BITS, GENERATION_BITS = 12, 23
_LOW = VERSION_BITS + GENERATION_BITS
_VERSION = ((1 << VERSION_BITS) - 1) << GENERATION_BITS
_LAYER = 56
"""Where in the content's word the layer stands."""

GARBLE = 0x2A5A5A5A
"""Bits to flip where bytes are to be wrong."""

_KEPT = 100
"""Mismatches told in full; the rest are counted."""


@dataclass(frozen=True)
class Mismatch:
    """A read that did not find its own bytes: where, what was due, whose bytes it got."""

    req: str
    step: int
    group: str
    block: int
    row: int
    expected: dict[str, int | str]
    found: dict[str, int | str]


class Pages:
    """The pages of one medium, rows of 16 bytes, made lazily by the system as they are written."""

    def __init__(self, blocks: int, rows: int, device: str = "cpu", file: Path | None = None):
        if file is None:
            self.rows = torch.zeros((blocks, rows, 2), dtype=torch.int64, device=device)
            return
        size = blocks * rows * 16
        try:
            with file.open("wb") as out:
                os.posix_fallocate(out.fileno(), 0, max(size, 1))
        except OSError as e:
            raise HkvError(
                f"the disk tier's {size:,} bytes cannot be had: {e.strerror}", where=str(file),
                hint="give it fewer blocks, or set TMPDIR to a file system with room",
            ) from None  # fmt: skip
        flat = torch.from_file(str(file), shared=True, size=blocks * rows * 2, dtype=torch.int64)
        self.rows = flat.view(blocks, rows, 2)


class Memory:
    """The bytes of an engine's pools, and the account of what reads found there."""

    def __init__(self, preset: Preset, device: str = "cpu", *, all_layers: bool = False) -> None:
        self.preset = preset
        self.device = device
        self.pages: dict[str, Pages] = {}
        self.number = {group.name: i + 1 for i, group in enumerate(preset.groups)}
        self.names = {number: name for name, number in self.number.items()}
        self.offset: dict[str, int] = {}
        self.layers = {g.name: g.layers if all_layers else 1 for g in preset.groups}
        self._layer_words = {
            name: torch.arange(count, device=device)[:, None] << _LAYER
            for name, count in self.layers.items()
        }
        self.block_rows = preset.page_rows(all_layers=all_layers)
        for table in preset.tables:
            at = 0
            for group in table.groups:
                self.offset[group.name] = at
                at += group.rows * self.layers[group.name]
        self.mismatches: list[Mismatch] = []
        self.bad_reads = 0
        self.reads = 0
        self.rows_read = 0
        self._contents: dict[str, Any] = {}
        self._pending: list[tuple[Any, ...]] = []
        self._tokens = torch.arange(1 << 16, device=device)

    def add(self, pool: str, blocks: int, file: Path | None = None) -> None:
        """Back a pool with pages: device memory, host memory, or a file."""
        device = self.device if pool == "gpu" else "cpu"
        self.pages[pool] = Pages(blocks, self.block_rows, device, file)

    # --- the kernels -------------------------------------------------------------------------

    def write(
        self, group: Group, request: Request, blocks: Sequence[int], first: int,
        start: int, end: int, marks: Sequence[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Stamp tokens [start, end) of a request; `blocks` begin at index `first` of its table.

        `marks` gives the version and the generation of each block.
        """
        rows, low = group.rows, [v << GENERATION_BITS | g for v, g in marks]
        ids = torch.tensor(blocks, device=self.device)
        _, entries, content, tag = self._due(group, request, start, end)
        at = (entries - first * rows).div(rows, rounding_mode="floor")
        mark = torch.tensor(low, device=self.device)[at] & ((1 << _LOW) - 1)
        words = self._layer_words[group.name]
        content = content | words
        stamps = torch.stack((content, (tag << _LOW | mark).expand_as(content)), dim=2)
        layers = (words >> _LAYER) * rows + self.offset[group.name]
        self.pages["gpu"].rows[ids[at], entries % rows + layers] = stamps

    def read(
        self, group: Group, request: Request, blocks: Sequence[int], first: int,
        start: int, end: int, step: int,
    ) -> None:  # fmt: skip
        """Read tokens [start, end) as a kernel does, and queue what was found for `settle`."""
        found = self._gather("gpu", group, blocks)
        entry, entries, content, tag = self._due(group, request, start, end)
        skip, count = entry - first * group.rows, len(entries)
        rows = found[:, skip : skip + count]
        content = content | self._layer_words[group.name]
        bad = (rows[..., 0] != content) | ((rows[..., 1] >> _LOW) != tag)
        self._queue(bad, rows, content, tag.expand_as(content), group, request, blocks, skip, step)

    def read_versions(
        self, index: Group, served: Group, request: Request, blocks: Sequence[int],
        entries: int, step: int,
    ) -> None:  # fmt: skip
        """Compare the version of indexer rows with that of the history they route to."""
        both = min(self.layers[index.name], self.layers[served.name])
        mine = self._gather("gpu", index, blocks)[:both, :entries]
        theirs = self._gather("gpu", served, blocks)[:both, :entries]
        bad = ((mine[..., 1] ^ theirs[..., 1]) & _VERSION) != 0
        due = theirs[..., 1] >> _LOW
        self._queue(bad, mine, theirs[..., 0], due, index, request, blocks, 0, step)

    def zero(self, blocks: Sequence[int]) -> None:
        """Clear whole blocks, whatever form they hold."""
        self.pages["gpu"].rows[torch.tensor(blocks, device=self.device)] = 0

    def copy(self, source: int, target: int) -> None:
        """Copy one block on the device."""
        self.pages["gpu"].rows[target] = self.pages["gpu"].rows[source]

    def move(
        self, group: Group, source: str, target: str, here: Sequence[int], there: Sequence[int]
    ) -> None:
        """Move a group's rows of blocks between two media."""
        pages, section = self.pages[target].rows, self._section(group)
        ids = torch.tensor(there, device=pages.device)
        pages[ids, section] = self._whole(source, group, here).to(pages.device)

    def read_clear(self, group: Group, request: Request, block: int, row: int, step: int) -> None:
        """Read the rows of a block from `row` on as a kernel that counts on their being clear."""
        rows = self._gather("gpu", group, [block])[:, row:]
        nothing = torch.zeros_like(rows[..., 0])
        self._queue((rows != 0).any(2), rows, nothing, nothing, group, request, [block], row, step)

    def clear(self, group: Group, block: int, row: int) -> bool:
        """Whether a block's rows from `row` on are all zero."""
        return not bool(self._gather("gpu", group, [block])[:, row:].any())

    def garble(self, pool: str, group: Group, blocks: Sequence[int], bits: int) -> None:
        """Flip bits in every row of these blocks, as a wrong codec or a broken link would."""
        pages = self.pages[pool].rows
        pages[torch.tensor(blocks, device=pages.device), self._section(group)] ^= bits

    def fingerprint(self, pool: str, group: Group, blocks: Sequence[int]) -> list[int]:
        """A checksum of each block's rows, the same wherever they stand."""
        rows = self._whole(pool, group, blocks).view(len(blocks), -1)
        weights = self._positions(rows.shape[1])[: rows.shape[1]].to(rows.device) * 2 + 1
        sums: list[int] = ((rows * weights).sum(1) & (1 << 61) - 1).tolist()
        return sums

    # --- the account -------------------------------------------------------------------------

    def settle(self) -> int:
        """Look at what the reads since the last call found; returns how many were wrong.

        On a device this is the one point of a step where the host waits for it.
        """
        pending, self._pending = self._pending, []
        if not pending:
            return 0
        flags = torch.stack([entry[0].any() for entry in pending]).tolist()
        for wrong, entry in zip(flags, pending, strict=True):
            if wrong:
                self.bad_reads += 1
                if len(self.mismatches) < _KEPT:
                    self.mismatches.append(self._told(*entry))
        return sum(flags)

    def forget(self, req: str) -> None:
        """The request is over; its tokens need not be kept."""
        self._contents.pop(req, None)

    def _queue(self, bad: Any, rows: Any, *rest: Any) -> None:
        self.reads += 1
        self.rows_read += rows.shape[0] * rows.shape[1]
        self._pending.append((bad, rows, *rest))

    def _told(
        self, bad: Any, rows: Any, content: Any, tag: Any, group: Group, request: Request,
        blocks: Sequence[int], skip: int, step: int,
    ) -> Mismatch:  # fmt: skip
        layer, at = bad.nonzero()[0].tolist()
        return Mismatch(
            request.id, step, group.name, blocks[(skip + at) // group.rows],
            (skip + at) % group.rows,
            self._stamp(int(content[layer, at]), int(tag[layer, at]) << _LOW),
            self._stamp(int(rows[layer, at, 0]), int(rows[layer, at, 1])),
        )  # fmt: skip

    def _stamp(self, content: int, word: int) -> dict[str, int | str]:
        tag = word >> _LOW
        return {
            "content": content & ((1 << _LAYER) - 1),
            "layer": content >> _LAYER,
            "group": self.names.get(tag >> TOKEN_BITS, "nothing"),
            "token": tag & ((1 << TOKEN_BITS) - 1),
            "version": (word & _VERSION) >> GENERATION_BITS,
            "generation": word & ((1 << GENERATION_BITS) - 1),
        }

    def _due(
        self, group: Group, request: Request, start: int, end: int
    ) -> tuple[int, Any, Any, Any]:
        """Entries of tokens [start, end), the content and the tag (group, token) each must hold,
        and before them the number of the first entry.

        An entry that stands for several tokens is known by its last one; a recurrent state is
        one entry, known by the last token it has seen.
        """
        if group.form is Form.RECURRENT:
            ratio, first, last = 1, end - 1, end
            entry = first // group.block_tokens
            entries = self._positions(end)[entry : entry + 1]
        else:
            ratio, first, last = group.ratio, start // group.ratio, end // group.ratio
            entry, entries = first, self._positions(last)[first:last]
        content = self._content(request)[first * ratio + ratio - 1 : last * ratio : ratio]
        tokens = self._positions(last * ratio)[first * ratio + ratio - 1 : last * ratio : ratio]
        return entry, entries, content, tokens + (self.number[group.name] << TOKEN_BITS)

    def _positions(self, end: int) -> Any:
        if len(self._tokens) < end:
            self._tokens = torch.arange(1 << end.bit_length(), device=self.device)
        return self._tokens

    def _content(self, request: Request) -> Any:
        known = self._contents.get(request.id)
        if known is None:
            nodes = torch.tensor(request.nodes, dtype=torch.int64)
            own = torch.full((request.output + 64,), request.own, dtype=torch.int64)
            prompt = nodes.repeat_interleave(request.unit)[: request.prompt]
            salted = torch.cat((prompt, own)) | request.salt << SALT_SHIFT
            known = self._contents[request.id] = salted.to(self.device)
        return known

    def _section(self, group: Group) -> slice:
        """Where in a block the group's rows stand, layer after layer."""
        offset = self.offset[group.name]
        return slice(offset, offset + group.rows * self.layers[group.name])

    def _whole(self, pool: str, group: Group, blocks: Sequence[int]) -> Any:
        """The group's rows of blocks: block, row of any layer, word."""
        pages = self.pages[pool].rows
        ids = torch.tensor(blocks, device=pages.device)
        return pages[:, self._section(group)].index_select(0, ids)

    def _gather(self, pool: str, group: Group, blocks: Sequence[int]) -> Any:
        """The same as a kernel sees them: layer, row of all blocks, word."""
        rows = self._whole(pool, group, blocks)
        return rows.view(len(blocks), -1, group.rows, 2).transpose(0, 1).flatten(1, 2)
