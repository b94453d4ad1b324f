"""Happens-before: which access has surely ended before another starts.

Source: trace-format `hkv/1`, *Time and order*. Each lane counts what it does and carries a
vector clock: for every other lane, the number of things that have surely *ended* there. As a
lane is sequential, an access has ended once its lane has done anything after it, so every
cross-lane edge leaves from such a later thing (`signal`, `dispatch`, `*_begin`, `*_end`) and
carries "all before me", or is a `retire`, which carries "up to the last op of my step, lane by
lane". The start of an access is never carried anywhere, so intervals need no clock of their
own, and "A ended before B" is one comparison: B's clock at A's lane against A's index.

A transfer is a lane of its own that does one thing. It needs no component either: it starts
with what its begin event knew, and it has ended for whoever is ordered after its end event.

What the format leaves open, and how it is taken here:

- Edges run forward in line order. A `wait` is ordered after the latest earlier `signal` of its
  event and after nothing if there is none; a later signal does not reach back to it (a CUDA
  event waited for before it was recorded is no wait at all). Earlier signals of the same event
  on other lanes give no edge: setting an event again replaces what it stood for.
- Ops of a step are all events that carry its number but its `dispatch` and `retire`, host
  events included. An op is ordered after every earlier dispatch of its step, a retire after
  every earlier op; an op behind the retire is not retired by it. Step numbers are one space.
- A transfer begun by an op of a step is no op of it: a retire does not wait for it to move.
- An end ends all transfers begun under its handle and not yet ended (one job begun group by
  group or part by part); a second end ends nothing. Stores and loads do not share handles.
- A malformed event is on no lane. So is what comes on lanes beyond `LANES`: `before` says of
  those that they are ordered, since nothing may be claimed about them (`untracked` counts).
"""

from __future__ import annotations

from hkvtool.model.event import Event
from hkvtool.state.order_missing import MissingEdge, missing_edge
from hkvtool.state.order_stamp import (
    UNTRACKED,
    Clock,
    Signal,
    Source,
    Stamp,
    Transfer,
    Wait,
    joined,
)
from hkvtool.state.order_trail import BOUNDS, StepTrail, Trail

LANES = 1 << 10
"""Lanes that are ordered. Clocks are as long as there are lanes, so their number is bounded."""

_EDGES = frozenset(
    {
        "signal", "wait", "dispatch", "retire",
        "store_begin", "load_begin", "store_end", "load_end",
    }
)  # fmt: skip


