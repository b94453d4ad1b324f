"""What happens where in a trace: its events counted over stretches of positions.

A time axis is as wide as a screen, however long the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.store.connect import explained
from hkvtool.store.duck import DuckTrace
from hkvtool.store.trace import Trace

KINDS = max(spec.code for spec in EVENTS.values()) + 1
_BEGINS, _ENDS = ("store_begin", "load_begin"), ("store_end", "load_end")


@dataclass(frozen=True)
class Timeline:
    """Events by stretch and kind.

    `counts[i, code]` are the events of a kind at positions ``[edges[i], edges[i + 1])``, those
    that cannot be taken at their word under 0; `ts[i]` is the earliest time there, -1 for none.
    """

    edges: Any
    counts: Any
    ts: Any

    def of(self, *kinds: str) -> Any:
        """Events of some kinds by stretch."""
        return self.counts[:, [EVENTS[kind].code for kind in kinds]].sum(axis=1)

    def in_flight(self) -> Any:
        """Transfers under way at the end of each stretch."""
        return np.maximum(0, np.cumsum(self.of(*_BEGINS) - self.of(*_ENDS)))

    def stretch(self, pos: int) -> int:
        """The stretch that a position lies in."""
        found = int(np.searchsorted(self.edges, pos, side="right")) - 1
        return max(0, min(found, len(self.counts) - 1))


def timeline(trace: Trace, stretches: int) -> Timeline:
    """Count the events of a trace over at most so many stretches of equal length."""
    first, last = int(trace.meta.get("first_pos", 1)), int(trace.meta.get("last_pos", 0))
    length = max(1, -(-(last - first + 1) // max(1, stretches)))
    number = max(1, -(-(last - first + 1) // length))
    edges = first + length * np.arange(number + 1)
    counts, ts = np.zeros((number, KINDS), np.int64), np.full(number, -1, np.int64)
    if isinstance(trace, DuckTrace):
        _count_stored(trace, first, length, counts, ts)
    else:
        for event in trace.events():
            place = (event.pos - first) // length
            known = event.problem is None and event.ev in EVENTS
            counts[place, EVENTS[event.ev].code if known else 0] += 1
            when = event.get("ts")
            if known and isinstance(when, int) and (ts[place] < 0 or when < ts[place]):
                ts[place] = when
    return Timeline(edges, counts, ts)


class GrowingTimeline:
    """The timeline of a trace that grows from position 1; its stretches become longer with it."""

    def __init__(self, stretches: int) -> None:
        self._most, self._length, self._last = 2 * max(1, stretches), 1, 0
        self._counts = np.zeros((self._most, KINDS), np.int64)
        self._ts = np.full(self._most, -1, np.int64)

    def add(self, events: Sequence[Event]) -> None:
        """Count events that come behind those before."""
        for event in events:
            self._last = event.pos
            while (place := (event.pos - 1) // self._length) >= self._most:
                self._fold()
            known = event.problem is None and event.ev in EVENTS
            self._counts[place, EVENTS[event.ev].code if known else 0] += 1
            when = event.get("ts")
            if known and isinstance(when, int) and (self._ts[place] < 0 or when < self._ts[place]):
                self._ts[place] = when

    def now(self) -> Timeline:
        """As it is, never to be changed."""
        number = max(1, -(-self._last // self._length))
        edges = 1 + self._length * np.arange(number + 1)
        return Timeline(edges, self._counts[:number].copy(), self._ts[:number].copy())

    def _fold(self) -> None:
        """Two stretches become one."""
        half = self._most // 2
        pairs = self._counts.reshape(half, 2, KINDS).sum(axis=1)
        first, second = self._ts[::2], self._ts[1::2]
        earliest = np.where((first < 0) | ((second >= 0) & (second < first)), second, first)
        self._counts[:half], self._counts[half:] = pairs, 0
        self._ts[:half], self._ts[half:] = earliest, -1
        self._length *= 2


def _count_stored(trace: DuckTrace, first: int, length: int, counts: Any, ts: Any) -> None:
    with explained(trace.path):
        rows = trace.select(
            f"SELECT (pos - {first}) // {length} AS stretch, ev, count(*), min(ts) FROM events "
            "GROUP BY ALL"
        ).fetchall()
    for place, kind, count, when in rows:
        if 0 <= place < len(counts) and kind < KINDS:
            counts[place, kind] += count
            if when is not None and (ts[place] < 0 or when < ts[place]):
                ts[place] = when


def step_at(trace: Trace, step: int) -> int | None:
    """The position at which an engine step was dispatched first."""
    if isinstance(trace, DuckTrace):
        code = EVENTS["dispatch"].code
        with explained(trace.path):
            query = f"SELECT min(pos) FROM events WHERE ev = {code} AND step = {int(step)}"
            found = trace.select(query).fetchone()
        return None if found is None or found[0] is None else int(found[0])
    return next((e.pos for e in trace.events(kinds={"dispatch"}) if e.step == step), None)
