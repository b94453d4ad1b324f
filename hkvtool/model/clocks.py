"""The clocks of several machines, brought together.

Each ring says what two clocks of its machine read at the same moment: the one that its events
carry, which begins when the machine is started, and the wall clock. That brings machines together
as well as their wall clocks agree. What is left is estimated from the edges between them: what
was signalled on one cannot have been waited for on another before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

_OUT = {"signal": "event", "store_begin": "handle", "load_begin": "handle"}
_IN = {"wait": "event", "store_end": "handle", "load_end": "handle"}
_DOMAIN = {"signal": "s", "wait": "s", "store_begin": "st", "store_end": "st",
           "load_begin": "ld", "load_end": "ld"}  # fmt: skip


@dataclass(frozen=True)
class Clock:
    """Of one machine, in nanoseconds that are added to its times. `offset` is by the wall clocks,
    as `pairs` of what the two read say; `skew` is by `edges`, which allow what lies between
    `lowest` and `highest`. Where these exclude each other the clocks drifted."""

    host: str
    pairs: int
    offset: int = 0
    skew: int = 0
    edges: int = 0
    lowest: int | None = None
    highest: int | None = None

    @property
    def added(self) -> int:
        return self.offset + self.skew

    @property
    def consistent(self) -> bool:
        """Whether one skew fits all edges."""
        return self.lowest is None or self.highest is None or self.lowest <= self.highest

    def fact(self) -> dict[str, Any]:
        """As it stands in a trace's facts."""
        return asdict(self)


def by_wall(read: Iterable[tuple[int, int, int]]) -> dict[int, Clock]:
    """Clocks by what the two of a host read at the same moments, its own and the wall clock; the
    first host is the one to go by."""
    apart: dict[int, list[int]] = {}
    for host, own_clock, wall in read:
        apart.setdefault(host, []).append(wall - own_clock)
    own = [round(median(found)) for found in apart.values()]
    return {
        host: Clock(f"{host & 0xFFFFFFFF:08x}", len(found), mine - own[0])
        for (host, found), mine in zip(apart.items(), own, strict=True)
    }


@dataclass(frozen=True)
class WallClock:
    """What a trace's clock is against the wall clock: nanoseconds to add to its times, and how far
    the pairs of what the two read are from that. Traces of one `host` have one clock."""

    host: str
    offset: int
    error: int = 0
    pairs: int = 1

    @staticmethod
    def of(said: Any) -> WallClock | None:
        """As it stands in the first line of a trace; None where there is none, or no sense."""
        if not isinstance(said, Mapping):
            return None
        numbers = [said.get("offset"), said.get("error", 0), said.get("pairs", 1)]
        if not all(type(n) is int for n in numbers) or min(numbers[1:]) < 0:
            return None
        return WallClock(str(said.get("host", "")), *numbers)

    @staticmethod
    def by_pairs(host: int, pairs: Iterable[tuple[int, int]]) -> WallClock:
        """Of pairs of times, the clock's own and the wall's, read at the same moments."""
        apart = [wall - own for own, wall in pairs]
        offset = round(median(apart))
        error = max(abs(one - offset) for one in apart)
        return WallClock(f"{host & 0xFFFFFFFF:08x}", offset, error, len(apart))

    def fact(self) -> dict[str, Any]:
        """As it stands in the first line of a trace."""
        return asdict(self)


@dataclass
class Edges:
    """What happened on which machine of each thing that is begun on one and ended on another."""

    _outs: dict[tuple[str, Any], dict[int, list[int]]] = field(default_factory=dict)
    _ins: dict[tuple[str, Any], dict[int, list[int]]] = field(default_factory=dict)

    def see(self, host: int, ts: int, data: Mapping[str, Any]) -> None:
        """Take an event into account, at the time that the wall clocks make of it."""
        ev = data.get("ev")
        if not isinstance(ev, str) or ev not in _DOMAIN:
            return
        name = data.get(_OUT.get(ev) or _IN[ev])
        if isinstance(name, (str, int)):
            seen = self._outs if ev in _OUT else self._ins
            seen.setdefault((_DOMAIN[ev], name), {}).setdefault(host, []).append(ts)

    def between(self) -> Iterator[tuple[int, int, int, int]]:
        """Host and time of a cause, host and time of its effect. A name that several machines
        begin, or that comes more often on one side, says nothing certain."""
        for key, outs in self._outs.items():
            ins = self._ins.get(key, {})
            if len(outs) != 1 or len(ins) != 1:
                continue
            (source, begun), (target, ended) = next(iter(outs.items())), next(iter(ins.items()))
            if source != target and len(begun) == len(ended):
                for cause, effect in zip(sorted(begun), sorted(ended), strict=True):
                    yield source, cause, target, effect


def by_edges(clocks: Mapping[int, Clock], edges: Edges) -> dict[int, Clock]:
    """The same clocks, with what the edges to the first host say of each; nearest to what the wall
    clocks say, since those are mostly right."""
    first = next(iter(clocks))
    lowest: dict[int, list[int]] = {}
    highest: dict[int, list[int]] = {}
    for source, cause, target, effect in edges.between():
        if source == first:
            lowest.setdefault(target, []).append(cause - effect)
        elif target == first:
            highest.setdefault(source, []).append(effect - cause)
    found = {}
    for host, clock in clocks.items():
        low = max(lowest.get(host, []), default=None)
        high = min(highest.get(host, []), default=None)
        count = len(lowest.get(host, [])) + len(highest.get(host, []))
        found[host] = Clock(
            clock.host, clock.pairs, clock.offset, _nearest(low, high), count, low, high
        )
    return found


def _nearest(low: int | None, high: int | None) -> int:
    """The number next to 0 between two; in their middle where they exclude each other."""
    if low is not None and high is not None and low > high:
        return (low + high) // 2
    if low is not None and low > 0:
        return low
    if high is not None and high < 0:
        return high
    return 0
