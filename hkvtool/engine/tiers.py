"""Lower tiers: content goes out to host memory and on to disk, and comes back with its edges.

A transfer takes time and runs on a lane of its own, so whatever it reads or writes is held by a
reference until the host has waited for its end. What orders it with the steps is written down as
`signal` and `wait`: a load must come after the reads of the step in flight, a store after the
step that wrote has retired.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from hkvtool.engine.allocator import HybridAllocator, Published, runs
from hkvtool.engine.config import Config
from hkvtool.engine.geometry import Group, Table
from hkvtool.engine.lookup import Hit
from hkvtool.engine.memory import Memory
from hkvtool.engine.pool import NO_KEY, BlockPool
from hkvtool.engine.workload import Request

BYTES_PER_SECOND = {"cpu": 25e9, "disk": 5e9}
"""One PCIe 4 x16 link, one NVMe drive."""

_SPILL_BATCH, _SPILL_AHEAD = 128, 512
"""Fewest blocks written to disk at once, and how near to eviction they have to be; less where
the host tier is small."""


@dataclass(slots=True)
class Move:
    """One group's part of a transfer: a handle, near blocks and far blocks."""

    handle: str
    group: Group
    near: list[int]
    far: list[int]
    tier: BlockPool
    tokens: list[int] | None = None


@dataclass(slots=True)
class Transfer:
    """Blocks under way between two media, and what to do when they have arrived."""

    lane: str
    load: bool
    source: str
    moves: list[Move]
    finish: Callable[[], None]
    req: str = ""
    name: str = ""
    bytes: int = 0
    recovering: int = field(default=0)


