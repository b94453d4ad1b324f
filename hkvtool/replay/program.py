"""What a trace does to bytes, in the order of its lines: steps of lanes, ready to be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise

from hkvtool.replay.memory import Touched
from hkvtool.replay.ops import Op
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp

MOVE = "transfer "
"""Begins the lane of a transfer's move."""


@dataclass
class Step:
    """What one event makes one lane do. The move of a transfer is a lane of its own."""

    pos: int
    lane: str
    stamp: Stamp
    ops: list[Op] = field(default_factory=list)


@dataclass
class Program:
    """Steps in line order, what memory they touch, and the order that edges give them."""

    steps: list[Step]
    touched: Sequence[Touched]
    order: Order
    groups: dict[int, str]
    """Group names by the number in stamps."""
    sequences: dict[int, str]
    """Requests by the sequence hash in stamps."""
    thin: bool = False
    events: int = 0
    stale_graphs: int = 0
    """Launches of graphs with something baked in that was no longer so."""

    @property
    def lanes(self) -> list[str]:
        return list(dict.fromkeys(step.lane for step in self.steps))

    def in_order(self) -> list[Step]:
        """As the lines stand."""
        return self.steps

    def second_first(self, first: int, second: int) -> list[Step] | None:
        """An order that edges allow in which what event `second` does comes before what event
        `first` does, which stands earlier; None where they forbid it.

        What must come after `first` waits with it; all else runs as it stands, and what waited
        runs right behind `second`.
        """
        early = [step for step in self.steps if step.pos == first]
        late = [step for step in self.steps if step.pos == second]
        if not early or not late:
            return None
        before = self.order.before
        if any(before(a.stamp, b.stamp) for a in early for b in late):
            return None
        waiting: list[Step] = []
        out: list[Step] = []
        done = False
        for step in self.steps:
            after = step.pos and any(before(a.stamp, step.stamp) for a in early)
            if not done and (step in early or after):
                waiting.append(step)
                continue
            out.append(step)
            if not done and step is late[-1]:
                out += waiting
                done = True
        return out if done else None

    def waits(self, steps: Sequence[Step]) -> list[list[int]]:
        """By step, the steps of other lanes that must be over first and that its lane has not
        waited for yet. Edges point backwards in the order given, and what one lane waits for only
        grows."""
        lanes: dict[str, list[int]] = {}
        for index, step in enumerate(steps):
            lanes.setdefault(step.lane, []).append(index)
        reached: dict[tuple[str, str], int] = {}
        before = self.order.before
        out: list[list[int]] = []
        for index, step in enumerate(steps):
            mine: list[int] = []
            for lane, theirs in lanes.items():
                if lane == step.lane:
                    continue
                key = (step.lane, lane)
                start = at = reached.get(key, 0)
                while (
                    at < len(theirs) and theirs[at] < index
                    and (not steps[theirs[at]].pos or before(steps[theirs[at]].stamp, step.stamp))
                ):  # fmt: skip
                    at += 1
                if at > start:
                    reached[key] = at
                    mine.append(theirs[at - 1])
            out.append(mine)
        return out

    def along(self, chain: Sequence[tuple[int, bool]]) -> list[Step] | None:
        """An order that edges allow in which events do what they do one after the other as a
        chain says, by position; True is the move of a transfer and not its begin. All else runs
        as early as its line lets it. None where edges forbid the chain."""
        steps = self.steps
        ahead = self.waits(steps)
        last: dict[str, int] = {}
        places: dict[tuple[int, bool], list[int]] = {}
        for index, step in enumerate(steps):
            if step.lane in last:
                ahead[index].append(last[step.lane])
            last[step.lane] = index
            places.setdefault((step.pos, step.lane.startswith(MOVE)), []).append(index)
        linked = [places[link] for link in chain if link in places]
        for earlier, later in pairwise(linked):
            for index in later:
                ahead[index].extend(earlier)
        left = [len(set(needed)) for needed in ahead]
        behind: list[list[int]] = [[] for _ in steps]
        for index, needed in enumerate(ahead):
            for other in set(needed):
                behind[other].append(index)
        ready = [index for index, count in enumerate(left) if not count]
        out: list[Step] = []
        while ready:
            index = heappop(ready)
            out.append(steps[index])
            for other in behind[index]:
                left[other] -= 1
                if not left[other]:
                    heappush(ready, other)
        return out if len(out) == len(steps) else None
