"""One medium's blocks: who holds them, which generation they are in, which hash leads to them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

Evicted = dict[str, list[int]]
"""Blocks that lost their hashes, by table."""


class Content:
    """What the allocator believes a block holds: the form-and-version part of its state.

    `start` is the first token of the block, `filled` how many tokens from there are written and
    done, `versions` the content version of each group of the table.
    """

    __slots__ = ("filled", "start", "table", "versions")

    def __init__(self, table: str, start: int, groups: int) -> None:
        self.table = table
        self.start = start
        self.filled = 0
        self.versions = [0] * groups

    def adopt(self, other: Content) -> None:
        """Take over what a copy from another medium or block brings along."""
        self.filled = other.filled
        self.versions = list(other.versions)


class BlockPool:
    """Block ids of one medium, with the free list as the cache.

    A block whose count falls to 0 goes on the free list and keeps bytes and hash until it is
    taken again, so eviction is nothing but taking. Blocks without a hash go to the head and are
    reused first; those with one to the tail, in the order freed: a request frees its last block
    first, so the ends of old prefixes go before their beginnings (vLLM's order).
    """

    def __init__(self, name: str, medium: str, blocks: int, reserved: int = 0) -> None:
        self.name = name
        self.medium = medium
        self.blocks = blocks
        self.reserved = reserved
        self.refs = [0] * blocks
        self.generation = [0] * blocks
        self.content: list[Content | None] = [None] * blocks
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(reserved, blocks))
        self.hashes: dict[str, dict[int, int]] = {}
        self.entries: dict[int, list[tuple[str, int]]] = {}
        self.evictions = 0

    @property
    def available(self) -> int:
        """Blocks that can be taken, cached ones included."""
        return len(self.free)

    def take(self, count: int) -> tuple[list[int], Evicted]:
        """The next `count` blocks of the free list, each in a new generation; what they evict."""
        blocks: list[int] = []
        evicted: Evicted = {}
        for _ in range(count):
            block, _ = self.free.popitem(last=False)
            self.generation[block] += 1
            self.refs[block] = 1
            blocks.append(block)
            if block in self.entries:
                self.evictions += 1
                for table in self.forget(block):
                    evicted.setdefault(table, []).append(block)
        return blocks, evicted

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
                if block not in self.entries:
                    self.free.move_to_end(block, last=False)
                    front.append(block)
        return front

    def publish(self, table: str, key: int, block: int) -> bool:
        """Let the hash lead to the block. The first to publish a content keeps it."""
        known = self.hashes.setdefault(table, {})
        if key in known:
            return False
        known[key] = block
        self.entries.setdefault(block, []).append((table, key))
        return True

    def find(self, table: str, key: int) -> int | None:
        """The block that holds this content of the table, if any."""
        known = self.hashes.get(table)
        return None if known is None else known.get(key)

    def forget(self, block: int) -> list[str]:
        """Drop every hash that leads to the block; returns the tables they were of."""
        entries = self.entries.pop(block, [])
        for table, key in entries:
            del self.hashes[table][key]
        return [table for table, _ in entries]

    def withdraw(self, table: str, key: int) -> None:
        """Drop one hash; others that lead to the same block stay."""
        block = self.hashes[table].pop(key)
        left = [entry for entry in self.entries[block] if entry != (table, key)]
        if left:
            self.entries[block] = left
        else:
            del self.entries[block]
