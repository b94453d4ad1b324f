"""A trace compiled: every access of every event as work on rows, with what each read is due.

The events are folded once in line order. A write stamps the request's own tokens; a read is due
the reader's own tokens, whatever block they come from. Content from before the recording, and of
peers that nobody filled, is laid down first (*seeded*): it is what its first reader takes it for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay import encoding, moving, reading, relocating, upkeep, writing
from hkvtool.replay.cells import Area, Cells, Due, whole
from hkvtool.replay.geometry import Geometry, Share
from hkvtool.replay.graphs import Graphs
from hkvtool.replay.memory import Touched
from hkvtool.replay.ops import Lay, Op, Write
from hkvtool.replay.placing import Piece
from hkvtool.replay.program import Program, Step
from hkvtool.replay.sequences import Sequences, sequence, table_of
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp
from hkvtool.state.requests import Requests

Block = tuple[str, int]
"""A pool and the place of a block in it."""

_FOLDED_AFTER = frozenset({"use", "write", "seal", "index", "zero", "copy", "remap"})
"""Accesses meet the state before them, and a remap the map before it."""


@dataclass
class Believed:
    """A consumer that computes addresses of a group by a layout of its own.

    `moves` says that it is what transfers run, not what reads.
    """

    group: str
    expects: Mapping[str, Any]
    moves: bool


@dataclass
class Author:
    """What a request's tokens are now: how far it has come by group, what was rejected, and the
    weights that its tokens were computed with."""

    extent: dict[str, int] = field(default_factory=dict)
    wrote: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    hit: int = 0
    branches: list[tuple[int, int]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    branch: int = 0
    checked: int = 0


class Compiler:
    """One pass over a trace. `keep` limits the bytes to some blocks; all else is only folded."""

    def __init__(
        self, sequences: Sequences, *, keep: frozenset[Block] | None = None, thin: bool = False,
        believed: Believed | None = None, recapture: bool = False, late: int | None = None,
    ) -> None:  # fmt: skip
        self.sequences = sequences
        self.keep = keep
        self.believed = believed
        self.fold = Fold()
        self.order = Order()
        self.requests = Requests(self.fold)
        self.geometry = Geometry(self.fold.declared, thin=thin)
        self.graphs = Graphs(recapture, late)
        self.epoch = 0
        self.steps: list[Step] = []
        self.seeds: list[Write] = []
        self.seeded: dict[tuple[str, str, int], dict[int, tuple[int, int]]] = {}
        self.written: set[tuple[str, str, int]] = set()
        """Pool, group and place of blocks that something in the trace has filled."""
        self.lays: dict[tuple[str, str, int], Lay] = {}
        """Content that came in from where nobody knows, by pool, group and place."""
        self.begun: dict[tuple[str, str, int], set[int]] = {}
        """Rows that the trace has filled, by pool, group and place of blocks that it has not seen
        from their allocation on."""
        self.holds: dict[tuple[str, int, str], tuple[str, int, int]] = {}
        """Request and tokens that a block (pool, place, group) holds in line order."""
        self.copied: list[tuple[str, str]] = []
        """Groups of which one's blocks are copied into the other's."""
        self.begins: dict[str, Event] = {}
        self.ends: dict[str, Event] = {}
        self.used: dict[tuple[str, str, str], set[int]] = {}
        """Places that are touched, by group, pool and life of the pool's memory."""
        self.stated: set[tuple[str, int]] = set()
        """Pool and place of blocks of which a `state` says that something is written there."""
        self.promised: dict[tuple[str, int, str], int] = {}
        """Version that a hash stands for, by pool, place and group, where it states one."""
        self.masked: set[tuple[str, int, str]] = set()
        """Pool, place and group of blocks whose content is of another codec than the group's."""
        self.removals: list[relocating.Removal] = []
        self.expired: set[str] = set()
        """Transfers whose lease ends before they may have."""
        self.in_flight: set[int] = set()
        self.moving: dict[str, set[Block]] = {}
        self.dead: list[tuple[int, int, set[int], set[str]]] = []
        self.buffers: dict[str, tuple[int, int]] = {}
        self.names: dict[int, str] = {}
        self._authors: dict[str, Author] = {}
        self._touched: dict[tuple[str, int], Touched] = {}
        self._numbers: dict[str, int] = {}
        self._stamp: Stamp | None = None
        self._events = 0

    def compile(self, events: Sequence[Event]) -> Program:
        """The program of a trace, which must be given whole."""
        for event in events:
            if event.ev in ("store_end", "load_end"):
                self.ends.setdefault(str(event.get("handle")), event)
            elif event.ev in ("store_begin", "load_begin"):
                self.begins.setdefault(str(event.get("handle")), event)
            elif event.ev == "lease" and event.get("op") == "expire":
                self.expired.add(str(event["handle"]))
            elif event.ev == "copy" and "src_group" in event and "dst_group" in event:
                self.copied.append((str(event["src_group"]), str(event["dst_group"])))
        for event in events:
            self._take(event.meant)
        relocating.housed(self)
        head = Step(0, "recording", Stamp("seed", 0, -1, 0, (), None), list(self.seeds))
        tight = any(self.geometry.tight(p) for p in self.fold.declared.pools.values())
        thin = self.geometry.thin or tight
        groups: dict[int, str] = {}
        for group in self.fold.declared.groups.values():
            groups.setdefault(self.number(group), group.name)
        return Program(
            [head, *self.steps], list(self._touched.values()), self.order, groups, self.names,
            thin, self._events, self.graphs.stale,
        )  # fmt: skip

    def _take(self, event: Event) -> None:
        """One event: fold it, and note what it does to bytes."""
        self._events += 1
        self._stamp = self.order.feed(event)
        if event.problem is not None:
            return
        make = _MAKE.get(event.ev)
        if make is not None and event.ev in _FOLDED_AFTER:
            make(self, event)
        released = upkeep.released(self, event)
        if self.fold.apply(event) is not None:
            return
        self.requests.follow(event)
        if event.ev in ("pool", "group"):
            self.geometry.forget()
            self._numbers.clear()
        if make is not None and event.ev not in _FOLDED_AFTER:
            make(self, event)
        for slot in released:
            upkeep.dies(self, event, slot)

    def emit(self, event: Event, ops: Iterable[Op], lane: str | None = None) -> None:
        """What an event makes a lane do, its own or the one named."""
        found = list(ops)
        if found:
            assert self._stamp is not None
            self.steps.append(Step(event.pos, lane or event.actor, self._stamp, found))

    # --- naming ----------------------------------------------------------------------------

    def number(self, group: Group) -> int:
        """The number of a group in stamps. Groups of two engines that hold the same content, a
        lower tier's copy, and groups of one form that blocks are copied between share the one of
        the first declared."""
        found = self._numbers.get(group.name)
        if found is None:
            pool, declared = group.pool, self.fold.declared
            twin = group
            for other in declared.pools.values():
                apart = other.engine != pool.engine or (pool.tier and not other.tier)
                same = declared.mirror(group, other) if other.id < pool.id and apart else None
                if same is not None:
                    # Groups of an engine may each have a pool of their own.
                    twin = same
                    break
            for pair in self.copied:
                for mate in map(declared.groups.get, pair):
                    if group.name in pair and mate and mate.form == group.form:
                        twin = min(twin, mate, key=lambda g: g.id)
            found = self._numbers[group.name] = twin.id + 1
        return found

    def author(self, name: str) -> Author:
        found = self._authors.get(name)
        if found is None:
            found = self._authors[name] = Author()
        return found

    def due(self, reader: str, start: int, end: int, group: Group) -> Due:
        """The sequences of tokens [start, end) of a request, as it takes them for a group."""
        if end <= start:
            return ()
        found: list[tuple[int, int, int]] = []
        for low, high, origin in self.sequences.pieces(
            reader, start, end, table_of(self.fold, group)
        ):
            author = self.author(origin)
            cuts = {low, high}
            if author.branches or len(author.epochs) > 1:
                cuts |= {a for a, _ in (*author.branches, *author.epochs) if low < a < high}
            points = sorted(cuts)
            found += [(a, b, self._sequence(reader, origin, author, a))
                      for a, b in pairwise(points)]  # fmt: skip
        return tuple(found)

    def due_of(self, reader: str, cells: Cells, group: Group) -> Due:
        # A state is known by the token before its position, whatever its write began at.
        starts = [end - 1 for end in cells.ends] if cells.state else cells.starts
        return self.due(reader, min(starts), max(cells.ends), group)

    def _sequence(self, reader: str, origin: str, author: Author, token: int) -> int:
        branch = next((b for at, b in reversed(author.branches) if at <= token), 0)
        epoch = self.author(reader).checked
        if reader == origin:
            epoch = next((e for at, e in reversed(author.epochs) if at <= token), self.epoch)
        found = sequence(origin, branch, epoch)
        self.names[found] = origin
        return found

    # --- places ----------------------------------------------------------------------------

    def kept(self, pool: Pool, place: int) -> bool:
        return self.keep is None or (pool.name, place) in self.keep

    def chosen(self, pool: Pool, places: Sequence[int], pieces: Iterable[Piece]) -> list[Piece]:
        """Pieces in blocks that are kept and are no null blocks."""
        return [
            p for p in pieces
            if p.place < len(places) and places[p.place] >= 0
            and places[p.place] not in pool.reserved and self.kept(pool, places[p.place])
        ]  # fmt: skip

    def area(
        self, group: Group, pool: Pool, cells: Cells, space: str = "",
        expects: Mapping[str, Any] | None = None,
    ) -> Area:  # fmt: skip
        """Cells of a group's part of a pool, which from here on is touched there."""
        self.used.setdefault((group.name, pool.name, space), set()).update(cells.blocks)
        return self.touch(self.geometry.share(group, pool, expects), pool, cells, space)

    def touch(self, share: Share, pool: Pool, cells: Cells, space: str = "") -> Area:
        """Cells of a share of a pool's blocks."""
        name = share.storage + space
        key = (name, id(share.page))
        touched = self._touched.get(key)
        if touched is None:
            touched = self._touched[key] = Touched(name, share.page, pool.medium)
        touched.blocks.update(cells.blocks)
        return Area(name, share.page, cells)

    def whole(self, group: Group, pool: Pool, places: Sequence[int], space: str = "") -> Area:
        """Every row of a group's part of some blocks."""
        return self.area(group, pool, whole(self.geometry.rows(group), places), space)

    def storages(self, pools: Sequence[str]) -> tuple[str, ...]:
        """The storages of pools in their present life, as far as anything has touched them."""
        bases = dict.fromkeys(t.name.partition("#")[0] for t in self._touched.values())
        owners = [(base, base.split("/")[0]) for base in bases]
        return tuple(base + self.graphs.suffix(pool) for base, pool in owners if pool in pools)


