"""What the order remembers of edges, within fixed bounds whatever the length of a trace.

A signal may be waited for, a step's op may come, a transfer may end arbitrarily later, so each
is remembered until it is among the oldest of its kind. `forgotten` counts what was dropped:
once it is above zero, an edge from very far back may be missing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

from hkvtool.state.order_stamp import Clock, Signal, Source, Stamp, Transfer, Wait, joined

BOUNDS = frozenset({"dispatch", "retire"})
"""The two ends of a step; every other event that carries its number is an op of it."""

SIGNALS = 1 << 14
"""Events (names) whose last signal is remembered."""

STEPS = 1 << 10
"""Steps remembered; engines keep fewer than ten in flight."""

SPARED = 16
"""Times that a step in flight is kept on where the oldest is forgotten: one that is slow among many
engines' steps has its retire, which orders what it did, still ahead."""

TRANSFERS = 1 << 16
"""Transfers that may be open at once."""

RECENT = 1 << 12
"""Signals and waits kept for explanations only."""


class StepTrail:
    """The edges of one step: by lane its latest dispatch and its latest op; its last retire.

    `done` is what the ops that an earlier retire collected knew, merged: a second retire of
    the same step is ordered after them too, but not after the first retire.
    """

    __slots__ = ("dispatched", "done", "ops", "retired", "spared")

    def __init__(self) -> None:
        self.dispatched: dict[int, Source] = {}
        self.ops: dict[int, Stamp] = {}
        self.done: Clock = ()
        self.retired: Stamp | None = None
        self.spared = 0

    def spare(self) -> bool:
        """Whether the step is kept on, being in flight, though it is the oldest."""
        self.spared += 1
        return bool(self.dispatched) and self.retired is None and self.spared <= SPARED

    def collect(self) -> Clock:
        """What is known once every op seen so far has ended."""
        ops = self.ops.values()
        done = self.done
        # Ops that know nothing but their dispatch share its clock: most of a step's lanes.
        for clock in {id(op.clock): op.clock for op in ops}.values():
            done = joined(done, clock)
        merged = [*done, *(0,) * (max(self.ops, default=-1) + 1 - len(done))]
        for op in ops:
            merged[op.lane] = max(merged[op.lane], op.index)
        self.ops.clear()
        self.done = tuple(merged)
        return self.done


class Trail:
    """Signals by event, steps by number, open transfers by handle."""

    def __init__(self) -> None:
        self.signals: OrderedDict[str, Signal] = OrderedDict()
        self.steps: OrderedDict[int, StepTrail] = OrderedDict()
        self.open: OrderedDict[tuple[str, str], list[Transfer]] = OrderedDict()
        self.recent_signals: deque[Signal] = deque(maxlen=RECENT)
        self.recent_waits: deque[Wait] = deque(maxlen=RECENT)
        self.dispatchers: set[int] = set()
        self.forgotten = 0

    def signal(self, signal: Signal) -> None:
        self.signals[signal.event] = signal
        self.signals.move_to_end(signal.event)
        self._bound(self.signals, SIGNALS)
        self.recent_signals.append(signal)

    def step(self, number: int) -> StepTrail:
        """The trail of a step, begun where there is none."""
        found = self.steps.get(number)
        if found is None:
            found = self.steps[number] = StepTrail()
            while len(self.steps) > STEPS:
                oldest, trail = self.steps.popitem(last=False)
                if trail.spare():
                    self.steps[oldest] = trail
                else:
                    self.forgotten += 1
        return found

    def dispatch(self, stamp: Source, number: int) -> None:
        self.step(number).dispatched[stamp.lane] = stamp
        self.dispatchers.add(stamp.lane)

    def begin(self, kind: str, transfer: Transfer) -> None:
        self.open.setdefault((kind, transfer.handle), []).append(transfer)
        self._bound(self.open, TRANSFERS)

    def _bound(self, table: OrderedDict[Any, Any], limit: int) -> None:
        if len(table) > limit:
            table.popitem(last=False)
            self.forgotten += 1
