"""Where an event stands in the order: its lane, its place there, and what its lane knew then."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from operator import attrgetter

Clock = tuple[int, ...]
"""By lane number: how many things that lane had surely done and ended. A short clock knows
nothing of the lanes beyond it. Never changed in place, so that many stamps share one."""

UNTRACKED = -1
"""Lane of an event that has no place in the order (malformed, or on a lane too many)."""


class Stamp:
    """One event: `index` counts what its `lane` did (from 1), `clock` what had ended before it.

    A caller that keeps only the two integers `lane` and `index` of an access can ask
    `Order.ended` with them: they are FastTrack's epoch. Keeping the stamp itself keeps its
    clock alive, which costs memory only where clocks differ.
    """

    __slots__ = ("clock", "ev", "index", "lane", "pos", "step")

    def __init__(
        self, ev: str, pos: int, lane: int, index: int, clock: Clock, step: int | None
    ) -> None:
        self.ev = ev
        self.pos = pos
        self.lane = lane
        self.index = index
        self.clock = clock
        self.step = step

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ev} at {self.pos}, lane {self.lane}, {self.index})"


class Source(Stamp):
    """A thing that other lanes come to be ordered after, with all that its lane knew."""

    __slots__ = ("_passed",)
    _passed: Clock

    def passed(self) -> Clock:
        """What whoever is ordered after it knows; one clock for all of them."""
        try:
            return self._passed
        except AttributeError:
            self._passed = advanced(self.clock, self.lane, self.index)
            return self._passed


class Transfer(Source):
    """A store or load, stamped where it begins. `end` is filled in when its end is seen."""

    __slots__ = ("end", "handle")
    handle: str
    end: Stamp | None


class Signal(Source):
    """A `signal`, and the event it sets."""

    __slots__ = ("event",)
    event: str


class Wait(Stamp):
    """A `wait`, and the signal it is ordered after, if there was one."""

    __slots__ = ("event", "signal")
    event: str
    signal: Signal | None


by_pos = attrgetter("pos")


def joined(one: Sequence[int], other: Sequence[int]) -> Clock:
    """What either clock knows."""
    if len(one) == len(other):
        return tuple(map(max, one, other))
    return tuple(a if a > b else b for a, b in zip_longest(one, other, fillvalue=0))


def advanced(clock: Clock, lane: int, index: int) -> Clock:
    """The clock that also knows that `lane` ended its thing number `index`, the latest known."""
    if lane < len(clock):
        return (*clock[:lane], index, *clock[lane + 1 :])
    return (*clock, *(0,) * (lane - len(clock)), index)
