"""The fold of the blocks that a stretch of events names, and of those that somebody looks at.

From a keyframe to a moment shortly behind it a few thousand blocks change. Their states are read
from the keyframe, the events are folded over them by the same transitions, and of all others is
known what they were: `overview` puts both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hkvtool.model.event import Event
from hkvtool.model.rows import Names
from hkvtool.state import arrays as a
from hkvtool.state import codes
from hkvtool.state import keyframes as k
from hkvtool.state import overview as o
from hkvtool.state.batch import Batch
from hkvtool.state.compiled import CompiledFold, Source
from hkvtool.state.declarations import Pool
from hkvtool.state.fold import FEW, NO_SLOT, Problem
from hkvtool.state.soundness import unsound
from hkvtool.state.standing import COMPONENT, ENTRY, SLOT, Layout, Standing

BREAKS = frozenset({"state", "pool", "group", "remap", "weights", "dropped", "reset"})
"""Events that change blocks which they do not name: none may lie behind the keyframe."""

_NO_ID = 1 << 40
"""Stands for a block id that no pool has."""

_REACH = 1 << 39

_UNREAD = {field: np.zeros(0, np.int64) for field in ("own_head", "first_of_hash")}
"""Arrays by what a trace names: what is in them was put there, not read."""


class Excerpt(CompiledFold):
    """Some blocks behind a keyframe.

    Slot ``j * pools + p`` is block ``ids[j]`` of pool p: blocks come in with the slots of that id
    in every pool, so that a list of ids is turned into places without asking for their pool. What
    was not read yet is read when it is asked for: nothing has named it since the keyframe. Lists of
    free blocks and of what a request owns are of these blocks only.
    """

    laid_out = False

    def __init__(self, source: Source, standing: Standing, also: Sequence[int] = ()) -> None:
        """`also` are ids of blocks that will be asked for: to read them with what the events name
        takes a few milliseconds, to read them afterwards a few tens."""
        self._standing, self._also = standing, also
        self._count, self._entries = 1, 0
        super().__init__(source)
        standing.lay_out(self._layout)
        for event in source.control:
            if event.pos <= standing.pos and event.ev in k.DECLARING:
                self.apply(event)
        self._restore_small()
        self._take(0)

    # --- layout ----------------------------------------------------------------------------

    def _plan(self, names: Names) -> None:
        super()._plan(names)
        self._kinds = {field: self._type(extent) for field, extent in a.EXTENTS.items()}
        self._layout = Layout(self._caps, self._width, self._kinds)
        pools = self._layout.pools
        self._rank = np.zeros(self._layout.ids, np.int32)
        self._caps = dict.fromkeys(self._caps, 0)
        self._bases = {name: number for number, name in enumerate(self._bases)}
        self._lengths.update(slot=pools, component=pools * self._width)

    def _new_arrays(self) -> a.Arrays:
        st = super()._new_arrays()
        st.slot_pool[:] = np.arange(len(st.slot_pool)) % self._layout.pools
        self.block_of = np.full(len(st.slot_pool), -1, np.int64)
        return st

    def _grow(self, count: int) -> None:
        """Have slots for so many ids."""
        pools = self._layout.pools
        if count * pools <= len(self.block_of):
            return
        room = max(count, count * 5 // 4 if self._count > 1 else 0)
        for field in a.EXTENTS:
            per = a.EXTENTS[field].per
            if per in ("slot", "component"):
                size = room * pools * (self._width if per == "component" else 1)
                column = getattr(self.st, field)
                more = np.full(size - len(column), a.EXTENTS[field].empty, column.dtype)
                grown = np.concatenate([column, more])
                self.st = self.st._replace(**{field: grown})
        self.st.slot_pool[:] = np.arange(room * pools) % pools
        more = np.full(room * pools - len(self.block_of), -1, np.int64)
        self.block_of = np.concatenate([self.block_of, more])
        self._mapped = np.concatenate([self._mapped, np.zeros(len(more), np.int8)])

    def _type(self, extent: a.Extent) -> Any:
        kinds = getattr(self, "_kinds", None)
        if kinds is None:
            return super()._type(extent)
        # Those of the whole fold, which the keyframe is of.
        return kinds[next(f for f, e in a.EXTENTS.items() if e is extent)]

    def _declare_pool(self, event: Event) -> Problem | None:
        problem = super()._declare_pool(event)
        number = self.declared.pools[str(event["pool"])].id
        # Every place is asked for whether it is a block's.
        self.st.size[number] = min(1, self.st.size[number])
        return problem

    def _place_pool(self, pool: Pool) -> None:
        self.st.base[pool.id] = self._bases[pool.name]
        self._map(pool, {})

    def _map(self, pool: Pool, blocks: Any) -> None:
        places = np.arange(self._bases[pool.name], len(self.block_of), self._layout.pools)
        ids = self.block_of[places]
        has = (ids >= 0) & (ids < pool.blocks)
        if pool.map:
            has = np.array([block >= 0 and pool.has(int(block)) for block in ids], bool)
        self._mapped[places] = has

    def _reach(self) -> Any:
        return np.full(len(self.st.base), _REACH, np.int64)

    # --- blocks ----------------------------------------------------------------------------

    def slot(self, pool: Pool, block: int) -> int:
        if block < 0 or not pool.has(block):
            return NO_SLOT
        if not self._rank[block]:
            self.include(np.array([block]))
        return int(self._bases[pool.name] + int(self._rank[block]) * self._layout.pools)

    def resolve(self, pool: Pool | None, blocks: Any) -> list[int]:
        self.include(np.array([b for b in blocks if b >= 0], np.int64))
        return super().resolve(pool, blocks)

    def places(self, pool: Pool, blocks: Any) -> Any | None:
        rank = self._rank[blocks].astype(np.int64)
        return np.where(rank > 0, rank * self._layout.pools + self._bases[pool.name], -1)

    def slots_of(self, pool: Pool) -> dict[int, int]:
        first = int(self._layout.bases[self._bases[pool.name]])
        last = first + int(self._layout.caps[self._bases[pool.name]])
        named = np.flatnonzero(self._standing.seen().flags[first:last] & o.NAMED)
        self.include(named)
        places = np.flatnonzero(self.st.touch >= 0)
        own = places[places % self._layout.pools == self._bases[pool.name]]
        found = zip(self.block_of[own].tolist(), own.tolist(), strict=True)
        return {block: place for block, place in found if pool.has(block)}

    def led_to(self, number: int) -> Iterator[int]:
        self.include(self._standing.led_to(np.array([number])))
        return super().led_to(number)

    def overviewed(self, pool: Pool, blocks: Any) -> o.Overview:
        number = self._bases[pool.name]
        before = self._standing.looked.get(number)
        if before is not None and len(before.blocks) == len(blocks):
            found = o.Overview(blocks, *(column.copy() for column in before[1:]))
        else:
            slots: Any = blocks + int(self._layout.bases[number])
            if len(blocks) and int(blocks[-1]) - int(blocks[0]) == len(blocks) - 1:
                slots = slice(int(slots[0]), int(slots[-1]) + 1)
            found = o.Overview(blocks, *(column[slots] for column in self._standing.seen()[1:]))
        ids = np.sort(self.block_of[number :: self._layout.pools])
        place = np.searchsorted(blocks, ids)
        place = np.minimum(place, max(0, len(blocks) - 1))
        there = blocks[place] == ids if len(blocks) else np.zeros(len(ids), bool)
        now = o.judged(self, pool, ids[there])
        for column, seen in zip(found[1:], now[1:], strict=True):
            column[place[there]] = seen
        # Whatever is looked at next is this, but for the blocks that came in, which are seen anew.
        self._standing.looked[number] = found
        if len(self._standing.looked) == len(self.declared.pools):
            self._standing.forget_seen()
        return found

    # --- coming in -------------------------------------------------------------------------

    def include(self, ids: Any) -> None:
        """Take in blocks by id, in every pool that has one of that id."""
        known = ids[(ids >= 0) & (ids < self._layout.ids)]
        new = np.zeros(0, np.int64)
        if len(known):
            mask = np.zeros(self._layout.ids, bool)
            mask[known] = True
            mask[self._rank > 0] = False
            new = np.flatnonzero(mask)
        if len(new):
            self._standing.bring(new)
            self._take(self._count)

    def _take(self, first: int) -> None:
        """Take over what was read from the id with this number on."""
        standing, pools = self._standing, self._layout.pools
        ids = standing.ids[first:]
        self._grow(len(standing.ids))
        rows = slice(first * pools, len(standing.ids) * pools)
        for field in SLOT:
            getattr(self.st, field)[rows] = standing.columns[field][rows]
        parts = slice(rows.start * self._width, rows.stop * self._width)
        for field in COMPONENT:
            getattr(self.st, field)[parts] = standing.columns[field][parts]
        self._rank[ids[ids >= 0]] = np.arange(first, len(standing.ids))[ids >= 0]
        self.block_of[rows] = np.repeat(ids, pools)
        self._count = len(standing.ids)
        if not first:
            self._move_records()
        for pool in self.declared.pools.values():
            self._map(pool, {})
        wrong = unsound(self.st, _UNREAD)
        if wrong:
            raise standing.altered(wrong)
        self._own(np.arange(rows.start, rows.stop))
        self._lead()

    def _own(self, slots: Any) -> None:
        """Chain slots to the requests that own them."""
        st = self.st
        slots = slots[st.owner[slots] >= 0]
        slots = slots[np.argsort(st.owner[slots], kind="stable")]
        if not len(slots):
            return
        owner = st.owner[slots]
        same = owner[1:] == owner[:-1]
        st.own_next[slots[:-1][same]] = slots[1:][same]
        st.own_prev[slots[1:][same]] = slots[:-1][same]
        heads, ends = slots[np.append(True, ~same)], slots[np.append(~same, True)]
        after = st.own_head[st.owner[ends]]
        st.own_next[ends] = after
        st.own_prev[after[after >= 0]] = ends[after >= 0]
        st.own_head[st.owner[heads]] = heads

    def _lead(self) -> None:
        """Put hashes of blocks that came in among the others, in the order in which they were
        published."""
        new = {f: column[self._entries :] for f, column in self._standing.entries.items()}
        self._entries = len(self._standing.entries["e"])
        if not len(new["e"]):
            return
        self._forget_dead()
        st, count = self.st, int(self.st.h[a.ENTRIES])
        if not (new["e_hash"].min() >= 0 and new["e_hash"].max() < len(st.first_of_hash)):
            raise self._standing.altered("e_hash leads nowhere")
        # What has come since the keyframe is later.
        index = np.concatenate([new["e"], np.arange(count)])
        pos = np.concatenate([new["e_pos"], st.e_pos[:count]])
        order = np.lexsort((index, pos))
        self.make_room("entry", len(order) + FEW)
        st = self.st
        for field in ENTRY:
            column = getattr(st, field)
            column[: len(order)] = np.concatenate([new[field], column[:count]])[order]
        st.e_live[: len(order)] = 1
        st.h[a.ENTRIES] = st.h[a.LIVE] = len(order)
        self._forget_dead()

    def _restore_small(self) -> None:
        """What does not hang on the number of blocks, as it stood."""
        declared = self.st.h[[a.COMPONENTS, a.TABLES, a.MAPPED, a.USED]].copy()
        for chunk in self._standing.small():
            column = getattr(self.st, chunk.field, None)
            if column is None:
                continue
            if chunk.field == "arena":
                self.make_room("arena", (chunk.number + 1) * k.CHUNK)
                column = self.st.arena
            first = chunk.number * k.CHUNK
            if not 0 <= first <= len(column) - len(chunk.values):
                raise self._standing.altered(f"chunk {chunk.number} of {chunk.field}")
            limits = np.iinfo(column.dtype)
            values = chunk.values
            if len(values) and not (limits.min <= values.min() and values.max() <= limits.max):
                raise self._standing.altered(f"chunk {chunk.number} of {chunk.field}")
            column[first : first + len(values)] = values
        h = self.st.h
        h[[a.COMPONENTS, a.TABLES, a.MAPPED, a.USED]] = declared
        h[a.ENTRIES] = h[a.LIVE] = 0
        if not 0 <= h[a.ARENA] <= len(self.st.arena):
            raise self._standing.altered(f"{h[a.ARENA]} places of arena in use")
        self._near = [self._record(handle) for handle in self._running().tolist()]
        slots = np.concatenate([np.zeros(0, np.int64), *(r[r >= 0] for r in self._near)])
        if len(slots) and slots.max() >= self._layout.slots:
            raise self._standing.altered("a transfer leads nowhere")
        self._standing.bring(np.setdiff1d(self._layout.blocks(slots), self._standing.ids))

    def _record(self, handle: int) -> Any:
        """Where a transfer under way has the slots that it leads to."""
        first, count = int(self.st.t_off[handle]), int(self.st.t_len[handle])
        end = first + count * a.RECORD
        if not 0 <= first <= end <= self.st.h[a.ARENA]:
            raise self._standing.altered("a transfer lies nowhere")
        return self.st.arena[first:end].reshape(count, a.RECORD)[:, [0, 2]]

    def _move_records(self) -> None:
        """Let the transfers under way, which lead to slots of a whole fold, lead to ours."""
        layout = self._layout
        for handle in self._running().tolist():
            first, count = int(self.st.t_off[handle]), int(self.st.t_len[handle])
            records = self.st.arena[first : first + count * a.RECORD].reshape(count, a.RECORD)
            for side in (0, 2):
                there = records[:, side] >= 0
                slots = records[there, side]
                pool = np.searchsorted(layout.bases, slots, side="right") - 1
                rank = self._rank[layout.blocks(slots)].astype(np.int64)
                records[there, side] = rank * layout.pools + pool

    # --- running ---------------------------------------------------------------------------

    def _prepared(self, batches: Iterator[Batch], waiting: list[Event]) -> Iterator[Batch]:
        held = list(batches)
        found = [column.values for b in held for column in (b.blocks, b.blocks2)]
        found.append(np.array(self._also, np.int64))
        hashes, requests = [], []
        for batch in held:
            bare = (batch.ev == codes.UNPUBLISH) & (np.diff(batch.blocks.offsets) == 0)
            listed = np.repeat(bare, np.diff(batch.hashes.offsets))
            hashes.append(batch.hashes.values[listed])
            requests.append(batch.req[(batch.ev == codes.ROLLBACK) & (batch.req >= 0)])
        if any(map(len, hashes)):
            found.append(self._standing.led_to(np.unique(np.concatenate(hashes))))
        if any(map(len, requests)):
            found.append(self._standing.owned_by(np.unique(np.concatenate(requests))))
        mask = np.zeros(self._layout.ids, bool)
        for ids in found:
            mask[ids[(ids >= 0) & (ids < len(mask))]] = True
        self.include(np.flatnonzero(mask))
        return iter(held)

    def _ids(self, values: Any) -> Any:
        inside = (values >= 0) & (values < len(self._rank))
        ids = np.where(values < 0, values, _NO_ID)
        ids[inside] = self._rank[values[inside]].astype(np.int64) * self._layout.pools
        return ids
