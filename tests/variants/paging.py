"""A paged pool: reference counts, a free list in order of release, hashes that lead to blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from .tape import Tape


class Pool:
    """Block ids of one medium. A free block keeps its content and its hashes until it is taken."""

    def __init__(
        self, tape: Tape, name: str, medium: str, ids: Iterable[int], size: int, **declared: Any
    ) -> None:
        self.tape = tape
        self.name = name
        self.medium = medium
        self.declared = {"pool": name, "medium": medium, "blocks": size, **declared}
        self.free: dict[int, None] = dict.fromkeys(ids)
        self.refs: Counter[int] = Counter()
        self.pins: Counter[int] = Counter()
        self.generations: Counter[int] = Counter()
        self.kind: dict[int, str] = {}
        self.place: dict[int, int] = {}
        self._entries: dict[int, list[tuple[str, str]]] = {}
        self._index: dict[tuple[str, str], list[int]] = {}

    @property
    def available(self) -> int:
        return sum(not self.pins[b] for b in self.free)

    def take(self, n: int, groups: Sequence[str], **keys: Any) -> list[int]:
        """Allocate `n` blocks for the table of `groups`, evicting what they were cached as."""
        blocks = [b for b in self.free if not self.pins[b]][:n]
        if len(blocks) < n:
            raise LookupError(f"{self.name} has {len(blocks)} of {n} blocks")
        self.withdraw(blocks, "evict")
        for block in blocks:
            del self.free[block]
            self.refs[block] = 1
            self.generations[block] += 1
        self.tape.emit("alloc", group=groups[0], blocks=blocks, **keys)
        self.tape.new_generation(list(groups), blocks)
        return blocks

    def touch(self, blocks: Sequence[int], **keys: Any) -> None:
        if not blocks:
            return
        for block in blocks:
            self.free.pop(block, None)
            self.refs[block] += 1
        self.tape.emit("touch", blocks=list(blocks), **keys)

    def release(self, blocks: Sequence[int], **keys: Any) -> None:
        """Give back one reference of each, in this order."""
        if not blocks:
            return
        for block in blocks:
            self.refs[block] -= 1
            if not self.refs[block]:
                self.free[block] = None
        self.tape.emit("free", blocks=list(blocks), **keys)

    def pin(self, blocks: Sequence[int], owner: str) -> None:
        self.pins.update(blocks)
        self.tape.emit("pin", pool=self.name, blocks=list(blocks), owner=owner)

    def unpin(self, blocks: Sequence[int], owner: str) -> None:
        self.pins.subtract(blocks)
        self.tape.emit("unpin", pool=self.name, blocks=list(blocks), owner=owner)

    def publish(
        self, group: str, blocks: Sequence[int], hashes: Sequence[str], **keys: Any
    ) -> None:
        for block, name in zip(blocks, hashes, strict=True):
            self._entries.setdefault(block, []).append((group, name))
            self._index.setdefault((group, name), []).append(block)
        self.tape.emit("publish", group=group, blocks=list(blocks), hashes=list(hashes), **keys)
        self.tape.announce("stored", group=group, hashes=list(hashes), medium=self.medium)

    def find(self, group: str, name: str) -> int | None:
        """The block that a hash leads to."""
        blocks = self._index.get((group, name))
        return blocks[0] if blocks else None

    def hashes(self, block: int) -> list[tuple[str, str]]:
        return self._entries.get(block, [])

    def withdraw(self, blocks: Sequence[int], reason: str) -> None:
        """Drop every hash that leads to one of `blocks`."""
        by_group: dict[str, list[int]] = {}
        names: dict[str, list[str]] = {}
        for block in blocks:
            for group, name in self._entries.pop(block, []):
                self._index[group, name].remove(block)
                mine = by_group.setdefault(group, [])
                if block not in mine:
                    mine.append(block)
                names.setdefault(group, []).append(name)
        for group, mine in by_group.items():
            self.tape.emit("unpublish", group=group, blocks=mine, reason=reason)
            self.tape.announce("removed", group=group, hashes=names[group], medium=self.medium)

    def promote(self, group: str, block: int, name: str) -> None:
        """Drop a partial entry whose block goes on growing, unless a reset did."""
        if (group, name) not in self._entries.get(block, []):
            return
        self._entries[block].remove((group, name))
        self._index[group, name].remove(block)
        self.tape.emit("unpublish", group=group, hashes=[name], reason="promote")
        self.tape.announce("removed", group=group, hashes=[name], medium=self.medium)

    def reset(self, groups: Iterable[str]) -> None:
        self._entries.clear()
        self._index.clear()
        self.tape.emit("reset", pool=self.name)
        for group in groups:
            self.tape.announce("cleared", group=group, medium=self.medium)

    def swap(self, a: int, b: int, version: int) -> None:
        """Exchange the places of two blocks that hold nothing."""
        self.withdraw([a, b], "evict")
        pa, pb = self.place.get(a, a), self.place.get(b, b)
        self.place.update({a: pb, b: pa})
        self.kind[a], self.kind[b] = self.kind.get(b, ""), self.kind.get(a, "")
        self.tape.emit("remap", pool=self.name, map={str(a): pb, str(b): pa}, version=version)
