"""The edge that is missing between two unordered accesses, as what to add and where.

Of the many edges that would order them, the one named is the one that engines' own fixes add:
what is already there and lacks only its other half comes first (a signal nobody waits for, a
retire or an end that comes too late), and it is placed where the host hands out the work that
contains the second access (its step's dispatch, the signal its stream waits for), not in the
middle of that work, unless it is known too late for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hkvtool.state.order_stamp import UNTRACKED, Signal, Stamp, Transfer, by_pos
from hkvtool.state.order_trail import BOUNDS, Trail

SIGNAL_WAIT, RETIRE, COMPLETION, DISPATCH = "signal/wait", "retire", "completion", "dispatch"


@dataclass(frozen=True, slots=True)
class MissingEdge:
    """An edge to add. It leads from the end of the operation at `from_pos` on lane `from_lane`
    to the start of the one at `to_pos` on `to_lane`.

    `kind` is `signal/wait`, `retire`, `completion` (of a transfer) or `dispatch`. Without
    `from_pos` the operation to start from is not in the trace: a retire or an end that never
    came.
    """

    kind: str
    from_pos: int | None
    from_lane: str
    to_pos: int
    to_lane: str
    text: str

    def __str__(self) -> str:
        return self.text


def missing_edge(trail: Trail, lanes: Sequence[str], a: Stamp, b: Stamp) -> MissingEdge:
    """What would have put `a` before `b`, from what the trail remembers."""
    return _Search(trail, lanes, a, b).edge()


class _Search:
    """One pair of accesses, and the places where `b` can be held back."""

    def __init__(self, trail: Trail, lanes: Sequence[str], a: Stamp, b: Stamp) -> None:
        self.trail, self.lanes, self.a, self.b = trail, lanes, a, b
        gates = [*self._dispatches(), *self._issuers()]
        self.gates = [*sorted(gates, key=by_pos), b]

    def edge(self) -> MissingEdge:
        a, b = self.a, self.b
        if isinstance(a, Transfer):
            end = a.end
            if end is None or end.pos > b.pos:
                return self._completion(end, self._gate(a.pos))
            signal = self._signal_behind(end)
            if signal is not None:
                return self._lacks_wait(signal)
            gate = self._gate_on(end.lane)
            if gate is not None:
                return self._completion(end, gate)
            return self._lacks_signal(end, f"behind the end of {self._name(a)} {_at(end)}")
        gate = self._gate_on(a.lane)
        if gate is not None:
            kind = SIGNAL_WAIT if isinstance(gate, Signal) else DISPATCH
            return self._made(kind, a, gate, f"{self._start(gate)}, only after {self._name(a)}")
        signal = self._signal_behind(a)
        if signal is not None:
            return self._lacks_wait(signal)
        if a.step is not None:
            return self._retire(a.step)
        if b.step is not None and len(self.gates) == 1 and a.lane in self.trail.dispatchers:
            return self._made(
                DISPATCH, a, b,
                f"a dispatch of step {b.step} on {self._lane(a)} after {self._name(a)}: "
                f"{self._name(b)} runs without one",
            )  # fmt: skip
        return self._lacks_signal(a, f"behind {self._name(a)}")

    def _dispatches(self) -> list[Stamp]:
        b = self.b
        step = self.trail.steps.get(b.step) if b.step is not None and b.ev not in BOUNDS else None
        return [] if step is None else [d for d in step.dispatched.values() if d.pos < b.pos]

    def _issuers(self) -> list[Stamp]:
        """The signals that `b`'s lane awaited right before `b`: what told it to start."""
        found: list[Stamp] = []
        index = self.b.index
        for wait in reversed(self.trail.recent_waits):
            if wait.pos < self.b.pos and wait.lane == self.b.lane:
                if wait.index != index - 1:
                    break
                index = wait.index
                if wait.signal is not None:
                    found.append(wait.signal)
        return found

    def _gate(self, pos: int) -> Stamp:
        """The earliest place to hold `b` back by something known at `pos`."""
        return next((gate for gate in self.gates if gate.pos > pos), self.b)

    def _gate_on(self, lane: int) -> Stamp | None:
        """The place on `lane`, where no signal is needed: that lane need only be later there."""
        return next((g for g in self.gates if g.lane == lane and g.lane != UNTRACKED), None)

    def _signal_behind(self, done: Stamp) -> Signal | None:
        """The first signal that `done`'s lane gave after it, in time for `b`."""
        found = None
        for signal in reversed(self.trail.recent_signals):
            if signal.pos <= done.pos:
                break
            if signal.lane == done.lane and signal.pos < self.b.pos:
                found = signal
        return found

    def _lacks_wait(self, signal: Signal) -> MissingEdge:
        gate = self._gate(signal.pos)
        late = next(
            (
                wait.pos
                for wait in self.trail.recent_waits
                if wait.signal is signal and wait.lane == gate.lane and wait.pos > gate.pos
            ),
            None,
        )
        tail = "" if late is None else f" (the wait at line {late} is too late)"
        return self._made(
            SIGNAL_WAIT, signal, gate,
            f"a wait on {self._lane(gate)} for {signal.event!r}, signalled {_at(signal)} on "
            f"{self._lane(signal)} behind {self._name(self.a)}, before {self._start(gate)}{tail}",
        )  # fmt: skip

    def _lacks_signal(self, done: Stamp, where: str) -> MissingEdge:
        gate = self._gate(done.pos)
        return self._made(
            SIGNAL_WAIT, done, gate,
            f"a signal on {self._lane(done)} {where} and a wait for it on {self._lane(gate)} "
            f"before {self._start(gate)}",
        )  # fmt: skip

    def _completion(self, end: Stamp | None, gate: Stamp) -> MissingEdge:
        a = self.a
        seen = f"the end of {self._name(a)}" + ("" if end is None else f" ({_line(end)})")
        lane = self._lane(a if end is None else end)
        how = "" if lane == self._lane(gate) else f", awaited on {self._lane(gate)}"
        text = f"{seen}{how} before {self._start(gate)}"
        return MissingEdge(
            COMPLETION, None if end is None else end.pos, lane, gate.pos, self._lane(gate), text
        )

    def _retire(self, number: int) -> MissingEdge:
        step = self.trail.steps.get(number)
        retire = None if step is None else step.retired
        if retire is None or retire.pos < self.a.pos:
            gate = self._gate(self.a.pos)
            text = f"a retire of step {number} before {self._start(gate)}"
            return MissingEdge(RETIRE, None, self._lane(gate), gate.pos, self._lane(gate), text)
        seen = f"the retire of step {number} ({_line(retire)})"
        on_lane = self._gate_on(retire.lane)
        if on_lane is not None:
            return self._made(RETIRE, retire, on_lane, f"{seen} before {self._start(on_lane)}")
        gate = self._gate(retire.pos if retire.pos < self.b.pos else self.a.pos)
        return self._made(
            RETIRE, retire, gate,
            f"{seen} on {self._lane(retire)}, and a wait for it on {self._lane(gate)}, before "
            f"{self._start(gate)}",
        )  # fmt: skip

    def _made(self, kind: str, source: Stamp, gate: Stamp, text: str) -> MissingEdge:
        return MissingEdge(kind, source.pos, self._lane(source), gate.pos, self._lane(gate), text)

    def _start(self, gate: Stamp) -> str:
        """A gate as the thing that must not happen yet."""
        if gate is self.b:
            return f"{self._name(gate)}"
        if isinstance(gate, Signal):
            return f"the signal {gate.event!r} {_at(gate)} that starts {self._name(self.b)}"
        return f"the dispatch of step {gate.step} {_at(gate)} that runs {self._name(self.b)}"

    def _name(self, stamp: Stamp) -> str:
        if isinstance(stamp, Transfer):
            return f"the {stamp.ev[:-6]} {stamp.handle!r} begun {_at(stamp)}"
        noun = "buffer access" if stamp.ev == "buffer" else stamp.ev
        return f"the {noun} {_at(stamp)}"

    def _lane(self, stamp: Stamp) -> str:
        return "?" if stamp.lane == UNTRACKED else self.lanes[stamp.lane]


def _line(stamp: Stamp) -> str:
    return f"line {stamp.pos}"


def _at(stamp: Stamp) -> str:
    return f"at {_line(stamp)}"
