"""A trace as far as it has been told: blocks, requests, what was moved, which steps are out.

It is what every judge of an event asks: the analyzers of a whole trace, and the guard of a running
engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.blocks import dispatched, generation
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold, Problem
from hkvtool.state.moves import Moves
from hkvtool.state.requests import Request, Requests


class Scene:
    """Kept up to date event by event: `note` before an event is judged, `follow` after."""

    def __init__(self, fold: Fold | None = None) -> None:
        self.fold = fold or Fold()
        self.requests = Requests(self.fold)
        self.moves = Moves(self.fold)
        self.event: Event | None = None
        self.dispatched: dict[int, int] = {}
        self.launched: dict[int, int] = {}
        self.capturing: dict[str, int] = {}
        self.lost: list[int] = []
        """Where events were lost."""
        self.blind = MISSING
        """The last event before which some may be missing: a loss is told where it began, and
        has its end somewhere before its lane's next event."""
        self._slots: list[int] | None = None

    def meet(self, event: Event) -> None:
        """From here on `event` is the one being judged."""
        self.event = event
        self._slots = None
        if event.problem is not None:
            return
        if self.fold.seen_again(event):
            self.blind = event.pos
        if self.blind >= 0 and self.dispatched and "blocks" in event:
            self._undispatched(event)

    def _undispatched(self, event: Event) -> None:
        """The dispatch of a step was lost: which generation of its blocks it means, nobody can
        say, and what it writes may be in an earlier one."""
        if event.step is not None and event.step not in self.dispatched:
            for slot in self.slots(event):
                if slot >= 0:
                    self.fold.st.unsure[slot] = 1

    def lose(self, event: Event) -> None:
        """Events were lost before this one."""
        self.lost.append(event.pos)
        self.blind = event.pos

    def note(self, event: Event) -> None:
        """Which steps are out, and what is being captured, as the event says."""
        ev = event.ev
        if ev == "dispatch":
            self.dispatched[event["step"]] = event.pos
        elif ev == "capture":
            self.capturing[event.actor] = event.pos
        elif event.step is not None and ev != "retire":
            if ev == "launch" and not event.get("bypass"):
                self.launched[event.step] = event.pos
            self.capturing.pop(event.actor, None)

    def follow(self, event: Event) -> Problem | None:
        """Fold the event and take it into account; says why where it is impossible."""
        problem = self.fold.apply(event)
        if problem is None:
            self.requests.follow(event)
            self.moves.follow(event)
        return problem

    # --- naming ----------------------------------------------------------------------------

    def slots(self, event: Event) -> list[int]:
        """Slots of an event's `blocks`, in its order; negative where there is none."""
        if event is not self.event:
            return self._named(event)
        if self._slots is None:
            self._slots = self._named(event)
        return self._slots

    def _named(self, event: Event) -> list[int]:
        _, pool = self.fold.place(event)
        return self.fold.resolve(pool, event.get("blocks") or ())

    def meant(self, slot: int, step: int | None) -> int:
        """The generation of a block that an access of a step means."""
        number = MISSING if step is None else step
        return int(generation(self.fold.st, slot, number))

    def generations(self, slots: Sequence[int], step: int | None) -> list[int]:
        """The generations of blocks that an access of a step means; -1 where there is none."""
        st = self.fold.st
        gen = st.gen
        if step is None or step not in self.dispatched:
            return [gen[s] if s >= 0 else -1 for s in slots]
        at, handed_out = dispatched(st, step), st.alloc_pos
        # Nearly always nothing was handed out since: then no block's past need be looked at.
        return [
            -1 if s < 0 else gen[s] if handed_out[s] <= at else self.meant(s, step) for s in slots
        ]

    def groups_of(self, engine: str | None) -> list[Group]:
        """Groups of one engine (all, where pools name none)."""
        return [g for g in self.fold.declared.groups.values() if g.pool.engine == engine]

    def request(self, event: Event) -> Request | None:
        return None if event.req is None else self.requests.known(event.req)