class Order:
    """Feed it every event in line order; ask about any two stamps it gave, at any time after."""

    def __init__(self) -> None:
        self.lanes: list[str] = []
        self.untracked = 0
        self.trail = Trail()
        self._numbers: dict[str, int] = {}
        self._indices: list[int] = []
        self._clocks: list[Clock] = []
        self._teachers: list[int] = []

    def feed(self, event: Event) -> Stamp:
        """The stamp of the next event."""
        if event.problem is not None:
            return Stamp(event.ev, event.pos, UNTRACKED, 0, (), None)
        actor = event.actor
        lane = self._numbers.get(actor)
        if lane is None:
            lane = self._new_lane(actor)
            if lane == UNTRACKED:
                self.untracked += 1
                return Stamp(event.ev, event.pos, UNTRACKED, 0, (), event.step)
        index = self._indices[lane] = self._indices[lane] + 1
        step: int | None = event.data.get("step")
        ev = event.ev
        if ev in _EDGES:
            return self._edge(event, lane, index, step)
        if step is None:
            return Stamp(ev, event.pos, lane, index, self._clocks[lane], None)
        trail = self._enter(lane, step)
        stamp = trail.ops[lane] = Stamp(ev, event.pos, lane, index, self._clocks[lane], step)
        return stamp

    def before(self, a: Stamp, b: Stamp) -> bool:
        """The access or transfer `a` has ended before `b` starts, on every possible run."""
        if isinstance(a, Transfer):
            end = a.end
            if end is None:
                return b.lane == UNTRACKED
            return end is b or self.ended(end.lane, end.index, b)
        return self.ended(a.lane, a.index, b)

    def ended(self, lane: int, index: int, b: Stamp) -> bool:
        """Thing number `index` of `lane` (no transfer) has ended before `b` starts."""
        if lane == b.lane:
            return index < b.index or lane == UNTRACKED
        if lane == UNTRACKED or b.lane == UNTRACKED:
            return True
        return lane < len(b.clock) and b.clock[lane] >= index

    def explain_missing(self, a: Stamp, b: Stamp) -> MissingEdge:
        """The edge that would have put `a` before `b`; `before` must have said it is not.

        Knows what was fed so far: asked again at the end of the trace, it can name a retire
        or an end that came too late.
        """
        return missing_edge(self.trail, self.lanes, a, b)

    def _new_lane(self, actor: str) -> int:
        lane = len(self.lanes)
        if lane >= LANES:
            return UNTRACKED
        self._numbers[actor] = lane
        self.lanes.append(actor)
        self._indices.append(0)
        self._clocks.append(())
        self._teachers.append(UNTRACKED)
        return lane

    def _enter(self, lane: int, number: int) -> StepTrail:
        """An op of a step on `lane`: ordered after the step's dispatches."""
        trail = self.trail.steps.get(number) or self.trail.step(number)
        mine = self._clocks[lane]
        for source, dispatch in trail.dispatched.items():
            # The check of `_follow`, made here because an op's dispatch is nearly always known.
            if source >= len(mine) or mine[source] < dispatch.index:
                self._follow(lane, dispatch)
                mine = self._clocks[lane]
        return trail

    def _follow(self, lane: int, earlier: Source) -> None:
        """From here on `lane` is ordered after `earlier`, and so after what that one knew."""
        source = earlier.lane
        mine = self._clocks[lane]
        # Whoever knows of this thing learned it with all that was known there: nothing to add.
        if source == lane or (source < len(mine) and mine[source] >= earlier.index):
            return
        # A lane only learns, so a lane that knows what it knows from one other lane alone needs
        # no merging when it hears from it again; many workers of one host are such lanes.
        if not mine or self._teachers[lane] == source:
            self._clocks[lane] = earlier.passed()
            self._teachers[lane] = source
        else:
            self._clocks[lane] = joined(mine, earlier.passed())
            self._teachers[lane] = UNTRACKED

    def _edge(self, event: Event, lane: int, index: int, step: int | None) -> Stamp:
        """A thing that orders lanes: it learns first, is stamped then, and is passed on last."""
        ev, data, trail = event.ev, event.data, self.trail
        op = None
        signal: Signal | None = None
        ended: list[Transfer] = []
        if step is not None and ev not in BOUNDS:
            op = self._enter(lane, step)
        if ev == "wait":
            signal = trail.signals.get(str(data["event"]))
            if signal is not None:
                self._follow(lane, signal)
        elif ev == "retire":
            self._clocks[lane] = joined(self._clocks[lane], trail.step(data["step"]).collect())
            self._teachers[lane] = UNTRACKED
        elif ev.endswith("_end"):
            ended = trail.open.pop((ev[:-4], str(data["handle"])), ended)
            for transfer in ended:
                self._follow(lane, transfer)

        clock = self._clocks[lane]
        stamp: Stamp
        if ev == "signal":
            stamp = Signal(ev, event.pos, lane, index, clock, step)
            stamp.event = str(data["event"])
            trail.signal(stamp)
        elif ev == "wait":
            stamp = Wait(ev, event.pos, lane, index, clock, step)
            stamp.event, stamp.signal = str(data["event"]), signal
            trail.recent_waits.append(stamp)
        elif ev == "dispatch":
            stamp = Source(ev, event.pos, lane, index, clock, step)
            trail.dispatch(stamp, data["step"])
        elif ev.endswith("_begin"):
            stamp = Transfer(ev, event.pos, lane, index, clock, step)
            stamp.handle, stamp.end = str(data["handle"]), None
            trail.begin(ev[:-6], stamp)
        else:
            stamp = Stamp(ev, event.pos, lane, index, clock, step)
            if ev == "retire":
                trail.step(data["step"]).retired = stamp
            for transfer in ended:
                transfer.end = stamp
        if op is not None:
            op.ops[lane] = stamp
        return stamp
