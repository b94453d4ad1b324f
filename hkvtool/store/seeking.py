"""Going to any moment of a trace and from there to the next: what a person who looks does.

`moments.fold_at` starts anew each time. Here the fold of the last moment goes on where that is
shorter, and in a short trace copies are kept on the way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.state.copying import copied, size_of
from hkvtool.state.fold import PLAIN_LIMIT, Fold
from hkvtool.store.moments import fold_at
from hkvtool.store.trace import Trace

if TYPE_CHECKING:
    from hkvtool.state.standing import Standing

COPY_EVERY = 1024
"""Events from one copy to the next in a short trace: folded again in about 20 ms."""

COPIES_BYTES = 96 << 20
"""What the copies may take together; beyond, every other one is dropped."""

GO_ON = 1 << 16
"""A long trace is folded on from where it stands over so many positions; a keyframe is nearer
beyond."""

MOST_READ = 1 << 17
"""Blocks that are kept as they stood at a keyframe, to start from them again."""

_FIRST_SPAN, _ANY_SPAN = 256, 4
"""Positions that are looked at first for an event of some kinds, and for any."""


class Moments:
    """The states of one trace, one at a time. A fold holds until the next one is asked for."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.first = int(trace.meta.get("first_pos", 1))
        self.last = int(trace.meta.get("last_pos", 0))
        self._at = self.first - 1
        self._fold: Fold | None = None
        self._plain = trace.count < PLAIN_LIMIT
        self._events: list[Event] | None = None
        self._places: list[int] = []
        self._copies: list[tuple[int, int, Fold]] = []
        self._copy_every = COPY_EVERY
        self._standing: Standing | None = None
        self._breaks: list[int] | None = None

    def at(self, pos: int, also: Sequence[int] = ()) -> Fold:
        """The fold after every event up to `pos`, included; `also` are ids of blocks that it will
        be asked for, whatever the events name. Raises TraceError."""
        if self._fold is not None and pos == self._at:
            return self._fold
        self._fold = self._short(pos) if self._plain else self._long(pos, also)
        self._at = pos
        return self._fold

    def go_on_from(self, earlier: Moments) -> None:
        """Take over the copies of an earlier reading of the same trace, if nothing but more has
        come since. The fold itself stays: somebody may still be looking at it."""
        if not (self._plain and earlier._plain):
            return
        before, now = earlier._kept(), self._kept()
        if now[: len(before)] == before:
            self._copies, self._copy_every = list(earlier._copies), earlier._copy_every

    # --- moving ----------------------------------------------------------------------------

    def event(self, pos: int) -> Event | None:
        """The last event at or before a position."""
        return self.before(pos + 1)

    def after(self, pos: int, kinds: Collection[str] | None = None) -> Event | None:
        """The first event behind a position, of these kinds."""
        if self._plain:
            there = self._kept()
            span = there[bisect_right(self._places, pos) :]
            return next((e for e in span if kinds is None or e.ev in kinds), None)
        return next(self.trace.events(since=pos + 1, kinds=kinds), None)

    def before(
        self, pos: int, kinds: Collection[str] | None = None, req: str | None = None
    ) -> Event | None:
        """The last event before a position, of these kinds and of this request."""
        if self._plain:
            there = self._kept()
            for event in reversed(there[: bisect_right(self._places, pos - 1)]):
                if (kinds is None or event.ev in kinds) and (req is None or event.req == req):
                    return event
            return None
        end, span_size = pos - 1, _ANY_SPAN if kinds is None and req is None else _FIRST_SPAN
        while end >= self.first:
            start = max(self.first, end - span_size + 1)
            found = [
                e for e in self.trace.events(start, end, req=req, kinds=kinds)
                if req is None or e.req == req
            ]  # fmt: skip
            if found:
                return found[-1]
            end, span_size = start - 1, span_size * 8
        return None

    def span(self, since: int, until: int) -> Iterator[Event]:
        """The events at positions `since` to `until`, both included."""
        if not self._plain:
            return self.trace.events(since, until)
        there = self._kept()
        return iter(
            there[bisect_right(self._places, since - 1) : bisect_right(self._places, until)]
        )

    def named(self, req: str | None = None, block: tuple[str, int] | None = None) -> list[Event]:
        """The events that name a request or a block."""
        return list(self.trace.events(req=req, block=block))

    # --- folding ---------------------------------------------------------------------------

    def _kept(self) -> list[Event]:
        if self._events is None:
            self._events = list(self.trace.events())
            self._places = [e.pos for e in self._events]
        return self._events

    def _short(self, pos: int) -> Fold:
        events = self._kept()
        done = bisect_right(self._places, self._at)
        fold, going = self._fold, self._fold is not None and self._at <= pos
        last = bisect_right(self._places, pos)
        nearest = next((c for c in reversed(self._copies) if c[0] <= last), None)
        if not going or (nearest is not None and nearest[0] > done):
            done, fold = (nearest[0], copied(nearest[2])) if nearest else (0, Fold())
        assert fold is not None
        for number in range(done, last):
            if number % self._copy_every == 0 and number:
                self._keep(number, fold)
            fold.apply(events[number])
        return fold

    def _keep(self, number: int, fold: Fold) -> None:
        if any(n == number for n, _, _ in self._copies):
            return
        self._copies.append((number, size_of(fold), copied(fold)))
        self._copies.sort(key=lambda c: c[0])
        while sum(size for _, size, _ in self._copies) > COPIES_BYTES and len(self._copies) > 1:
            self._copy_every *= 2
            self._copies = [c for c in self._copies if c[0] % self._copy_every == 0]

    def _long(self, pos: int, also: Sequence[int]) -> Fold:
        from hkvtool.state.compiled import CompiledFold
        from hkvtool.state.excerpt import Excerpt

        fold = self._fold
        if isinstance(fold, CompiledFold) and 0 <= pos - self._at <= GO_ON:
            if not isinstance(fold, Excerpt) or self._unbroken(self._at, pos):
                fold.advance(since=self._at + 1, until=pos)
                return fold
        # Two folds of a large pool at once would be too much, and each is part of a cycle.
        room, self._fold = None, None
        if isinstance(fold, Excerpt):
            fold.let_go()
        elif isinstance(fold, CompiledFold):
            room = fold
        fold = None
        standing = self._standing_at(pos)
        if standing is None:
            self._standing = None
            return fold_at(self.trace, pos, room=room)
        if room is not None:
            room.let_go()
        found = Excerpt(self.trace, standing, also)
        if pos > standing.pos:
            found.advance(since=standing.pos + 1, until=pos)
        return found

    def _standing_at(self, pos: int) -> Standing | None:
        """What to start from where only some blocks are to be folded; None where that will not do.
        It is kept, with what was read of it, as long as one stays near."""
        found = self.trace.standing(pos)
        if found is None:
            return None
        if self._standing is not None and self._standing.pos == found.pos:
            if self._standing.count <= MOST_READ:
                found = self._standing
        self._standing = found
        if found.pos < self.first:
            return found if pos - found.pos <= 2 * GO_ON else None
        return found if self._unbroken(found.pos, pos) and not found.gaps else None

    def _unbroken(self, since: int, until: int) -> bool:
        """Whether every event behind a position changes only blocks that it names."""
        if self._standing is not None and self._standing.pos < self.first:
            # All that was ever named is at hand.
            return True
        if self._breaks is None:
            from hkvtool.state.excerpt import BREAKS

            self._breaks = [e.pos for e in self.trace.control if e.ev in BREAKS]
            if self.trace.kinds.get("reset"):
                self._breaks += [e.pos for e in self.trace.events(kinds={"reset"})]
                self._breaks.sort()
        at = bisect_right(self._breaks, since)
        return at == len(self._breaks) or self._breaks[at] > until
