"""Batches of a KV event stream, in the order they are to be applied, as lines of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.importers.kv_batch import read_batch
from hkvtool.importers.lines import Line, Names, WireLines, declaration

_REMEMBERED = 1 << 16


class KvStream:
    """Lines of every publisher. `wseq` counts the events of a publisher as they are applied; the
    batch that an event came in, and its data-parallel rank, stand beside it.

    A publisher's batches must come in order, or, where `as_received`, as they came: then a batch
    that comes again gets the numbers it had, one that is left out leaves a number free, and a late
    one takes that.
    """

    def __init__(self, names: Names, *, as_received: bool = False) -> None:
        self.lines = WireLines(names)
        self.batches = 0
        self._as_received = as_received
        self._next: dict[str, int] = {}
        self._newest: dict[str, int] = {}
        self._numbered: dict[tuple[str, int], int] = {}

    def begin(self, endpoints: list[str]) -> Line:
        """The first line of the trace."""
        how = "as received" if self._as_received else "in the publisher's order"
        return declaration(["wire"], f"KV events published on {', '.join(endpoints)}, {how}")

    def batch(self, actor: str, number: int, payload: bytes) -> Iterator[Line]:
        """The lines of one batch."""
        self.batches += 1
        read = read_batch(payload)
        wseq = self._first(actor, number)
        beside: dict[str, Any] = {"batch": number}
        if read.rank:
            beside["rank"] = read.rank
        for _, event in read.events:
            yield self.lines.line(actor, event, wseq, **beside)
            wseq += 1
        self._next[actor] = max(self._next.get(actor, 0), wseq)
        for offset, problem in read.problems:
            yield self.lines.unread_line(actor, offset, f"batch {number:,}: {problem}")
        if read.more:
            yield self.lines.unread_line(actor, len(payload), "more of it", count=read.more)

    def lost(self, actor: str, first: int, last: int) -> Line:
        """Batches that never came."""
        count = last - first + 1
        which = f"batch {first:,}" if count == 1 else f"batches {first:,} to {last:,}"
        return {
            "ev": "dropped", "count": count, "actor": actor, "reason": f"{which} never came",
        }  # fmt: skip

    def restart(self, actor: str) -> Line:
        """The publisher was started anew."""
        wseq = self._next.get(actor, 0)
        self._next[actor] = wseq + 1
        return self.lines.restart(actor, wseq)

    def _first(self, actor: str, number: int) -> int:
        """The number of a batch's first event."""
        following = self._next.get(actor, 0)
        if not self._as_received:
            return following
        place = (actor, number)
        again = self._numbered.get(place)
        if again is not None:
            return again
        newest = self._newest.get(actor)
        if newest is not None and number > newest + 1:
            # Each batch left out has one number at least.
            for missing in range(newest + 1, min(number, newest + 1 + _REMEMBERED)):
                self._numbered[actor, missing] = following + missing - newest - 1
            following += number - newest - 1
        self._newest[actor] = max(number, newest or 0)
        while len(self._numbered) > 2 * _REMEMBERED:
            del self._numbered[next(iter(self._numbered))]
        self._numbered[place] = following
        return following
