"""The blocks that a finding concerns: those it names, and where their content goes.

What comes into them from blocks that are left out is taken for what it is meant to be, so a slice
shows only what goes wrong within it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.replay.compiling import Block
from hkvtool.state.accesses import accesses
from hkvtool.state.declarations import Declarations

SHORT = 5000
"""Events of a trace that is replayed whole."""

MOST = 4096
"""Blocks of a slice; block ids are used again and again, so content seems to go everywhere."""

_BEHIND = 20_000
"""Events behind the finding in which its content is followed."""


class Slice(NamedTuple):
    """The blocks to keep bytes of, and the events from and to which anything can matter."""

    blocks: frozenset[Block]
    since: int
    until: int
    own: frozenset[Block]
    """Blocks that the finding names. They are followed from where they were last taken, so that
    what is not written in the slice was not written; of the others it may have been, before."""


def sliced(
    events: Sequence[Event], report: Report, finding: Finding, *, always: bool = False
) -> Slice | None:
    """What a finding concerns; None for everything, where the trace is short and not `always`."""
    if len(events) <= SHORT and not always:
        return None
    family = [finding, *(f for f in report.findings if f.cause == finding.id)]
    named = {p for f in family for p in (*f.events, f.check, f.use) if p is not None}
    keep: set[Block] = {(f.pool, b) for f in family for b in f.blocks if f.pool is not None}
    declared = Declarations()
    first, last = min(named, default=0), max(named, default=0) + _BEHIND
    taken: dict[Block, int] = {}
    for event in events:
        if event.problem is not None or event.pos > last:
            continue
        _declare(event, declared)
        if event.ev == "alloc" and event.pos <= first:
            _taken(event, declared, taken)
        if event.pos < first and not (event.pos in named or not keep):
            continue
        if event.ev in ("copy", "store_begin", "load_begin"):
            _follow(event, declared, keep)
        if event.pos in named and not finding.blocks:
            keep.update((a.pool.name, p) for a in accesses(event, declared)
                        if a.pool is not None for p in a.places)  # fmt: skip
    # What a block held before it was last taken is nobody's.
    own = frozenset((str(f.pool), b) for f in family for b in f.blocks)
    since = min((taken.get(block, 0) for block in own), default=0)
    return Slice(frozenset(keep), since, last, own)


def _taken(event: Event, declared: Declarations, taken: dict[Block, int]) -> None:
    """Where blocks were last allocated."""
    group = declared.groups.get(str(event.get("group")))
    pool = event.get("pool") or (group.pool.name if group else None)
    where = declared.pools.get(str(pool))
    for block in event["blocks"] if where else ():
        taken[str(pool), where.map.get(block, block) if where else block] = event.pos


def _follow(event: Event, declared: Declarations, keep: set[Block]) -> None:
    """Content that leaves kept blocks takes those it goes to along."""
    sides = [a for a in accesses(event, declared) if a.pool is not None]
    if len(sides) != 2 or len(keep) >= MOST:
        return
    source, target = sides
    for here, there in zip(source.places, target.places, strict=False):
        if source.pool and target.pool and (source.pool.name, here) in keep:
            keep.add((target.pool.name, there))


def _declare(event: Event, declared: Declarations) -> None:
    if event.ev == "pool":
        declared.pool(event)
    elif event.ev == "group":
        declared.group(event)
    elif event.ev == "remap":
        pool = declared.pools.get(str(event["pool"]))
        if pool is not None:
            pool.map.update({int(k): v for k, v in event["map"].items()})