class Tiers:
    """The pools below the device and the transfers to and from them."""

    def __init__(
        self, allocator: HybridAllocator, memory: Memory, config: Config, clock: Callable[[], int]
    ) -> None:
        self.allocator = allocator
        self.memory = memory
        self.emit = allocator.emit
        self.clock = clock
        self.cap = config.cap
        self.fingerprint = config.fingerprint
        self.lower = {pool.name: pool for pool in allocator.pools[1:]}
        self.recovering = 0
        """Device blocks with a load under way, counted once a group."""
        self.stored = self.loaded = self.spilled = 0
        self._count = 0
        self.under_way: list[tuple[int, int, Transfer]] = []
        self._storing: set[tuple[str, int]] = set()
        self._spilling = False

    # --- out ---------------------------------------------------------------------------------

    def store(self, request: Request, published: dict[str, Published], done: int) -> None:
        """Offload newly published blocks to host memory, all groups of a table together.

        Of a window only what a resume at `done` needs: the rest has no use without a history
        that ends elsewhere.
        """
        cpu = self.lower.get("cpu")
        if cpu is None:
            return
        moves: list[Move] = []
        ends: list[Callable[[], None]] = []
        for name, blocks in published.items():
            table = self.allocator.table_of[name]
            needed = table.lead.span(*table.lead.needs(done))
            new = [(i, b, k) for i, b, k in blocks if i in needed and self._wanted(name, k)]
            if not new or len(new) > cpu.available:
                continue
            self._number()
            near, far = [b for _, b, _ in new], self._take_lower(cpu, request, table, new)
            holder = f"store:{self._count}"
            self.allocator.gpu.touch(near)
            self.emit("touch", group=name, blocks=near, owner=holder)
            for group in table.groups:
                size, at = group.block_tokens, 0
                for first, last in runs([i for i, _, _ in new]):
                    part = slice(at, at + last - first)
                    at += last - first
                    moves.append(Move(
                        f"{holder}.{group.name}.{first}", group, near[part], far[part], cpu,
                        [first * size, last * size],
                    ))  # fmt: skip
            ends.append(self._stored(request, name, cpu, new, far, holder))
            self.stored += len(new)
        if moves:
            self.begin(
                Transfer("stream:store", False, "gpu", moves, lambda: _all(ends), request.id)
            )

    def _wanted(self, name: str, key: int) -> bool:
        if (name, key) in self._storing:
            return False
        return all(pool.find(name, key) is None for pool in self.lower.values())

    def _take_lower(
        self, tier: BlockPool, request: Request, table: Table, new: Published
    ) -> list[int]:
        """Blocks of a lower tier for copies of these, with what is known of their content."""
        size, name = table.lead.block_tokens, f"{table.name}@{tier.name}"
        far, _, evicted = tier.take(table.name, [index * size for index, _, _ in new])
        self.allocator.evicted(evicted, f"@{tier.name}")
        self._storing.update((table.name, key) for _, _, key in new)
        done = 0
        for first, last in runs([index for index, _, _ in new]):
            part = far[done : done + last - first]
            done += last - first
            self.emit(
                "alloc", req=request.id, group=name, blocks=part, tokens=[first * size, last * size]
            )
        return far

    def _stored(
        self, request: Request, name: str, tier: BlockPool, new: Published, far: list[int],
        holder: str,
    ) -> Callable[[], None]:  # fmt: skip
        def finish() -> None:
            told: Published = []
            for (index, block, key), copy in zip(new, far, strict=True):
                self._storing.discard((name, key))
                self.allocator.gpu.adopt(block, tier, copy)
                if tier.publish(name, key, copy):
                    told.append((index, copy, key))
            self.allocator.announce(request, tier, name, told)
            self.release(tier, name, far[::-1], request.id)
            near = [block for _, block, _ in new][::-1]
            front = self.allocator.gpu.release(near)
            keys = {"front": front} if front else {}
            self.emit("free", group=name, blocks=near, owner=holder, **keys)

        return finish

    def release(self, tier: BlockPool, name: str, blocks: list[int], req: str) -> None:
        """One reference of the request less on blocks of a lower tier."""
        front = tier.release(blocks)
        keys = {"front": front} if front else {}
        self.emit("free", req=req, group=f"{name}@{tier.name}", blocks=blocks, **keys)

    def spill(self) -> None:
        """Write what host memory would evict next to disk, before it has to."""
        cpu, disk = self.lower.get("cpu"), self.lower.get("disk")
        if cpu is None or disk is None or self._spilling:
            return
        chosen: dict[str, list[tuple[int, int]]] = {}
        count = 0
        batch, ahead = min(_SPILL_BATCH, cpu.blocks // 8), min(_SPILL_AHEAD, cpu.blocks // 2)
        for block in islice(cpu.free, ahead):
            name, key = cpu.table[block], cpu.key[block]
            if name is not None and key != NO_KEY and disk.find(name, key) is None:
                chosen.setdefault(name, []).append((block, key))
                count += 1
        if count < max(1, batch) or count > disk.available:
            return
        moves: list[Move] = []
        ends: list[Callable[[], None]] = []
        for name, entries in chosen.items():
            table = self.allocator.table_of[name]
            self._number()
            holder = f"spill:{self._count}"
            near, keys = [block for block, _ in entries], [key for _, key in entries]
            cpu.touch(near)
            self.emit("touch", group=f"{name}@cpu", blocks=near, owner=holder)
            far, _, evicted = disk.take(name, [cpu.start[block] for block in near])
            self.allocator.evicted(evicted, "@disk")
            self.emit("alloc", group=f"{name}@disk", blocks=far)
            for group in table.groups:
                moves.append(Move(f"{holder}.{group.name}", group, near, far, disk))
            ends.append(self._spilled(name, near, far, keys, holder))
            self.spilled += len(near)
        self._spilling = True
        self.begin(Transfer("io", False, "cpu", moves, lambda: _all(ends)))

    def _spilled(
        self, name: str, near: list[int], far: list[int], keys: list[int], holder: str
    ) -> Callable[[], None]:
        def finish() -> None:
            cpu, disk = self.lower["cpu"], self.lower["disk"]
            self._spilling = False
            for block, key, copy in zip(near, keys, far, strict=True):
                cpu.adopt(block, disk, copy)
                disk.publish(name, key, copy)
            self.emit("publish", group=f"{name}@disk", blocks=far, hashes=keys)
            disk.release(far)
            self.emit("free", group=f"{name}@disk", blocks=far)
            cpu.release(near)
            # Still the first to be evicted: being written out is no use. A load may hold some.
            idle = [block for block in near if not cpu.refs[block]]
            for block in reversed(idle):
                cpu.free.move_to_end(block, last=False)
            front = {"front": idle} if idle else {}
            self.emit("free", group=f"{name}@cpu", blocks=near, owner=holder, **front)

        return finish

    # --- back --------------------------------------------------------------------------------

    def cost(self, hit: Hit) -> int:
        """Blocks, counted once a group, that a load of this hit would have recovering."""
        return sum(
            len(self.allocator.table_of[name].groups)
            for name, found in hit.sources.items() for _, tier, _ in found if tier
        )  # fmt: skip

    def admits(self, hit: Hit) -> bool:
        """Whether the cap on recovering blocks allows this load now."""
        return self.cap is None or self.recovering + self.cost(hit) <= self.cap

    def load(self, request: Request, hit: Hit, ready: Callable[[], None]) -> None:
        """Bring the hit's blocks back from lower tiers; `ready` is called when all are in.

        The blocks enter the request's table, and their hashes the map, only at the end: state
        and data pointer change together.
        """
        moves: list[Move] = []
        ends: list[Callable[[], None]] = []
        for name, found in hit.sources.items():
            table = self.allocator.table_of[name]
            for tier in sorted({t for _, t, _ in found if t}):
                pool = self.allocator.pools[tier]
                entries = [(i, b) for i, t, b in found if t == tier]
                far = [block for _, block in entries]
                pool.touch(far)
                self.emit("touch", req=request.id, group=f"{name}@{pool.name}", blocks=far)
                near = self.allocator.take(request.id, name, [i for i, _ in entries], aside=True)
                self.allocator.gpu.recovering.update(near)
                self._number()
                size, (first, last) = table.lead.block_tokens, (entries[0][0], entries[-1][0] + 1)
                for group in table.groups:
                    moves.append(Move(
                        f"load:{self._count}.{group.name}", group, near, far, pool,
                        [first * size, last * size],
                    ))  # fmt: skip
                ends.append(self._loaded(request, name, pool, entries, near))
                self.loaded += len(near)
        ends.append(ready)
        # Nothing may clear or rewrite a block that a load is about to fill.
        for move in moves:
            for block in move.near:
                self.allocator.reformed.pop(block, None)
        transfer = Transfer("stream:load", True, "gpu", moves, lambda: _all(ends), request.id)
        transfer.recovering = self.cost(hit)
        self.recovering += transfer.recovering
        self.begin(transfer)

    def _loaded(
        self, request: Request, name: str, pool: BlockPool, entries: list[tuple[int, int]],
        near: list[int],
    ) -> Callable[[], None]:  # fmt: skip
        def finish() -> None:
            gpu, size = self.allocator.gpu, self.allocator.table_of[name].lead.block_tokens
            for (_, block), copy in zip(entries, near, strict=True):
                pool.adopt(block, gpu, copy)
            gpu.recovering.difference_update(near)
            self.release(pool, name, [block for _, block in entries][::-1], request.id)
            indices = [index for index, _ in entries]
            self.allocator.held[request.id][name].update(zip(indices, near, strict=True))
            keys = request.keys(indices, size)
            new = [
                (index, block, key)
                for index, block, key in zip(indices, near, keys, strict=True)
                if gpu.publish(name, key, block)
            ]
            self.allocator.announce(request, gpu, name, new)

        return finish

    # --- under way ---------------------------------------------------------------------------

    def _number(self) -> None:
        self._count += 1

    def begin(self, transfer: Transfer) -> None:
        """Start a transfer behind what its lane has to wait for."""
        self._number()
        transfer.name = f"t{self._count}"
        lane = transfer.lane
        self.emit("signal", event=f"{transfer.name}.go")
        self.emit("wait", actor=lane, event=f"{transfer.name}.go")
        if transfer.load:
            # The step in flight may still read what these blocks held before.
            self.emit("signal", actor="device", event=f"{transfer.name}.free")
            self.emit("wait", actor=lane, event=f"{transfer.name}.free")
        ev, side = ("load_begin", "from") if transfer.load else ("store_begin", "to")
        slowest = "cpu"
        for move in transfer.moves:
            size = len(move.near) * move.group.page_bytes * move.group.layers
            transfer.bytes += size
            if move.tier.name == "disk":
                slowest = "disk"
            name = move.group.name if transfer.source == "gpu" else f"{move.group.name}@cpu"
            if self.fingerprint and not transfer.load:
                self._fingerprint(transfer.source, name, move, "store")
            keys: dict[str, Any] = {side: move.tier.name}
            if move.tokens:
                keys["tokens"] = move.tokens
            if transfer.req:
                keys["req"] = transfer.req
            self.emit(
                ev, actor=lane, handle=move.handle, group=name, blocks=move.near, peer=move.far,
                bytes=size, **keys,
            )  # fmt: skip
        end = self.clock() + int(transfer.bytes / BYTES_PER_SECOND[slowest] * 1e9) + 1
        heapq.heappush(self.under_way, (end, self._count, transfer))

    def _fingerprint(self, pool: str, name: str, move: Move, at: str) -> None:
        values = self.memory.fingerprint(pool, move.group, move.near)
        self.emit("fingerprint", group=name, blocks=move.near, values=values, at=at)

    @property
    def next_end(self) -> int | None:
        """When the next transfer ends, if one is under way."""
        return self.under_way[0][0] if self.under_way else None

    def poll(self) -> None:
        """End the transfers whose time has come."""
        while self.under_way and self.under_way[0][0] <= self.clock():
            self.end(heapq.heappop(self.under_way)[2])

    def end(self, transfer: Transfer) -> None:
        """The bytes have moved and the host has waited for it."""
        for move in transfer.moves:
            near, far = (transfer.source, move.near), (move.tier.name, move.far)
            source, target = (far, near) if transfer.load else (near, far)
            self.memory.move(move.group, source[0], target[0], source[1], target[1])
            ev = "load_end" if transfer.load else "store_end"
            self.emit(ev, actor=transfer.lane, handle=move.handle)
        self.emit("signal", actor=transfer.lane, event=f"{transfer.name}.done")
        self.emit("wait", event=f"{transfer.name}.done")
        if self.fingerprint and transfer.load:
            for move in transfer.moves:
                self._fingerprint("gpu", move.group.name, move, "load")
        self.recovering -= transfer.recovering
        transfer.finish()


def _all(steps: Sequence[Callable[[], None]]) -> None:
    for step in steps:
        step()
