"""The conditions of `Trace.events`, decided on the event itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from hkvtool.model.event import MALFORMED, Event
from hkvtool.store.places import Places


@dataclass(frozen=True, slots=True)
class Filter:
    """What `Trace.events` was asked for; None asks for nothing in particular."""

    since: int | None = None
    until: int | None = None
    req: str | int | None = None
    kinds: Collection[str] | None = None
    block: tuple[str | int, int] | None = None

    def keep(self, events: Iterable[Event]) -> Iterator[Event]:
        """Those of `events` that fit. With `block`, also earlier ones must be given: they say
        where the blocks of later ones lie."""
        places = Places()
        for event in events:
            if self.until is not None and event.pos > self.until:
                return
            if self.block is not None and not self._names_block(places, event):
                continue
            if self.since is not None and event.pos < self.since:
                continue
            if self.kinds is not None and not _is_kind(event, self.kinds):
                continue
            if self.req is not None and not concerns(event, self.req):
                continue
            yield event

    def _names_block(self, places: Places, event: Event) -> bool:
        assert self.block is not None
        pool, block = str(self.block[0]), self.block[1]
        return any(p.block == block and p.pool == pool for p in places.of(event))


def _is_kind(event: Event, kinds: Collection[str]) -> bool:
    return event.ev in kinds or (event.problem is not None and MALFORMED in kinds)


def concerns(event: Event, req: str | int) -> bool:
    """True where the event names the request, or carries it in a step."""
    if event.problem is not None:
        return False
    wanted = str(req)
    if event.req == wanted:
        return True
    carried = event.data.get("reqs")
    return isinstance(carried, list) and any(str(r) == wanted for r in carried)
