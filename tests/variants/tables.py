"""Block tables of a request, one kind a form: what a position needs, what a step touches.

A table holds the blocks of a request for one or more cache groups that share them: the first
group leads (book-keeping names it), the others are components in the same block ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from .paging import Pool
from .tape import Event, Tape, make

_WRITE_ORDER = {"tail": 0, "indexer": 2}
"""Tails are written before what is sealed from them, index rows after what they route to."""


@dataclass
class Group:
    """One cache group. `tail` is sealed from, `served` is what an indexer's versions follow."""

    name: str
    form: str
    ratio: int = 1
    overlap: int = 0
    tail: str | None = None
    served: str | None = None
    declared: dict[str, Any] = field(default_factory=dict)


@dataclass
class Holding:
    """Blocks of one request in one table, by index (block of tokens [i*bt, (i+1)*bt))."""

    blocks: dict[int, int] = field(default_factory=dict)
    end: int = 0
    """Blocks with a lower index were allocated or adopted, and may have been given back."""
    published: int = 0
    """Blocks before this index are published, or came from the cache."""
    sealed: int = 0
    """Tokens before this position are in sealed entries."""
    copies: list[tuple[int, int]] = field(default_factory=list)
    """(source, destination) to be copied at the start of the next step."""
    borrowed: list[int] = field(default_factory=list)
    """Blocks referenced only until the next step is dispatched."""
    fresh: list[int] = field(default_factory=list)
    """Blocks allocated since the last step: another form may have left bytes in them."""
    partial: str | None = None
    """Hash under which the last, open block is published."""
    frozen: bool = False
    """A recurrent slot that must not be written again."""
    spare: list[int] = field(default_factory=list)
    """Blocks that the window left and that will be written over."""
    replay: int | None = None
    """Position from which a window is computed again."""
    checkpoints: dict[int, int] = field(default_factory=dict)
    """Recurrent slots by position that are still to be published."""


class Row(Protocol):
    """What a table needs to know of a request."""

    name: str
    held: dict[str, Holding]

    @property
    def key(self) -> list[str] | None: ...

    def hash(self, upto: int, table: str) -> str: ...


