"""The hybrid allocator: an allocator that tracks form as well as space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from hkvtool.engine.geometry import Preset, Table
from hkvtool.engine.lookup import Hit, lookup
from hkvtool.engine.pool import NO_KEY, BlockPool, Evicted, Reformed
from hkvtool.engine.workload import Request
from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.forms import Form

Published = list[tuple[int, int, int]]
"""Blocks of one table that were published: index, block, hash."""

Blocks = dict[int, int]
"""A request's blocks of one table: index (token position // block size) to block id."""


class Emit(Protocol):
    """Where events go: the name of the event, then its keys."""

    def __call__(self, ev: str, /, **keys: Any) -> None: ...


def runs(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Maximal stretches of consecutive indices as [first, last + 1)."""
    out: list[tuple[int, int]] = []
    for index in indices:
        if out and out[-1][1] == index:
            out[-1] = (out[-1][0], index + 1)
        else:
            out.append((index, index + 1))
    return out


class HybridAllocator:
    """Blocks for a model whose layers keep history in several forms at once.

    What a request goes through, in calls::

        hit = allocator.lookup(request, known, last)   # per group, then the fixed point
        validate_resume(...)                           # four layers, before anything is relied on
        allocator.hold(request, hit)                   # references from here on: check = use
        allocator.extend(request.id, {"c4": (0, 512), "swa0": (0, 512)})
        ...                                            # a step writes and reads
        allocator.written(request.id, "c4", 0, 512)    # when the step has retired
        allocator.publish(request, 512)                # only now can others hit it
        allocator.slide(request.id, 512)               # windows and tails drop what is behind
        allocator.release(request.id)                  # last block first

    Three things set it apart from an allocator of space:

    * a block has a *form*, by the table it was taken for; all tables draw from one pool, so a
      block that changes table changes form and must be overwritten before it is read;
    * a hash leads to content of one table only, and a hit is where all tables agree;
    * sparse forms (windows, tails, recurrent states) are published at *checkpoints*, positions
      where all forms are complete at once: anything else could never be resumed from.

    `emit` is told everything that is done, in the order it is done, as `hkv/1` events.
    """

    def __init__(self, preset: Preset, blocks: int, emit: Emit, tiers: Sequence[BlockPool] = ()):
        self.preset = preset
        self.emit = emit
        # Block 0 is never handed out: padding rows of a batch may write there.
        self.gpu = BlockPool("gpu", "gpu", blocks, reserved=1, places=preset.places)
        self.pools = (self.gpu, *tiers)
        self.table_of: dict[str, Table] = {table.name: table for table in preset.tables}
        self.held: dict[str, dict[str, Blocks]] = {}
        """Blocks by request and table."""
        self.reformed: Reformed = {}
        """Blocks taken for another table than they were of, to be zeroed before they are read."""
        self._published: dict[str, dict[str, int]] = {}
        self._sources: dict[str, list[tuple[str, int]]] = {}

    def lookup(
        self, request: Request, known: int, last: int, pools: Sequence[BlockPool] | None = None
    ) -> Hit:
        """The prefix match of a request's first `last` of `known` tokens; changes nothing."""
        return lookup(self.preset, request, known, self.pools if pools is None else pools, last)

    def hold(self, request: Request, hit: Hit) -> None:
        """Take a reference on every resident block of the hit and make it the request's.

        From here to the last use nothing can take the blocks away, so what the lookup found is
        what the step reads.
        """
        tables = self.held.setdefault(request.id, {name: {} for name in self.table_of})
        self._published[request.id] = {
            name: hit.at // table.lead.block_tokens for name, table in self.table_of.items()
        }
        for name, found in hit.sources.items():
            resident = {index: block for index, tier, block in found if tier == 0}
            if resident:
                self.gpu.touch(resident.values())
                self.emit("touch", req=request.id, group=name, blocks=list(resident.values()))
                tables[name].update(resident)

    def missing(self, req: str, ranges: Mapping[str, tuple[int, int]]) -> dict[str, list[int]]:
        """Indices of the blocks that these token ranges need and the request does not hold."""
        out: dict[str, list[int]] = {}
        for name, (start, end) in ranges.items():
            blocks = self.held[req][name] if req in self.held else {}
            absent = [i for i in self.table_of[name].lead.span(start, end) if i not in blocks]
            if absent:
                out[name] = absent
        return out

    def extend(self, req: str, ranges: Mapping[str, tuple[int, int]]) -> bool:
        """Take blocks for these token ranges of each table, all of them or none."""
        missing = self.missing(req, ranges)
        if sum(map(len, missing.values())) > self.gpu.available:
            return False
        for name, indices in missing.items():
            self.take(req, name, indices)
        return True

    def take(
        self, req: str, name: str, indices: Sequence[int], *, aside: bool = False
    ) -> list[int]:
        """Take a block for each index of the table. The caller knows that there are enough.

        `aside`: they do not enter the table yet, for a load that has to arrive first.
        """
        size = self.table_of[name].lead.block_tokens
        blocks, reformed, evicted = self.gpu.take(name, [index * size for index in indices])
        self.evicted(evicted)
        self.reformed |= reformed
        if not aside:
            self.held[req][name].update(zip(indices, blocks, strict=True))
        done = 0
        for first, last in runs(indices):
            part = blocks[done : done + last - first]
            done += last - first
            self.emit("alloc", req=req, group=name, blocks=part, tokens=[first * size, last * size])
        return blocks

    def evicted(self, evicted: Evicted, suffix: str = "") -> None:
        """Say which hashes went because their blocks were taken."""
        for name, blocks in evicted.items():
            self.emit("unpublish", group=name + suffix, blocks=blocks, reason="evict")

    def copy_on_write(self, req: str, name: str, index: int) -> tuple[int, int]:
        """Give the request a block of its own in place of a shared one; (source, destination).

        The source stays referenced, since the copy has yet to run, until `copied`.
        """
        source = self.held[req][name][index]
        self._sources.setdefault(req, []).append((name, source))
        (copy,) = self.take(req, name, [index])
        self.gpu.adopt(source, self.gpu, copy)
        return source, copy

    def copied(self, req: str) -> None:
        """The step that ran the request's copies has retired: let go of their sources."""
        for name, source in self._sources.pop(req, ()):
            self.drop(req, name, [source])

    def written(self, req: str, name: str, start: int, end: int) -> None:
        """Tokens [start, end) of a table are written and the step that wrote them is done."""
        size, blocks = self.table_of[name].lead.block_tokens, self.held[req][name]
        for index in range(start // size, -(-end // size)):
            self.gpu.filled[blocks[index]] = min(size, end - index * size)

    def publish(self, request: Request, done: int) -> dict[str, Published]:
        """Publish what became complete with `done` tokens computed, by table.

        A history publishes each full block, a sparse form only at a checkpoint. Content that is
        published already keeps its first block.
        """
        out: dict[str, Published] = {}
        preset, checkpoint = self.preset, done % self.preset.grain == 0
        for name, blocks in self.held[request.id].items():
            table = self.table_of[name]
            size = table.lead.block_tokens
            if table.lead.sparse or table.lead.form is Form.RECURRENT:
                indices = table.lead.span(*table.lead.needs(done)) if checkpoint else range(0)
            else:
                indices = range(self._published[request.id][name], done // size)
                self._published[request.id][name] = done // size
            if indices:
                if preset.partial:
                    self._promote(name, [blocks[index] for index in indices])
                new = [
                    (index, blocks[index], key)
                    for index, key in zip(indices, request.keys(indices, size), strict=True)
                    if self.gpu.filled[blocks[index]] == size
                    and self.gpu.publish(name, key, blocks[index])
                ]
                if new:
                    self.announce(request, self.gpu, name, new)
                    out[name] = new
        return out

    def publish_partial(self, request: Request) -> None:
        """Publish the last block of the prompt although it is not full: the same prompt can
        then be resumed at its very end, behind a copy of that block."""
        (table,) = self.preset.tables
        name, size = table.name, table.lead.block_tokens
        index = request.prompt // size
        block = self.held[request.id][name].get(index)
        key = request.key(request.prompt)
        if block is None or request.prompt % size == 0:
            return
        if self.gpu.publish(name, key, block, partial=True):
            self.emit(
                "publish", req=request.id, group=name, blocks=[block], hashes=[key],
                tokens=[index * size, request.prompt],
            )  # fmt: skip

    def _promote(self, name: str, blocks: Iterable[int]) -> None:
        """A partial entry gives way to the hash of the full block, so that one block is never
        known by two hashes of which eviction could forget one."""
        for block in blocks:
            key = self.gpu.promote(block)
            if key != NO_KEY:
                self.emit("unpublish", group=name, hashes=[key], reason="promote")

    def announce(self, request: Request, pool: BlockPool, name: str, new: Published) -> None:
        """Emit the publication of blocks of one table in one pool."""
        size, at = self.table_of[name].lead.block_tokens, 0
        for first, last in runs([index for index, _, _ in new]):
            part = new[at : at + last - first]
            at += last - first
            self.emit(
                "publish", req=request.id,
                group=name if pool is self.gpu else f"{name}@{pool.name}",
                blocks=[block for _, block, _ in part], hashes=[key for _, _, key in part],
                tokens=[first * size, last * size],
            )  # fmt: skip

    def slide(self, req: str, done: int) -> None:
        """Drop the blocks that no token from `done` on needs: behind the window, in closed
        compression units, of earlier recurrent states."""
        for name, blocks in self.held[req].items():
            table = self.table_of[name]
            if table.history:
                continue
            start, _ = table.lead.needs(done)
            first = start // table.lead.block_tokens
            gone = [index for index in blocks if index < first]
            if not gone:
                continue
            left = [blocks.pop(index) for index in gone]
            if table.lead.form is not Form.RECURRENT:
                self.emit("slide", req=req, group=name, blocks=left, window_start=start)
            self.drop(req, name, left[::-1])

    def drop(self, req: str, name: str, blocks: list[int]) -> None:
        """One reference of the request less on each of these blocks, in this order."""
        front = self.gpu.release(blocks)
        keys: dict[str, Any] = {"front": front} if front else {}
        self.emit("free", req=req, group=name, blocks=blocks, **keys)

    def release(self, req: str) -> None:
        """Give back everything a request holds, the end of each table first."""
        self.copied(req)
        for name, blocks in self.held.pop(req, {}).items():
            if blocks:
                self.drop(req, name, [blocks[index] for index in sorted(blocks, reverse=True)])
        self._published.pop(req, None)

    def state(self, block: int, pool: BlockPool | None = None) -> CacheBlockState:
        """What the allocator holds for true of one block, as the public record."""
        pool = pool or self.gpu
        table = self.table_of[pool.table[block] or self.preset.tables[0].name]
        size = table.lead.block_tokens
        start, filled = pool.start[block], pool.filled[block]
        key = pool.partial.get(block, pool.key[block])
        residency = "resident" if pool.medium == "gpu" else pool.medium
        if block in pool.recovering:
            residency = "recovering"
        resident = residency == "resident"
        why_not = None if filled == size else "HKV101"
        if not resident:
            why_not = "HKV305"
        return CacheBlockState(
            block_id=block,
            form=table.lead.form if resident else Form.ON_DISK,
            version=pool.versions[0][block],
            recoverable=why_not is None,
            last_touch=0,
            pool=pool.name,
            group=table.name,
            generation=pool.generation[block],
            ref_count=pool.refs[block],
            tokens=(start, start + size),
            written=filled,
            published=None if key == NO_KEY else str(key),
            residency=residency,
            why_not=why_not,
        )
