"""What the reference allocator would decide of a window's blocks along another order.

An allocation of a block that is still held gets another one, and a hit on a hash that nobody has
published yet misses: what the request then does to the block it does elsewhere, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hkvtool.replay.window import Op, Place, Touch

_Who = tuple[str | None, Place]


class Outcomes:
    """The decisions of one run. `changed` says which are not the recorded ones."""

    def __init__(self, ops: Sequence[Op]) -> None:
        self._held = _held_before(ops)
        self._awaited = _published_later(ops)
        self._moved: dict[_Who, Place] = {}
        self._missed: set[_Who] = set()
        self._last: dict[Place, Place] = {}
        self._others = 0
        self.changed: list[str] = []

    def take(self, op: Op) -> None:
        """Decide anew what an op of the allocator was told."""
        for place in sorted(op.books):
            who = (op.event.req, place)
            if op.event.ev == "alloc":
                self._allocate(op, who)
            elif op.event.ev == "touch":
                self._hit(op, who)
            elif op.event.ev == "free":
                self._free(who)
            elif op.event.ev == "publish" and who not in self._moved:
                self._awaited.pop(place, None)

    def _allocate(self, op: Op, who: _Who) -> None:
        place = who[1]
        if self._held.get(place, 0) <= 0:
            self._held[place] = 1
            return
        self._others += 1
        other = (place[0], -self._others)
        self._moved[who] = self._last[place] = other
        self.changed.append(f"event {op.pos}: another block than {place[1]}, which is still held")

    def _hit(self, op: Op, who: _Who) -> None:
        place = who[1]
        if self._awaited.get(place, op.pos) < op.pos and who[0] is not None:
            self._missed.add(who)
            self.changed.append(f"event {op.pos}: no hit on block {place[1]}, not yet published")
        else:
            self._held[place] = self._held.get(place, 0) + 1

    def _free(self, who: _Who) -> None:
        if who in self._moved:
            del self._moved[who]
        elif who in self._missed:
            self._missed.discard(who)
        else:
            self._held[who[1]] = self._held.get(who[1], 0) - 1

    def touches(self, op: Op) -> Iterable[tuple[Touch, Touch | None]]:
        """Each access of an op, and where it goes now; None where it is not made."""
        for touch in op.touches:
            who = (op.event.req, touch.place)
            if who in self._missed:
                yield touch, None
            elif who in self._moved:
                yield touch, replace(touch, place=self._moved[who])
            elif op.event.req is None and touch.place in self._last and op.event.ev == "zero":
                # Who clears a block names no request: it is the one allocated last.
                yield touch, replace(touch, place=self._last[touch.place])
            else:
                yield touch, touch


def _held_before(ops: Iterable[Op]) -> dict[Place, int]:
    """How often each block is held as the window begins, by what is given back in it."""
    now: dict[Place, int] = {}
    least: dict[Place, int] = {}
    for op in ops:
        step = {"alloc": 1, "touch": 1, "free": -1}.get(op.event.ev, 0)
        for place in op.books if step else ():
            now[place] = now.get(place, 0) + step
            least[place] = min(least.get(place, 0), now[place])
    return {place: -low for place, low in least.items()}


def _published_later(ops: Iterable[Op]) -> dict[Place, int]:
    """Where a block that is hit in the window is published in it first."""
    out: dict[Place, int] = {}
    for op in ops:
        if op.event.ev == "publish":
            for place in op.books:
                out.setdefault(place, op.pos)
    return out