def _lookup(c: Compiler, event: Event) -> None:
    author = c.author(str(event.req))
    author.hit = max([0, *event["hit"].values()])
    author.checked = c.epoch


def _resume(c: Compiler, event: Event) -> None:
    author = c.author(str(event.req))
    author.checked = c.epoch
    # What is brought for it is brought up to here, however far some group alone was found.
    author.hit = event["at"]
    groups = c.fold.declared.groups.values()
    author.extent.update({g.name: event["at"] for g in groups if g.participates or g.serves})


def _rollback(c: Compiler, event: Event) -> None:
    author, to = c.author(str(event.req)), event["to"]
    author.branch += 1
    author.branches = [b for b in author.branches if b[0] < to] + [(to, author.branch)]
    author.extent = {name: min(at, to) for name, at in author.extent.items()}


def _preempt(c: Compiler, event: Event) -> None:
    c.author(str(event.req)).extent.clear()


def _stated(c: Compiler, event: Event) -> None:
    pool = c.fold.declared.pools.get(str(event["pool"]))
    if pool is not None:
        counts = event.get("written") or ()
        c.stated.update(
            (pool.name, pool.map.get(block, block))
            for block, count in zip(event["blocks"], counts, strict=False) if count
        )  # fmt: skip


def _allocated(c: Compiler, event: Event) -> None:
    _, pool = c.fold.place(event)
    if pool is None or not (c.stated or c.promised or c.lays):
        return
    places = {pool.map.get(block, block) for block in event["blocks"]}
    if c.lays:
        for group in c.fold.declared.groups:
            for place in places:
                c.lays.pop((pool.name, group, place), None)
    c.stated.difference_update((pool.name, place) for place in places)
    if c.promised:
        for group in c.fold.declared.groups:
            for place in places:
                c.promised.pop((pool.name, place, group), None)


def _published(c: Compiler, event: Event) -> None:
    encoding.published(c, event)
    group = c.fold.group(event["group"])
    if group is not None and "version" in event:
        for block in event["blocks"]:
            place = group.pool.map.get(block, block)
            c.promised[group.pool.name, place, group.name] = event["version"]


def _weights(c: Compiler, event: Event) -> None:
    c.epoch += 1


_MAKE: dict[str, Any] = {
    "write": writing.write, "seal": writing.write, "index": writing.write,
    "use": reading.use, "zero": writing.zero, "copy": writing.copy,
    "store_begin": moving.begin, "load_begin": moving.begin,
    "store_end": moving.end, "load_end": moving.end,
    "lookup": _lookup, "resume": _resume, "rollback": _rollback, "preempt": _preempt,
    "publish": _published, "weights": _weights, "state": _stated, "alloc": _allocated,
    "dispatch": upkeep.dispatched, "retire": upkeep.retired,
    "rebase": relocating.rebased, "remap": relocating.remapped,
    "lease": upkeep.leased, "buffer": upkeep.buffer,
    "capture": upkeep.graph, "launch": upkeep.graph,
}  # fmt: skip
