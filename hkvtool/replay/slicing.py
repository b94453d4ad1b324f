"""The blocks that a finding concerns: what it names, and what content goes to and comes from."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.replay.compiling import Block
from hkvtool.state.accesses import accesses
from hkvtool.state.declarations import Declarations

SHORT = 5000
"""Events of a trace that is replayed whole."""

_ROUNDS = 4


def sliced(events: Sequence[Event], report: Report, finding: Finding) -> frozenset[Block] | None:
    """The blocks to keep bytes of; None for all, where the trace is short."""
    if len(events) <= SHORT:
        return None
    family = [finding, *(f for f in report.findings if f.cause == finding.id)]
    named = {p for f in family for p in (*f.events, f.check, f.use) if p is not None}
    keep: set[Block] = {(f.pool, b) for f in family for b in f.blocks if f.pool is not None}
    declared = Declarations()
    links: list[tuple[list[Block], list[Block]]] = []
    requests = {f.request for f in family if f.request is not None}
    for event in events:
        if event.problem is not None:
            continue
        _declare(event, declared)
        if event.ev not in _TOUCHING and event.pos not in named:
            continue
        places = [[(a.pool.name, p) for p in a.places] for a in accesses(event, declared)
                  if a.pool is not None]  # fmt: skip
        if event.pos in named or (event.req in requests and event.ev == "use" and not keep):
            keep.update(block for side in places for block in side)
        if len(places) == 2 and event.ev in ("copy", "store_begin", "load_begin"):
            links.append((places[0], places[1]))
    for _ in range(_ROUNDS):
        more = {b for one, two in links for pair in zip(one, two, strict=False)
                if keep & set(pair) for b in pair} - keep  # fmt: skip
        if not more:
            break
        keep |= more
    return frozenset(keep)


def _declare(event: Event, declared: Declarations) -> None:
    if event.ev == "pool":
        declared.pool(event)
    elif event.ev == "group":
        declared.group(event)
    elif event.ev == "remap":
        pool = declared.pools.get(str(event["pool"]))
        if pool is not None:
            pool.map.update({int(k): v for k, v in event["map"].items()})


_TOUCHING = frozenset(
    {"use", "write", "seal", "index", "copy", "zero", "store_begin", "load_begin"}
)
