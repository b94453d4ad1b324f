"""Going anywhere in a trace that grows: its end is always there, the rest from copies kept on the
way."""

from __future__ import annotations

from collections.abc import Sequence

from hkvtool.state.copying import copied, size_of
from hkvtool.state.fold import Fold
from hkvtool.store.growing import GrowingTrace
from hkvtool.store.seeking import COPIES_BYTES, Moments


class GrowingMoments(Moments):
    """The states of a trace so far. `head` is the fold after its last event: whoever applies an
    event to it says so with `passed`."""

    def __init__(self, trace: GrowingTrace, head: Fold) -> None:
        super().__init__(trace)
        self.first, self.last, self.head = 1, 0, head
        self._plain = False
        self._taken = 0

    def passed(self, pos: int) -> None:
        """The head stands behind the event at `pos`."""
        self.last = pos
        if pos - self._taken >= self._copy_every:
            self._taken = pos
            self._copies.append((pos, size_of(self.head), copied(self.head)))
            while sum(size for _, size, _ in self._copies) > COPIES_BYTES:
                self._copy_every *= 2
                self._copies = self._copies[1::2]

    def at(self, pos: int, also: Sequence[int] = ()) -> Fold:
        if pos >= self.last:
            return self.head
        if self._fold is not None and pos == self._at:
            return self._fold
        fold = self._fold if self._at <= pos else None
        nearest = next((c for c in reversed(self._copies) if c[0] <= pos), None)
        if nearest is not None and (fold is None or nearest[0] > self._at):
            self._at, fold = nearest[0], copied(nearest[2])
        elif fold is None:
            self._at, fold = 0, Fold()
        for event in self.trace.events(self._at + 1, pos):
            fold.apply(event)
        self._fold, self._at = fold, pos
        return fold