class Table:
    """A history: every block of [0, t) stays, as full and compressed attention need it."""

    def __init__(self, tape: Tape, name: str, pool: Pool, bt: int, groups: Sequence[Group]) -> None:
        self.tape = tape
        self.name = name
        self.pool = pool
        self.bt = bt
        self.groups = list(groups)
        self.lead = groups[0].name
        self.beside: Table | None = None
        """The table whose versions the indexer here follows, where it is another one."""
        self.drafts = 0
        """Tokens at the end of a decode step that may be rejected."""
        self.alloc_tokens = False
        self.sink = 0
        """First tokens that every later one attends to as well."""
        self.states_gens = False
        """Uses say which generation of each block they mean."""
        self.states_versions = False
        """Writes say the version: how far the block is filled, the same in every block that holds
        these tokens. Of two such blocks one may be cached with the other's rows in `beside`."""

    @property
    def names(self) -> list[str]:
        return [g.name for g in self.groups]

    def start(self, t: int) -> int:
        """First token that must be there to go on from `t`."""
        return 0

    def needed(self, t: int) -> list[int]:
        """Indices of the blocks that must be there to go on from `t`."""
        return list(range(self.start(t) // self.bt, -(-t // self.bt)))

    def blocks_short(self, row: Row, q: int) -> int:
        """How many blocks are missing to hold the tokens before `q`."""
        return max(0, -(-q // self.bt) - row.held[self.name].end)

    def adopt(self, row: Row, t: int, blocks: dict[int, int]) -> None:
        """Take over blocks that already hold [.., t): touched cache hits, or loaded ones."""
        n = t // self.bt
        row.held[self.name] = Holding(
            dict(blocks), end=-(-t // self.bt), published=n, sealed=n * self.bt
        )

    def grow(self, row: Row, q: int) -> None:
        """Allocate what holds the tokens before `q`."""
        held = row.held[self.name]
        n = self.blocks_short(row, q)
        if not n:
            return
        first = held.end
        # Without a block of this request before them, only the event can say where they lie.
        tokens = None
        if self.alloc_tokens or (first and first - 1 not in held.blocks):
            tokens = [first * self.bt, (first + n) * self.bt]
        taken = self.pool.take(n, self.names, req=row.name, tokens=tokens)
        held.blocks.update(zip(range(first, first + n), taken, strict=True))
        held.end += n
        held.fresh += taken

    def replace_last(self, row: Row, t: int) -> None:
        """Copy-on-write of the block that ends, half full, at `t`."""
        held = row.held[self.name]
        i = t // self.bt
        tokens = [i * self.bt, (i + 1) * self.bt]
        (new,) = self.pool.take(1, self.names, req=row.name, tokens=tokens)
        held.copies.append((held.blocks[i], new))
        held.borrowed.append(held.blocks[i])
        held.blocks[i] = new

    def begin(self, row: Row, p: int) -> None:
        """Before a step from `p` is scheduled: blocks that it will not need go."""

    def opening(self, row: Row) -> Iterator[Event]:
        """Accesses that come before everything else of a step: clearing, copy-on-write."""
        held = row.held[self.name]
        stale = [b for b in held.fresh if self.pool.kind.get(b, self.name) != self.name]
        if stale:
            yield make("zero", pool=self.pool.name, blocks=stale)
        self.pool.kind.update(dict.fromkeys(held.blocks.values(), self.name))
        held.fresh.clear()
        if held.copies:
            src, dst = map(list, zip(*held.copies, strict=True))
            yield make("copy", group=self.lead, src=src, dst=dst, req=row.name)
            held.copies.clear()

    def writes(self, row: Row, p: int, q: int, sure: int) -> Iterator[Event]:
        """The accesses that bring tokens [p, q) into every group; those before `sure` stay."""
        held = row.held[self.name]
        before = held.sealed
        for group in sorted(self.groups, key=lambda g: _WRITE_ORDER.get(g.form, 1)):
            end = max(before, sure - sure % group.ratio)
            if group.form == "tail" or group.ratio == 1:
                first, last = p, q
            else:
                first, last = before, end
                held.sealed = end
            if first == last:
                continue
            if group.form == "indexer":
                yield from self._index(row, group, first, last)
            elif group.ratio > 1 and group.form != "tail":
                yield from self._seal(row, group, first, last)
            elif self.states_versions:
                yield from self._write_by_block(row, group, first, last)
            else:
                yield self._write(row, group, first, last)

    def _spans(self, row: Row, p: int, q: int) -> list[tuple[int, int, int]]:
        """(index, first token, end) of each block that [p, q) lies in."""
        return [
            (i, max(p, i * self.bt), min(q, (i + 1) * self.bt))
            for i in range(p // self.bt, -(-q // self.bt))
        ]

    def _write(self, row: Row, group: Group, p: int, q: int) -> Event:
        held = row.held[self.name].blocks
        blocks = [held[i] for i, _, _ in self._spans(row, p, q)]
        for block in blocks:
            self.tape.next_version(group.name, block)
        return make("write", group=group.name, blocks=blocks, tokens=[p, q], req=row.name)

    def _write_by_block(self, row: Row, group: Group, p: int, q: int) -> Iterator[Event]:
        held = row.held[self.name].blocks
        for i, a, b in self._spans(row, p, q):
            version = b - i * self.bt
            self.tape.say_version(group.name, held[i], version)
            yield make(
                "write", group=group.name, blocks=[held[i]], tokens=[a, b], version=version,
                req=row.name,
            )  # fmt: skip

    def _seal(self, row: Row, group: Group, p: int, q: int) -> Iterator[Event]:
        held = row.held[self.name].blocks
        for i, a, b in self._spans(row, p, q):
            version = self.tape.next_version(group.name, held[i])
            yield make(
                "seal", group=group.name, blocks=[held[i]], tokens=[a, b], version=version,
                from_=group.tail, req=row.name,
            )  # fmt: skip

    def _index(self, row: Row, group: Group, p: int, q: int) -> Iterator[Event]:
        held = row.held[self.name].blocks
        routed = row.held[(self.beside or self).name].blocks
        for i, a, b in self._spans(row, p, q):
            version = self.tape.next_version(group.name, held[i])
            kv_version = self.tape.version(group.served or self.lead, routed[i])
            yield make(
                "index", group=group.name, blocks=[held[i]], tokens=[a, b], version=version,
                kv_version=kv_version, req=row.name,
            )  # fmt: skip

    def uses(self, row: Row, p: int, q: int) -> Iterator[Event]:
        """What attention of a step that computed [p, q) reads, group by group."""
        held = row.held[self.name]
        for group in self.groups:
            first, end = self.start(p), q
            if group.form == "tail":
                # The compressor takes up the unit that was open before the step, and its overlap.
                unit = max(0, p - self.drafts) // group.ratio * group.ratio
                first = max(0, unit - group.overlap)
            elif group.ratio > 1:
                end = held.sealed
            blocks = [
                b for i, b in sorted(held.blocks.items())
                if i * self.bt < end and ((i + 1) * self.bt > first or i * self.bt < self.sink)
            ]  # fmt: skip
            if blocks:
                yield self._use(row, group.name, blocks)

    def _use(self, row: Row, group: str, blocks: list[int]) -> Event:
        place = self.pool.place
        index = [place.get(b, b) for b in blocks] if place else None
        gens = [self.pool.generations[b] for b in blocks] if self.states_gens else None
        return make("use", group=group, blocks=blocks, req=row.name, index=index, gens=gens)

    def settle(self, row: Row, upto: int) -> None:
        """Publish the blocks that the known tokens before `upto` fill."""
        held = row.held[self.name]
        if any(g.ratio > 1 and g.form != "tail" for g in self.groups):
            upto = min(upto, held.sealed)
        n = upto // self.bt
        indices = [i for i in range(held.published, n) if i in held.blocks]
        held.published = max(held.published, n)
        if not indices:
            return
        if held.partial is not None:
            self.pool.promote(self.lead, held.blocks[indices[0]], held.partial)
            held.partial = None
        self.pool.publish(
            self.lead,
            [held.blocks[i] for i in indices],
            [row.hash((i + 1) * self.bt, self.name) for i in indices],
            tokens=[indices[0] * self.bt, (indices[-1] + 1) * self.bt],
            req=row.name,
            key=row.key,
        )

    def publish_partial(self, row: Row, upto: int) -> str | None:
        """Publish the open block as far as it is written; returns the hash."""
        held = row.held[self.name]
        i = upto // self.bt
        if not upto % self.bt or held.published != i or held.partial or i not in held.blocks:
            return None
        held.partial = row.hash(upto, self.name)
        self.pool.publish(
            self.lead, [held.blocks[i]], [held.partial],
            tokens=[i * self.bt, upto], req=row.name, key=row.key,
        )  # fmt: skip
        return held.partial

    def drop_borrowed(self, row: Row) -> None:
        """A step that reads them is dispatched: the request's references can go."""
        held = row.held[self.name]
        self.pool.release(held.borrowed, group=self.lead, req=row.name)
        held.borrowed = []

    def release(self, row: Row) -> None:
        """Give everything back, the last block first, so that a prefix is evicted last."""
        held = row.held.pop(self.name, Holding())
        blocks = [b for _, b in sorted(held.blocks.items(), reverse=True)]
        blocks += [b for b in held.checkpoints.values() if b not in blocks] + held.spare
        self.pool.release(held.borrowed + blocks, group=self.lead, req=row.name)


class State(Table):
    """A recurrent state: one slot, read and then written; a copy is kept at each boundary."""

    def needed(self, t: int) -> list[int]:
        return [t // self.bt - 1] if t else []

    def blocks_short(self, row: Row, q: int) -> int:
        held = row.held[self.name]
        return 0 if held.blocks and not held.frozen else 1

    def adopt(self, row: Row, t: int, blocks: dict[int, int]) -> None:
        slot = {0: next(iter(blocks.values()))} if t else {}
        row.held[self.name] = Holding(slot, published=t // self.bt, frozen=True)

    def grow(self, row: Row, q: int) -> None:
        held = row.held[self.name]
        if self.blocks_short(row, q):
            (slot,) = self.pool.take(1, self.names, req=row.name)
            if held.blocks:
                old = held.blocks[0]
                held.copies.append((old, slot))
                if old not in held.checkpoints.values():
                    held.borrowed.append(old)
            held.blocks[0] = slot
            held.frozen = False
            held.fresh.append(slot)

    def opening(self, row: Row) -> Iterator[Event]:
        held = row.held[self.name]
        stale = [b for b in held.fresh if self.pool.kind.get(b, self.name) != self.name]
        if stale:
            yield make("zero", pool=self.pool.name, blocks=stale)
        self.pool.kind.update(dict.fromkeys(held.fresh, self.name))
        held.fresh.clear()

    def writes(self, row: Row, p: int, q: int, sure: int) -> Iterator[Event]:
        held = row.held[self.name]
        slot = held.blocks[0]
        if p:
            yield self._use(row, self.lead, [held.copies[0][0] if held.copies else slot])
        held.copies.clear()
        self.tape.next_version(self.lead, slot)
        yield make("write", group=self.lead, blocks=[slot], tokens=[p, q], req=row.name)
        if q % self.bt == 0:
            held.checkpoints[q] = slot
            held.frozen = True

    def uses(self, row: Row, p: int, q: int) -> Iterator[Event]:
        yield from ()

    def settle(self, row: Row, upto: int) -> None:
        held = row.held[self.name]
        for q in [q for q in held.checkpoints if q <= upto]:
            slot = held.checkpoints.pop(q)
            self.pool.publish(
                self.lead, [slot], [row.hash(q, self.name)],
                tokens=[q - self.bt, q], req=row.name, key=row.key,
            )  # fmt: skip
            if slot != held.blocks[0]:
                self.pool.release([slot], group=self.lead, req=row.name)

    def publish_partial(self, row: Row, upto: int) -> str | None:
        """A state is the one of a position: there is no part of it."""
        return None
