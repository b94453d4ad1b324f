"""One medium's blocks: who holds them, what they hold, which hash leads to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

Evicted = dict[str, list[int]]
"""Blocks that lost their hashes, by table."""

Reformed = dict[int, str]
"""Blocks that change table, and the one they were of."""

NO_KEY = -1


class BlockPool:
    """Block ids of one medium, with the free list as the cache.

    A block whose count falls to 0 goes on the free list and keeps bytes and hash until it is
    taken again, so eviction is nothing but taking. Blocks without a hash go to the head and are
    reused first; those with one to the tail, in the order freed: a request frees its last block
    first, so the ends of old prefixes go before their beginnings (vLLM's order).

    What a block holds is kept in columns: the `table` it was taken for (its form), its first
    token (`start`), how many tokens from there are written and done (`filled`), and the content
    version of each group of the table (`versions[place][block]`).
    """

    def __init__(
        self, name: str, medium: str, blocks: int, reserved: int = 0, places: int = 1
    ) -> None:
        self.name = name
        self.medium = medium
        self.blocks = blocks
        self.reserved = reserved
        self.refs = [0] * blocks
        self.generation = [0] * blocks
        self.table: list[str | None] = [None] * blocks
        self.start = [0] * blocks
        self.filled = [0] * blocks
        self.versions = [[0] * blocks for _ in range(places)]
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(reserved, blocks))
        self.hashes: dict[str, dict[int, int]] = {}
        self.key = [NO_KEY] * blocks
        self.partial: dict[int, int] = {}
        """Second hashes: of blocks that are published up to a token inside them."""
        self.recovering: set[int] = set()
        """Blocks that a load is filling: taken, and in no form yet."""
        self.evictions = 0

    @property
    def available(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self.free)

    def cached(self, block: int) -> bool:
        """Whether a hash leads to the block."""
        return self.key[block] != NO_KEY or block in self.partial

    def take(self, table: str, starts: Sequence[int]) -> tuple[list[int], Reformed, Evicted]:
        """The next blocks of the free list, one for each first token, in a new generation each.

        Returns them, those that were of another table before, and what taking them evicted.
        """
        blocks: list[int] = []
        reformed: dict[int, str] = {}
        evicted: Evicted = {}
        for start in starts:
            block, _ = self.free.popitem(last=False)
            before = self.table[block]
            if self.cached(block):
                assert before is not None
                self.evictions += 1
                self.forget(block)
                evicted.setdefault(before, []).append(block)
            if before is not None and before != table:
                reformed[block] = before
            self.generation[block] += 1
            self.refs[block] = 1
            self.table[block] = table
            self.start[block] = start
            self.filled[block] = 0
            for versions in self.versions:
                versions[block] = 0
            blocks.append(block)
        return blocks, reformed, evicted

    def adopt(self, block: int, other: BlockPool, copy: int) -> None:
        """Let a copy, maybe on another medium, hold what a block of this pool holds."""
        other.filled[copy] = self.filled[block]
        for mine, theirs in zip(self.versions, other.versions, strict=True):
            theirs[copy] = mine[block]

    def touch(self, blocks: Iterable[int]) -> None:
        """One more reference on each; a cached free block leaves the free list."""
        for block in blocks:
            if self.refs[block] == 0:
                del self.free[block]
            self.refs[block] += 1

    def release(self, blocks: Sequence[int]) -> list[int]:
        """One reference less on each; returns those that went to the head of the free list."""
        front: list[int] = []
        for block in blocks:
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.free[block] = None
                if not self.cached(block):
                    self.free.move_to_end(block, last=False)
                    front.append(block)
        return front

    def publish(self, table: str, key: int, block: int, *, partial: bool = False) -> bool:
        """Let the hash lead to the block. The first to publish a content keeps it."""
        known = self.hashes.setdefault(table, {})
        if key in known:
            return False
        known[key] = block
        if partial:
            self.partial[block] = key
        else:
            self.key[block] = key
        return True

    def find(self, table: str, key: int) -> int | None:
        """The block that holds this content of the table, if any."""
        known = self.hashes.get(table)
        return None if known is None else known.get(key)

    def forget(self, block: int) -> None:
        """Drop every hash that leads to the block."""
        table = self.table[block]
        if table is None:
            return
        if self.key[block] != NO_KEY:
            del self.hashes[table][self.key[block]]
            self.key[block] = NO_KEY
        self.promote(block)

    def promote(self, block: int) -> int:
        """Drop the hash of a partial block, `NO_KEY` where there was none; returns it."""
        key = self.partial.pop(block, NO_KEY)
        if key != NO_KEY:
            del self.hashes[str(self.table[block])][key]
        return key
