"""Unordered conflicting accesses over the whole corpus: in the race cases' bad arms, nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hkvtool.model.event import Event
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.declarations import Declarations
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp

RACES = {
    "B01": {(16, 29), (16, 32)},
    "B03": {(20, 35), (20, 36)},
    "B05": {(16, 31)},
    "B07": {(21, 24)},
    "B09": {(10, 14)},
    "B10": {(15, 25)},
    "B13": {(9, 29), (9, 32)},
    "B15": {(20, 23)},
    "B16": {(17, 32)},
}


def _declare(event: Event, declared: Declarations) -> None:
    if event.ev == "pool":
        declared.pool(event)
    elif event.ev == "group":
        declared.group(event)
    elif event.ev == "remap":
        moved = {int(block): place for block, place in event["map"].items()}
        declared.pools[str(event["pool"])].map.update(moved)


def _conflict(one: Access, i: int, other: Access, j: int) -> bool:
    if not (one.write or other.write) or not one.meets(other):
        return False
    a = one.slots(i) if one.buffer is None and one.group == other.group else None
    b = other.slots(j) if other.buffer is None else None
    return a is None or b is None or (a[0] < b[1] and b[0] < a[1])


def races(events: list[Event]) -> set[tuple[int, int]]:
    """Pairs of positions of conflicting accesses that nothing orders."""
    order, declared = Order(), Declarations()
    seen: dict[Any, list[tuple[Stamp, Access, int]]] = {}
    found: set[tuple[int, int]] = set()
    for event in events:
        now = order.feed(event)
        if event.problem is not None:
            continue
        _declare(event, declared)
        for access in accesses(event, declared):
            for i, place in enumerate(access.places or (0,)):
                pool = access.pool
                if pool is not None and place in pool.reserved:
                    continue
                key = (access.buffer, None if pool is None else pool.id, place)
                for stamp, earlier, j in seen.setdefault(key, []):
                    if stamp is now or order.before(stamp, now):
                        continue
                    if _conflict(access, i, earlier, j):
                        found.add((stamp.pos, now.pos))
                seen[key].append((now, access, i))
    return found


def test_races_are_where_the_faults_are(
    case: Any, read_events: Callable[[Path], list[Event]]
) -> None:
    assert races(read_events(case.bad)) == RACES.get(case.id, set())
    assert races(read_events(case.good)) == set()
