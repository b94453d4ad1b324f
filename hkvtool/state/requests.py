"""What each request holds, in which tables, and what its last check saw."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.state.fold import Fold


class Seen(NamedTuple):
    """A block as a check saw it."""

    generation: int
    version: int
    table: int
    pos: int
    hashed: bool
    recovering: bool
    end: int


@dataclass(slots=True)
class Request:
    """One request or other named holder of blocks."""

    name: str
    first: int
    held: dict[int, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    tables: dict[int, list[int]] = field(default_factory=dict)
    left: dict[int, dict[int, int]] = field(default_factory=dict)
    seen: dict[int, Seen] = field(default_factory=dict)
    lookup: Event | None = None
    resume: Event | None = None
    engine: str | None = None
    ended: int | None = None
    is_request: bool = False
    whole: bool = False
    """Whether it was seen before it could hold a block: its first event admits it or looks up."""

    def held_at(self, slot: int, dispatched: int) -> bool:
        """Whether the request held a block when its step was dispatched (`pos`). What it let go
        of later does not matter."""
        return slot in self.held or self.released.get(slot, -1) > dispatched

    def table(self, number: int) -> list[int]:
        """Slots of one of its block tables, in token order."""
        return self.tables.get(number, [])

    def table_at(self, number: int, dispatched: int) -> list[int]:
        """The table as a step knew it that was dispatched at `pos`: what left it since first."""
        gone = [s for s, pos in self.left.get(number, {}).items() if pos > dispatched]
        now = self.table(number)
        return [s for s in gone if s not in now] + now

    def leave(self, slots: Iterable[int], pos: int) -> None:
        """Blocks drop out of every table that lists them."""
        leaving = set(slots)
        for number, table in self.tables.items():
            gone = [slot for slot in table if slot in leaving]
            if gone:
                table[:] = [slot for slot in table if slot not in leaving]
                left = self.left.setdefault(number, {})
                for slot in gone:
                    left[slot] = pos


class Over(NamedTuple):
    """Where a request that is over was first named, ended, and last checked what it read."""

    first: int
    ended: int
    lookup: int
    resume: int
    at: int

    @staticmethod
    def of(request: Request) -> Over:
        lookup, resume = request.lookup, request.resume
        return Over(
            request.first, request.ended or 0, lookup.pos if lookup else -1,
            resume.pos if resume else -1, int(resume["at"]) if resume else 0,
        )  # fmt: skip

    def again(self, name: str) -> Request:
        """The request, should it be named once more: with nothing in its hands."""
        found = Request(name, self.first, ended=self.ended, is_request=True)
        if self.lookup >= 0:
            data = {"ev": "lookup", "req": name, "hit": {}}
            found.lookup = Event(self.lookup, "lookup", data)
        if self.resume >= 0:
            found.resume = Event(
                self.resume, "resume", {"ev": "resume", "req": name, "at": self.at}
            )
        return found


def _forget_left(request: Request, before: int) -> None:
    """Drop what was given back before a position, and blocks that left a table."""
    if request.released:
        request.released = {s: pos for s, pos in request.released.items() if pos > before}
    for number, left in list(request.left.items()):
        kept = {s: pos for s, pos in left.items() if pos > before}
        if kept:
            request.left[number] = kept
        else:
            del request.left[number]


_LIFE = frozenset({"admit", "lookup", "resume", "dispatch", "refuse"})
_BEGINS = frozenset({"admit", "lookup"})
_ENDS = frozenset({"finish", "abort"})


class Requests:
    """Every request of a trace, kept up to date event by event (after the fold)."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.by_name: dict[str, Request] = {}
        self.over: dict[str, Over] = {}
        """Requests of which nothing else is known any more."""
        self.holders: dict[int, dict[str, int]] = {}

    def get(self, name: str, pos: int) -> Request:
        found = self.known(name)
        if found is None:
            found = self.by_name[name] = Request(name, pos)
        return found

    def known(self, name: str) -> Request | None:
        """The request of a name, if any event has named it; one that was forgotten comes back
        with nothing in its hands."""
        found = self.by_name.get(name)
        if found is None and name in self.over:
            found = self.by_name[name] = self.over.pop(name).again(name)
        return found

    def forget(self, before: int) -> None:
        """Let go of what was over before a position: no step in flight names it."""
        for name, request in list(self.by_name.items()):
            _forget_left(request, before)
            if request.held or request.released or request.left:
                continue
            if not request.is_request and request.first < before:
                del self.by_name[name]
            elif request.ended is not None and request.ended < before:
                self.over[name] = Over.of(request)
                del self.by_name[name]
        self.holders = {slot: who for slot, who in self.holders.items() if who}

    def follow(self, event: Event) -> None:
        """Take one event into account."""
        ev = event.ev
        owner = event.get("owner")
        name = event.req if event.req is not None else (None if owner is None else str(owner))
        if name is None:
            return
        request = self.get(name, event.pos)
        if event.req is not None:
            request.is_request = True
        if event.pos == request.first and ev in _BEGINS:
            request.whole = True
        if ev in ("alloc", "touch"):
            self._take(request, event)
        elif ev == "free":
            self._release(request, event)
        elif ev == "slide":
            self._drop(request, event)
        elif ev == "lookup":
            request.lookup = event
            request.resume = None
            request.ended = None
            self._see(request, event, {})
        elif ev == "resume":
            request.resume = event
            # Of what the lookup found, a resume that says its blocks takes only these.
            kept = {} if "blocks" in event else request.seen
            self._see(request, event, kept)
        elif ev == "admit":
            request.ended = None
            if "engine" in event:
                request.engine = str(event["engine"])
        elif ev == "preempt":
            request.resume = None
            request.seen = {}
        elif ev in _ENDS:
            request.ended = event.pos

    def _see(self, request: Request, event: Event, kept: dict[int, Seen]) -> None:
        """Remember every block that a check names, as it stands, beside those that are `kept`."""
        st = self.fold.st
        before, request.seen = request.seen, kept
        for name, blocks in (event.get("blocks") or {}).items():
            group = self.fold.group(name)
            if group is None:
                continue
            for block in blocks:
                slot = self.fold.slot(group.pool, block)
                if slot < 0:
                    continue
                earlier = before.get(slot)
                hashed = st.live[slot] > 0 or (earlier is not None and earlier.hashed)
                c = self.fold.component(slot, group)
                request.seen[slot] = Seen(
                    st.gen[slot], st.ver[c], st.table[slot], event.pos, hashed,
                    st.loads[slot] > 0, st.hi[c],
                )  # fmt: skip

    def _slots(self, event: Event) -> list[int]:
        _, pool = self.fold.place(event)
        return [s for s in self.fold.resolve(pool, event["blocks"]) if s >= 0]

    def _take(self, request: Request, event: Event) -> None:
        group = self.fold.group(event.get("group"))
        fresh = event.ev == "alloc"
        for slot in self._slots(event):
            if fresh:
                for other in self.holders.pop(slot, {}):
                    # A block that is handed out again belongs to nobody who still lists it.
                    mine = self.by_name[other]
                    mine.held.pop(slot, None)
                    mine.released.setdefault(slot, event.pos)
                request.seen.pop(slot, None)
            request.held[slot] = request.held.get(slot, 0) + 1
            request.released.pop(slot, None)
            who = self.holders.setdefault(slot, {})
            who[request.name] = who.get(request.name, 0) + 1
            number = group.table_id if group else self.fold.st.table[slot]
            if number >= 0:
                table = request.tables.setdefault(number, [])
                if slot not in table:
                    table.append(slot)

    def _release(self, request: Request, event: Event) -> None:
        last: list[int] = []
        for slot in self._slots(event):
            left = request.held.get(slot, 0) - 1
            if left > 0:
                request.held[slot] = left
                self.holders[slot][request.name] = left
                continue
            request.held.pop(slot, None)
            request.released[slot] = event.pos
            self.holders.get(slot, {}).pop(request.name, None)
            last.append(slot)
        request.leave(last, event.pos)

    def _drop(self, request: Request, event: Event) -> None:
        request.leave(self._slots(event), event.pos)
