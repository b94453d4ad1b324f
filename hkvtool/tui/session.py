"""A trace under a cursor: what is looked at, worked out away from the screen.

Nothing here knows of Textual. What is given out is never changed again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hkvtool.model.block_state import CacheBlockState
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.state.overview import HELD, KNOWN, LOADING, NAMED, Overview, blocks_of, overview
from hkvtool.state.serving import foreign
from hkvtool.state.view import block_state
from hkvtool.store import Trace
from hkvtool.store.history import Moment as LifeEvent
from hkvtool.store.history import history
from hkvtool.store.seeking import Moments
from hkvtool.store.timeline import Timeline, step_at, timeline
from hkvtool.tui.filters import BlockFilter, inside
from hkvtool.tui.hit import Hit, hit_at

if TYPE_CHECKING:
    from hkvtool.tui.live import Live

STRETCHES = 512
"""Stretches that the time axis is counted in: wider than nearly any screen."""

MOST_BLOCKS = 1 << 24
"""Blocks of one pool that are all on the map."""


class Counts(NamedTuple):
    """Blocks of a pool."""

    held: int
    loading: int
    uncertain: int
    resumable: int


@dataclass(frozen=True)
class PoolSeen:
    """One pool at one moment."""

    name: str
    medium: str
    count: int
    groups: tuple[str, ...]
    reserved: frozenset[int]
    seen: Overview
    inside: Any = None
    coarse: dict[str, Any] = field(default_factory=dict, compare=False)
    """What is in stretches of many blocks, by what the colour stands for, once it was counted."""
    used: dict[int, Any] = field(default_factory=dict, compare=False)
    """Of stretches of so many blocks which any was named of, once it was looked for."""

    @cached_property
    def counts(self) -> Counts:
        """How many blocks are what, counted once however often it is drawn."""
        flags = self.seen.flags
        known = flags & KNOWN > 0
        return Counts(
            int(np.count_nonzero(flags & HELD)), int(np.count_nonzero(flags & LOADING)),
            int(np.count_nonzero((flags & NAMED > 0) & ~known)),
            int(np.count_nonzero(self.seen.recoverable() & known)),
        )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """Everything on the screen that depends on the moment."""

    pos: int
    event: Event | None
    pools: tuple[PoolSeen, ...] = ()
    groups: tuple[str, ...] = ()
    block: tuple[str, int] | None = None
    states: tuple[CacheBlockState, ...] = ()
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    hit: Hit | None = None


class Session:
    """One opened trace and where it stands."""

    def __init__(
        self, trace: Trace, path: str | None = None, moments: Moments | None = None,
        given: str | None = None,
    ) -> None:  # fmt: skip
        self.trace = trace
        self.path = path or trace.path
        self.given = given or self.path
        """The path that a person gave, where what is read is made of it and gone afterwards."""
        self.moments = moments or Moments(trace)
        self.lock = Lock()
        """Held by whoever moves the fold or looks at it."""
        self.report: Report | None = None
        self.live: Live | None = None
        self._ids: dict[str, tuple[int, frozenset[int], Any]] = {}
        self._seen: tuple[int, BlockFilter, tuple[PoolSeen, ...]] | None = None

    # --- facts -----------------------------------------------------------------------------

    @property
    def first(self) -> int:
        return self.moments.first

    @property
    def last(self) -> int:
        return self.moments.last

    @property
    def sparse(self) -> bool:
        """Whether there are positions without an event."""
        return self.last - self.first + 1 != self.trace.count

    def axis(self) -> Timeline:
        if self.live is not None:
            return self.live.axis()
        return timeline(self.trace, STRETCHES)

    # --- looking ---------------------------------------------------------------------------

    def look(
        self, pos: int, block: tuple[str, int] | None = None, wanted: BlockFilter | None = None,
        req: str | None = None, *, hit: bool = True,
    ) -> Look:  # fmt: skip
        """The state after everything up to `pos`. Raises TraceError."""
        with self.lock:
            return self._look(pos, block, wanted, req, hit)

    def _look(
        self, pos: int, block: tuple[str, int] | None, wanted: BlockFilter | None,
        req: str | None, hit: bool,
    ) -> Look:  # fmt: skip
        pos = max(self.first, min(pos, self.last))
        fold = self.moments.at(pos, (block[1],) if block else ())
        pools = self._pools(fold, pos, wanted or BlockFilter())
        event = self.moments.event(pos)
        block = block or _first_block(fold, event, pools)
        states = tuple(_states(fold, *block)) if block else ()
        return Look(
            pos, event, pools, tuple(fold.declared.groups), block, states,
            {s.group: layout_facts(fold.declared.groups[s.group], s.block_id) for s in states},
            hit_at(self.moments, fold, pos, req) if hit else None,
        )  # fmt: skip

    def _pools(self, fold: Fold, pos: int, wanted: BlockFilter) -> tuple[PoolSeen, ...]:
        if self._seen is not None and self._seen[:2] == (pos, wanted):
            return self._seen[2]
        found = []
        for pool in fold.declared.pools.values():
            seen = overview(fold, pool, self._ids_of(fold, pool))
            groups = tuple(g.name for g in fold.declared.groups.values() if g.pool is pool)
            found.append(
                PoolSeen(
                    pool.name, pool.medium, pool.blocks, groups, pool.reserved, seen,
                    inside(wanted, fold, seen),
                )
            )  # fmt: skip
        self._seen = pos, wanted, tuple(found)
        return tuple(found)

    def _ids_of(self, fold: Fold, pool: Pool) -> Any:
        """The block ids of a pool, which mostly stay the same: one array for all moments. Of a pool
        larger than memory is, those that anything has named."""
        if pool.blocks > MOST_BLOCKS:
            return np.array(sorted(fold.slots_of(pool)), np.int64)
        beyond = frozenset(block for block in pool.map if block >= pool.blocks)
        held = self._ids.get(pool.name)
        if held is None or held[:2] != (pool.blocks, beyond):
            held = self._ids[pool.name] = pool.blocks, beyond, blocks_of(pool)
        return held[2]

    def life(self, pool: str, block: int, known: Sequence[LifeEvent] = ()) -> list[LifeEvent]:
        """Every event that names a block, with the generation it was then in. `known` is what was
        read of it before, in a trace that grows."""
        return [*known, *history(self.trace, pool, block, after=known[-1] if known else None)]

    # --- stepping --------------------------------------------------------------------------

    def beside(self, pos: int, forward: bool, kinds: Collection[str] | None = None) -> int | None:
        """The position of the next or last event of some kinds."""
        found = self.moments.after(pos, kinds) if forward else self.moments.before(pos, kinds)
        return None if found is None else found.pos

    def step_at(self, step: int) -> int | None:
        """The position at which a step was dispatched."""
        return step_at(self.trace, step)

    def first_of(self, req: str) -> int | None:
        """The position of the first event that names a request."""
        return next((e.pos for e in self.trace.events(req=req)), None)

    def at_time(self, ns: int) -> int:
        """The last position whose time is at most so many nanoseconds after the first."""
        first = self.trace.meta.get("first_ts")
        if first is None:
            return self.first
        low, high = self.first, self.last
        while low < high:
            middle = (low + high + 1) // 2
            ts = self._ts(middle)
            if ts is not None and ts - first <= ns:
                low = middle
            else:
                high = middle - 1
        return low

    def _ts(self, pos: int) -> int | None:
        event = self.moments.event(pos)
        while event is not None and not isinstance(event.get("ts"), int):
            event = self.moments.before(event.pos)
        return None if event is None else int(event["ts"])


def _first_block(
    fold: Fold, event: Event | None, pools: Sequence[PoolSeen]
) -> tuple[str, int] | None:
    """The block to look at where nobody chose one: one that the event names, else one that is
    held."""
    if event is not None and event.problem is None:
        pool = fold.place(event)[1]
        listed = event.get("blocks")
        if pool is not None and isinstance(listed, list) and listed and pool.has(listed[0]):
            return pool.name, listed[0]
    for one in pools:
        held = np.flatnonzero(one.seen.flags & HELD)
        if len(held):
            return one.name, int(one.seen.blocks[held[0]])
    return None


def _states(fold: Fold, pool: str, block: int) -> list[CacheBlockState]:
    """A block as each group of its block table sees it."""
    groups: list[Group] = [g for g in fold.declared.groups.values() if g.pool.name == pool]
    slot = fold.find(groups[0].pool, block) if groups else None
    if slot is not None:
        groups = [g for g in groups if not foreign(fold, g, slot)]
    found = (block_state(fold, g, block) for g in groups)
    return [state for state in found if state is not None]


def layout_facts(group: Group, block: int) -> dict[str, Any]:
    """Where a group's share of a block lies in memory, as far as the trace says."""
    layout = group.layout
    facts = {k: layout[k] for k in ("dtype", "order", "codec", "storage") if k in layout}
    place = address(group.pool, group, block)
    if place is not None:
        facts["address"] = place
    for key in ("page_bytes", "stride_bytes", "row_bytes", "align"):
        if key in layout:
            facts[key] = layout[key]
    return facts


def address(pool: Pool, group: Group, block: int) -> int | None:
    """The address of a block's bytes of a group's first layer."""
    stride, layout = group.layout.get("stride_bytes"), group.layout
    if not isinstance(stride, int):
        return None
    index = pool.map.get(block, block)
    return int(layout.get("base", 0)) + int(layout.get("offset", 0)) + index * stride


def worst(report: Report) -> Finding | None:
    """The root finding to open on: the most severe, the earliest of those."""
    roots = roots_of(report)
    return roots[0] if roots else None


def roots_of(report: Report) -> list[Finding]:
    """Root findings, the most severe first, then as they happened."""
    roots = [f for f in report.findings if not f.cause]
    return sorted(roots, key=lambda f: (-f.severity.rank, f.events[:1], f.id))
