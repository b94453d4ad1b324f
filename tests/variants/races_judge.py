"""Races by the text of the trace format alone: two accesses to the same bytes, one a write, that no
chain of edges orders. Slow, and shares no code with the checker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from state.order_oracle import Oracle, lane

Event = dict[str, Any]
Touch = tuple[int, bool, str | None, tuple[int, int] | None]
"""Index of the event, whether it writes, the group (None: all of the block), the slots."""


class Chained(Oracle):
    """The same order with fewer edges: what a lane does next leads on to the rest of it."""

    def _lane(self, i: int) -> None:
        for j in range(i + 1, len(self.events)):
            if lane(self.events[j]) == lane(self.events[i]):
                self._edge(("end", i), ("start", j))
                return


def race(events: Sequence[Event]) -> tuple[int, int] | None:
    """Lines of the first two accesses that race, None where there are none."""
    groups = {e["group"]: e for e in events if e["ev"] == "group"}
    places: dict[tuple[str, int], list[Touch]] = defaultdict(list)
    for i, event in enumerate(events):
        for place, touch in _touches(i, event, groups):
            places[place].append(touch)
    pairs = [
        (one, other)
        for touches in places.values()
        for n, other in enumerate(touches)
        for one in touches[:n]
        if _meet(one, other, groups) and lane(events[one[0]]) != lane(events[other[0]])
    ]
    if not pairs:
        return None
    order = Chained(events)
    for one, other in sorted(pairs, key=lambda p: p[1][0]):
        if one[0] != other[0] and not order.before(one[0], other[0]):
            if not order.before(other[0], one[0]):
                return one[0] + 1, other[0] + 1
    return None


def _touches(i: int, e: Event, groups: dict[str, Event]) -> Iterator[tuple[tuple[str, int], Touch]]:
    ev = e["ev"]
    if ev in ("write", "seal", "index", "use") and not e.get("pad"):
        group = groups[e["group"]]
        for n, block in enumerate(e["blocks"]):
            slots = _slots(e, group, n)
            yield (group["pool"], block), (i, ev != "use", e["group"], slots)
    elif ev == "zero":
        for block in e["blocks"]:
            yield (e["pool"], block), (i, True, None, None)
    elif ev in ("store_begin", "load_begin"):
        group = groups[e["group"]]
        for n, block in enumerate(e["blocks"]):
            slots = _slots(e, group, n)
            yield (group["pool"], block), (i, ev == "load_begin", e["group"], slots)
        far = e.get("to") or e.get("from")
        for block in e.get("peer") or ():
            yield (str(far), block), (i, ev == "store_begin", e["group"], None)


def _slots(e: Event, group: Event, n: int) -> tuple[int, int] | None:
    size, tokens = group["block_tokens"], e.get("tokens")
    if tokens is None or group["form"] == "recurrent":
        return None
    first = tokens[0] // size
    if -(-tokens[1] // size) - first != len(e["blocks"]):
        return None
    base = (first + n) * size
    return max(tokens[0] - base, 0), min(tokens[1] - base, size)


def _meet(one: Touch, other: Touch, groups: dict[str, Event]) -> bool:
    if not (one[1] or other[1]):
        return False
    if one[2] is None or other[2] is None:
        return True
    if one[2] != other[2]:
        tables = [groups[g].get("table", g) for g in (one[2], other[2])]
        return tables[0] != tables[1]
    if one[3] is None or other[3] is None:
        return True
    return one[3][0] < other[3][1] and other[3][0] < one[3][1]
