"""The fold of a long trace: the same transitions, compiled, over columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any, Protocol

import numpy as np

from hkvtool.model.event import Event
from hkvtool.model.events import DEFAULT_ACTOR, DEVICE_ACTOR
from hkvtool.model.rows import MISSING, NO_NAME, Names
from hkvtool.state import arrays as a
from hkvtool.state import codes, snapshot
from hkvtool.state.batch import Batch
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import FEW, NO_SLOT, Fold, Problem
from hkvtool.state.jit import compiled
from hkvtool.state.told_names import ToldNames
from hkvtool.state.untouched import cleared, untouched

MAX_BYTES = 1 << 32
"""What the arrays may take, and half of the machine's memory if that is less; beyond, fold plain,
which holds only the blocks that are named."""

_NARROW = 1 << 31
"""From so many events, names or places on all arrays have integers of eight bytes."""

_ACCESSES = np.array(
    [codes.WRITE, codes.SEAL, codes.INDEX, codes.ZERO, codes.COPY, codes.USE, codes.BUFFER,
     codes.SELECT]
)  # fmt: skip


class Source(Protocol):
    """What the compiled fold reads: a trace, as `hkvtool.store` opens it."""

    @property
    def path(self) -> str: ...

    @property
    def names(self) -> Any: ...

    @property
    def control(self) -> list[Event]: ...

    @property
    def meta(self) -> Mapping[str, Any]: ...

    def batches(
        self, size: int = ..., since: int | None = ..., until: int | None = ..., folded: bool = ...
    ) -> Any: ...


_NAMED = frozenset({"req", "req_table", "hash"})
"""What there are most of in a long trace, and of which few are alive at a time."""

_CLEARED_AT_ONCE = 1 << 18


def _made(size: int, extent: a.Extent, kind: Any) -> Any:
    """An array that nobody has touched. Zeros take no memory until they are written to."""
    if extent.per in _NAMED:
        found = untouched(size, extent.empty, kind)
        if found is not None:
            return found
    return np.full(size, extent.empty, kind) if extent.empty else np.zeros(size, kind)


def _clear(column: Any, empty: int) -> None:
    """Make an array as nobody has touched it. Zeros that were never written to stay so: they take
    no memory yet."""
    if cleared(column):
        return
    if empty:
        column.fill(empty)
        return
    for first in range(0, len(column), _CLEARED_AT_ONCE):
        part = column[first : first + _CLEARED_AT_ONCE]
        if part.any():
            part.fill(0)


class CompiledFold(Fold):
    """A fold whose arrays are numpy's and whose batches run compiled.

    Pools are laid out one after the other, every block has its slot from the start. Where that
    takes too much memory (`fits`), nothing is laid out and nothing can be folded. `room` is a fold
    of the same trace that is used no more: its arrays become this one's, since making memory takes
    ten times as long as clearing it.
    """

    laid_out = True

    def __init__(self, source: Source, room: CompiledFold | None = None) -> None:
        self.source, self._room = source, room
        snapshots = [e for e in source.control if e.ev == "state"]
        names = ToldNames(
            source.names,
            {
                "req": (name for e in snapshots for name in snapshot.owners(e)),
                "hash": (name for e in snapshots for name in snapshot.hash_names(e)),
            },
        )
        self._plan(names)
        super().__init__(names)
        self.refused = 0
        self._columns: tuple[Any, ...] | None = None
        self._lanes: dict[str, list[int]] | None = None
        self._spelled_twice = source.names.doubles("handle")

    # --- layout ----------------------------------------------------------------------------

    def _plan(self, names: Names) -> None:
        """Sizes of everything, from the declarations to come."""
        caps: dict[str, int] = {}
        tables: set[str] = set()
        per_pool: dict[str, set[str]] = {}
        groups: set[str] = set()
        for event in self.source.control:
            if event.ev == "pool":
                name = str(event["pool"])
                caps[name] = max(caps.get(name, 0), event["blocks"])
            elif event.ev == "remap" and str(event["pool"]) in caps:
                top = max((int(k) for k in event["map"]), default=-1)
                caps[str(event["pool"])] = max(caps[str(event["pool"])], top + 1)
            elif event.ev == "group":
                groups.add(str(event["group"]))
                tables.add(str(event.get("table", event["group"])))
                per_pool.setdefault(str(event["pool"]), set()).add(str(event["group"]))
        slots, pools = sum(caps.values()), max(1, len(caps))
        width = max((len(g) for g in per_pool.values()), default=1)
        self._caps = caps
        self._bases = dict(zip(caps, accumulate(caps.values(), initial=0), strict=False))
        self._width, self._tables = width, max(1, len(tables))
        self._lengths = {
            "header": a.HEADER,
            "steps": 2 * a.STEPS,
            "slot": slots,
            "component": slots * width,
            "pool": pools,
            "pool_component": pools * width,
            "group": len(groups),
            "group_pool": len(groups) * pools,
            "req": names.count("req"),
            "req_table": names.count("req") * self._tables,
            "hash": names.count("hash"),
            "entry": FEW,
            "handle": names.count("handle"),
            "arena": 64 * a.RECORD,
        }

    @property
    def fits(self) -> bool:
        """Whether everything that the trace names can be laid out."""
        size = sum(extent.width * self._lengths[extent.per] for extent in a.EXTENTS.values())
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return size <= min(MAX_BYTES, memory // 2)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(column.nbytes for column in self.st if len(column))

    def _new_arrays(self) -> a.Arrays:
        if not self.fits:
            return super()._new_arrays()
        room, self._room = self._room, None
        st = self._taken_over(room) or a.Arrays(
            *(
                _made(max(1, self._lengths[extent.per]), extent, self._type(extent))
                for extent in a.EXTENTS.values()
            )
        )
        st.h[a.COMPONENTS] = self._width
        st.h[a.TABLES] = self._tables
        self._mapped = np.zeros(self._lengths["slot"], np.int8)
        again = room is not None and len(room.block_of) == self._lengths["slot"]
        self.block_of = room.block_of if again and room else np.arange(self._lengths["slot"])
        for number, (name, base) in enumerate(self._bases.items()):
            end = base + self._caps[name]
            if number:
                st.slot_pool[base:end] = number
            if not again:
                self.block_of[base:end] -= base
        return st

    def _type(self, extent: a.Extent) -> Any:
        """The type of an array: as small as it can be where the trace is not too long for that."""
        longest = max(int(self.source.meta.get("last_pos", 0)), *self._lengths.values())
        return np.dtype(f"i{extent.width if longest < _NARROW else 8}")

    def let_go(self) -> a.Arrays:
        """Give up the arrays: nobody asks this fold any more, and it is gone when it is let go."""
        self._control.clear()
        st, self.st = self.st, self.st._replace(**dict.fromkeys(a.Arrays._fields, ()))
        return st

    def _taken_over(self, room: CompiledFold | None) -> a.Arrays | None:
        """The arrays of the fold that makes room, as nobody has touched them."""
        if room is None or room.source is not self.source or not room.fits:
            return None
        st = room.let_go()
        for name, extent in a.EXTENTS.items():
            column = getattr(st, name)
            if len(column) < max(1, self._lengths[extent.per]):
                return None
            _clear(column, extent.empty)
        return st

    def make_room(self, per: str, size: int) -> None:
        if per not in ("entry", "arena"):
            return
        for name, extent in a.EXTENTS.items():
            column = getattr(self.st, name)
            if extent.per == per and len(column) < size:
                more = max(size, len(column) * 5 // 4) - len(column)
                grown = np.concatenate([column, np.full(more, extent.empty, column.dtype)])
                # One after the other, so that there are never two of all of them.
                self.st = self.st._replace(**{name: grown})

    def _forget_dead(self) -> None:
        compiled("forget_dead")(self.st)

    def _running(self) -> Any:
        return np.flatnonzero(self.st.t_state == a.RUNNING)

    def _widen(self, width: int) -> None:
        """Laid out for all components from the start."""

    def _grow_tables(self, tables: int) -> None:
        """Laid out for all tables from the start."""

    def _mirrors(self) -> None:
        self._fill_mirrors(len(self.st.base))

    # --- blocks ----------------------------------------------------------------------------

    def slot(self, pool: Pool, block: int) -> int:
        if block < 0 or not pool.has(block):
            return NO_SLOT
        return int(self._bases[pool.name]) + block

    def places(self, pool: Pool, blocks: Any) -> Any | None:
        return blocks + int(self.st.base[pool.id])

    def find(self, pool: Pool, block: int) -> int | None:
        slot = self.slot(pool, block)
        return slot if slot >= 0 and self.st.touch[slot] >= 0 else None

    def slots_of(self, pool: Pool) -> dict[int, int]:
        base = self._bases[pool.name]
        touched = np.flatnonzero(self.st.touch[base : base + self._caps[pool.name]] >= 0)
        return {block: base + block for block in touched.tolist() if pool.has(block)}

    def _declare_pool(self, event: Event) -> Problem | None:
        self._columns = None
        return super()._declare_pool(event)

    def _declare_group(self, event: Event) -> Problem | None:
        self._columns = None
        return super()._declare_group(event)

    def _place_pool(self, pool: Pool) -> None:
        base = self._bases[pool.name]
        self.st.base[pool.id] = base
        self._mapped[base : base + self._caps[pool.name]] = 0
        self._map(pool, pool.map)

    def _remap(self, event: Event) -> Problem | None:
        problem = super()._remap(event)
        if problem is None:
            pool = self.declared.pools[str(event["pool"])]
            self._map(pool, {int(block): 0 for block in event["map"]})
        return problem

    def _map(self, pool: Pool, blocks: Mapping[int, int]) -> None:
        """These ids are blocks of the pool, whatever its count."""
        for block in blocks:
            if block >= 0:
                self._mapped[self._bases[pool.name] + block] = 1

    def _doubt(self, event: Event) -> None:
        pool = self.declared.pools.get(str(event.get("pool")))
        named = self.st.touch >= 0
        if pool is not None:
            named &= self.st.slot_pool == pool.id
        self.st.unsure[named] = 1
        self.st.by[named] = self.st.dirt[named] = -1

    # --- running ---------------------------------------------------------------------------

    def advance(self, until: int | None = None, since: int | None = None) -> None:
        """Fold the events at positions `since` to `until`, both included (all, where left out)."""
        for _ in self.advancing(until, since):
            pass

    def advancing(
        self, until: int | None = None, since: int | None = None, size: int = 1 << 16
    ) -> Iterator[Batch]:
        """`advance`, stopping behind each batch of `size` events."""
        waiting = [
            e for e in self.source.control
            if (since is None or e.pos >= since) and (until is None or e.pos <= until)
        ]  # fmt: skip
        waiting.reverse()
        # Where a gap ends is for every event of its lane to say.
        whole = bool(self.gaps) or any(e.ev == "dropped" for e in waiting)
        batches = self.source.batches(size, since, until, folded=not whole)
        for batch in self._prepared(batches, waiting):
            self._batch(batch, waiting)
            yield batch
        while waiting:
            self.apply(waiting.pop())

    def _prepared(self, batches: Iterator[Batch], waiting: list[Event]) -> Iterator[Batch]:
        """The batches that are about to be folded."""
        return batches

    def _ids(self, values: Any) -> Any:
        """Block ids of a batch, of its own, as the transitions take them."""
        return values.copy()

    def _batch(self, batch: Batch, waiting: list[Event]) -> None:
        moving = (batch.ev == codes.STORE_BEGIN) | (batch.ev == codes.LOAD_BEGIN)
        if moving.any():
            self._room_for_records(int(np.diff(batch.blocks.offsets)[moving].sum()))
        at = 0
        lists = (
            self._ids(batch.blocks.values), self._ids(batch.blocks2.values), self._handles(batch)
        )  # fmt: skip
        while waiting and waiting[-1].pos <= batch.pos[-1]:
            event = waiting.pop()
            index = int(np.searchsorted(batch.pos, event.pos))
            self._stretch(batch, at, index, lists)
            self.apply(event)
            at = index + int(batch.pos[index] == event.pos)
        self._stretch(batch, at, batch.n, lists)

    def _handles(self, batch: Batch) -> Any:
        """Transfers by number; one whose name is written as 1 and as "1" has one number."""
        handles = batch.handle
        if self._spelled_twice:
            handles = handles.copy()
            for other, number in self._spelled_twice.items():
                handles[batch.handle == other] = number
            handles.flags.writeable = False
        return handles

    def _stretch(self, batch: Batch, first: int, end: int, lists: Any) -> None:
        """Rows without control events between; a gap of a lane ends where the lane is seen."""
        while self.gaps and first < end:
            index, lane = self._seen_again(batch, first, end)
            if lane is None:
                break
            self._rows(batch, first, index, lists)
            self._doubt(self.gaps.pop(lane))
            self.doubted = int(batch.pos[index])
            first = index
        self._rows(batch, first, end, lists)

    def _seen_again(self, batch: Batch, first: int, end: int) -> tuple[int, str | None]:
        """The first row of a lane that has a gap, and the lane."""
        found: tuple[int, str | None] = end, None
        actor, ev = batch.actor[first:end], batch.ev[first:end]
        own = (batch.step[first:end] != MISSING) & np.isin(ev, _ACCESSES)
        for lane in self.gaps:
            seen = np.isin(actor, self._numbers_of(lane))
            if lane in (DEVICE_ACTOR, DEFAULT_ACTOR):
                seen |= (actor == NO_NAME) & (own if lane == DEVICE_ACTOR else ~own)
            seen &= (ev != 0) & (ev != codes.DROPPED)
            if seen.any() and first + seen.argmax() < found[0]:
                found = first + int(seen.argmax()), lane
        return found

    def _numbers_of(self, lane: str) -> list[int]:
        """The numbers that the trace has for a lane: it may be spelled as 1 and as "1"."""
        if self._lanes is None:
            self._lanes = {}
            for number in range(self.names.count("actor")):
                name = str(self.names.name("actor", number))
                self._lanes.setdefault(name, []).append(number)
        return self._lanes.get(lane, [])

    def _rows(self, batch: Batch, first: int, end: int, lists: Any) -> None:
        if first >= end:
            return
        blocks, blocks2, handles = lists
        # For each stretch: a `state` event between them takes room of its own.
        self._room_for_entries(int(batch.hashes.offsets[end] - batch.hashes.offsets[first]))
        if self._columns is None:
            self._columns = (
                self._numbers("group", self.declared.groups),
                self._numbers("pool", self.declared.pools),
                self._reach(),
            )
        self.refused += compiled("run")(
            self.st, *self._columns, self._mapped,
            batch.pos, batch.ev, batch.step, batch.req, batch.group, batch.group2, batch.pool,
            batch.pool2, handles, batch.t0, batch.t1, batch.version, batch.kv_version,
            batch.aux, batch.flags, batch.blocks.offsets, blocks, batch.blocks2.offsets, blocks2,
            batch.hashes.offsets, batch.hashes.values, first, end,
        )  # fmt: skip

    def _numbers(self, domain: str, declared: Mapping[str, Pool | Group]) -> Any:
        """Number of a group or pool in the names of the trace to its number here, or -1."""
        names = range(self.names.count(domain))
        found = (declared.get(str(self.names.name(domain, number))) for number in names)
        return np.array([-1 if one is None else one.id for one in found], np.int64)

    def _reach(self) -> Any:
        """Blocks of each pool that have a slot."""
        reach = np.zeros(len(self.st.base), np.int64)
        for pool in self.declared.pools.values():
            reach[pool.id] = self._caps[pool.name]
        return reach
