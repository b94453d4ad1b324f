"""What a trace does to bytes, in the order of its lines: steps of lanes, ready to be run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hkvtool.replay.memory import Touched
from hkvtool.replay.ops import Op
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp


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
