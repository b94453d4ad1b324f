"""Which events of a trace bear on those that the rules are asked of, and in which way.

* The events themselves, and declarations.
* Transfers and copies: content moves, and what is wrong with it along.
* All that is a request's whose events are among them, and who took and gave back the blocks that
  they name, from when these were last handed out.
* Who touched those blocks, and what orders lanes, from where on anything that was done to them may
  not have ended. Of the operations of a step on a lane the first and the last order it.
* Steps are noted whatever they are.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from hkvtool.analyzers.kinds import table
from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE, DEFAULT_ACTOR, DEVICE_ACTOR
from hkvtool.model.rows import MISSING, NO_NAME, PAD, Row, decode
from hkvtool.state.batch import Batch
from hkvtool.state.codes import (
    ALLOC,
    BUFFER,
    CAPTURE,
    CONTROL,
    COPY,
    DISPATCH,
    FINGERPRINT,
    FREE,
    INDEX,
    KERNEL,
    LEASE,
    LOAD_BEGIN,
    LOAD_END,
    PIN,
    PUBLISH,
    RETIRE,
    ROLLBACK,
    SEAL,
    SELECT,
    SIGNAL,
    SLIDE,
    STORE_BEGIN,
    STORE_END,
    TOUCH,
    UNPIN,
    UNPUBLISH,
    USE,
    WAIT,
    WRITE,
    ZERO,
)
from hkvtool.store.columns import IN_BATCH

if TYPE_CHECKING:
    from hkvtool.analyzers.narrowed import Doubts

ASK, KEEP, BOOK, ORDER, NOTE = 1, 2, 4, 8, 16
"""The rules are asked of an event; are told of it, whose blocks are, what lanes it orders;
of a step or a capture."""

MOST_LISTED = 1 << 12
"""Requests up to which their last event is looked for."""

_KEPT = table(
    (*CONTROL, KERNEL, STORE_BEGIN, LOAD_BEGIN, STORE_END, LOAD_END, COPY, CAPTURE, LEASE)
)
_BOOKS = table((ALLOC, TOUCH, FREE))
_OWN_BOOKS = table((ALLOC, TOUCH, FREE, SLIDE, PUBLISH, UNPUBLISH, ROLLBACK))
_WRITES = table((WRITE, SEAL, INDEX, ZERO))
_OWNED = table((TOUCH, FREE, PIN, UNPIN))
_BOUNDS = table((DISPATCH, RETIRE))
_EDGES = table((SIGNAL, WAIT))
_OWN_LANE = table((WRITE, SEAL, INDEX, ZERO, COPY, USE, BUFFER, SELECT))


class Slice:
    """The events of one trace that bear on some."""

    def __init__(self, trace: Any, doubts: Doubts) -> None:
        self.trace, self.doubts = trace, doubts
        self.steps: Any = np.zeros(0, np.int64)
        self.waited: Any = np.zeros(0, np.int64)
        """Lanes whose last event is a wait."""
        names = [trace.names.find("actor", name) for name in (DEVICE_ACTOR, DEFAULT_ACTOR)]
        self.defaults = [n if n >= 0 else -2 - i for i, n in enumerate(names)]
        """Lanes of events that name none, of their own or not."""
        self.padded = False
        """Whether rows of padding are among the events: then it matters what was cleared."""
        doubts.floor = _settled(trace, doubts.floor)

    def last(self) -> int:
        """The position behind which nothing is asked, and nothing is a concerned request's."""
        numbers = np.flatnonzero(self.doubts.concerned).tolist()
        if len(numbers) > MOST_LISTED:
            return int(self.trace.meta["last_pos"])
        last = int(self.doubts.asked[-1]) if len(self.doubts.asked) else -1
        if numbers:
            listed = ", ".join(map(str, numbers))
            query = f"SELECT max(pos) FROM events WHERE req IN ({listed}) OR group2 IN ({listed})"
            last = max(last, self.trace.select(query).fetchone()[0] or -1)
        return last

    def batches(self, size: int) -> Generator[tuple[Batch, Any], None, None]:
        """Batches with what is needed to make an event of a row."""
        self.steps = self._asked_steps()
        more = {"rest": "rest", "listed": "blocks IS NOT NULL", "listed2": "blocks2 IS NOT NULL",
                "hashed": "hashes IS NOT NULL"}  # fmt: skip
        found: Generator[tuple[Batch, Any], None, None] = self.trace.batches_with(more, size)
        return found

    def what(self, batch: Batch, chunk: Any, *, capturing: bool) -> Any:
        """By row, in which way it bears on them; 0 where it does not."""
        doubts, ev, pos = self.doubts, batch.ev, batch.pos
        what = np.zeros(batch.n, np.int8)
        what[_KEPT[ev]] |= KEEP
        if doubts.printed:
            what[ev == FINGERPRINT] |= KEEP
        if self.padded:
            what[ev == ZERO] |= KEEP
        own = (batch.req >= 0) & doubts.concerned[np.maximum(batch.req, 0)]
        owner = _OWNED[ev] & (batch.req < 0) & (batch.group2 >= 0)
        own |= owner & doubts.concerned[np.where(owner, batch.group2, 0)]
        books = _OWN_BOOKS[ev] & (batch.group >= 0)
        what[own & ~books] |= KEEP
        what[own & books] |= BOOK
        since, written = self._named(batch)
        held = _BOOKS[ev] & since
        what[held & books] |= BOOK
        what[held & ~books] |= KEEP
        if 0 <= doubts.floor <= pos[-1]:
            late = pos >= doubts.floor
            what[late & _WRITES[ev] & since] |= KEEP
            what[late & (ev == USE) & written] |= KEEP
            what[self._ordering(batch) & late] |= ORDER
        what[(ev == DISPATCH) & np.isin(batch.step, self.steps)] |= NOTE
        if capturing or (ev == CAPTURE).any():
            what[(batch.step != MISSING) & ~_BOUNDS[ev]] |= NOTE
        if doubts.buffers:
            for row in np.flatnonzero(ev == BUFFER).tolist():
                if event(self.trace, batch, chunk, row)["name"] in doubts.buffers:
                    what[row] |= KEEP
        what[_among(pos, doubts.told)] |= KEEP
        what[_among(pos, doubts.asked)] |= ASK
        return what

    def _asked_steps(self) -> Any:
        """The steps that the events are of."""
        found = [np.zeros(0, np.int64)]
        for batch in self.trace.batches(1 << 16) if len(self.doubts.asked) else ():
            asked = _among(batch.pos, self.doubts.asked)
            found.append(batch.step[asked])
            self.padded |= bool((batch.flags[asked] & PAD).any())
        return np.unique(np.concatenate(found))

    def _named(self, batch: Batch) -> tuple[Any, Any]:
        """By row, whether it names a block whose past matters by then, and one that is written."""
        doubts = self.doubts
        home = np.where(batch.group >= 0, doubts.homes[np.maximum(batch.group, 0)], -1)
        home = np.where(batch.pool >= 0, doubts.bases[np.maximum(batch.pool, 0)], home)
        counts = np.diff(batch.blocks.offsets)
        slots = np.repeat(home, counts) + batch.blocks.values
        good = (np.repeat(home, counts) >= 0) & (batch.blocks.values >= 0)
        good &= slots < len(doubts.since)
        slots = np.where(good, slots, 0)
        start = np.where(good, doubts.since[slots], 0)
        matters = (start > 0) & (start <= np.repeat(batch.pos, counts) + 2)
        rows = np.repeat(np.arange(batch.n), counts)
        since, written = np.zeros(batch.n, bool), np.zeros(batch.n, bool)
        since[rows[matters]] = True
        # Whatever was done to a block that is written counts, from wherever order matters.
        written[rows[(start > 0) & doubts.written[slots]]] = True
        touching = _WRITES[batch.ev]
        since[rows[(start > 0) & touching[rows]]] = True
        return since, written

    def _ordering(self, batch: Batch) -> Any:
        """Rows that order lanes."""
        bounds = _BOUNDS[batch.ev]
        own = _OWN_LANE[batch.ev] & (batch.step != MISSING)
        lanes = np.where(batch.actor >= 0, batch.actor, np.where(own, *self.defaults))
        ordering = bounds | _EDGES[batch.ev] | self._behind_waits(batch, lanes)
        rows = np.flatnonzero((batch.step != MISSING) & ~bounds)
        if len(rows):
            keys = np.stack([batch.step[rows], lanes[rows], np.cumsum(bounds)[rows]])
            order = np.lexsort(keys)
            ordered = keys[:, order]
            new = np.append(True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0))
            ordering[rows[order[new]]] = True
            ordering[rows[order[np.append(new[1:], True)]]] = True
        return ordering

    def _behind_waits(self, batch: Batch, lanes: Any) -> Any:
        """What a lane does right behind a wait: that is what it waited for."""
        behind = np.zeros(batch.n, bool)
        if not self.trace.kinds.get("wait"):
            return behind
        order = np.argsort(lanes, kind="stable")
        waits, lane = (batch.ev == WAIT)[order], lanes[order]
        first = np.append(True, lane[1:] != lane[:-1])
        behind[order[1:]] = waits[:-1] & ~first[1:]
        behind[order[first]] |= np.isin(lane[first], self.waited)
        last = np.append(first[1:], True)
        again = np.setdiff1d(self.waited, lane)
        self.waited = np.union1d(again, lane[last & waits])
        return behind


def _among(pos: Any, places: Any) -> Any:
    """By row, whether its position is one of some, all in order."""
    at = np.searchsorted(places, pos)
    return (
        (at < len(places)) & (places[np.minimum(at, len(places) - 1)] == pos)
        if len(places)
        else np.zeros(len(pos), bool)
    )


def _settled(trace: Any, floor: int) -> int:
    """A position at or before another, at which no transfer is under way that began before it."""
    if floor <= 0 or not trace.kinds.get("store_begin", 0) + trace.kinds.get("load_begin", 0):
        return floor
    begins = STORE_BEGIN, LOAD_BEGIN
    codes = ", ".join(map(str, (*begins, STORE_END, LOAD_END)))
    query = f"SELECT handle, ev, pos FROM events WHERE ev IN ({codes}) AND pos < {floor} ORDER BY 3"
    rows = trace.select(query).fetchall()
    while True:
        running: dict[int, int] = {}
        for handle, ev, pos in rows:
            if pos >= floor:
                break
            if ev in begins:
                running.setdefault(handle, pos)
            else:
                running.pop(handle, None)
        first = min(running.values(), default=floor)
        if first >= floor:
            return floor
        floor = first


def event(trace: Any, batch: Batch, chunk: Any, row: int) -> Event:
    """The event of a row, `ts` left out."""
    ints: dict[str, Any] = {name: int(getattr(batch, name)[row]) for name in IN_BATCH}
    lists: dict[str, Any] = {
        name: _list(getattr(batch, name), row) if chunk.column(there)[row].as_py() else None
        for name, there in (("blocks", "listed"), ("blocks2", "listed2"), ("hashes", "hashed"))
    }
    return decode(Row(**ints, **lists, rest=chunk.column("rest")[row].as_py()), trace.names)


def _list(column: Any, row: int) -> list[int]:
    found: list[int] = column.values[column.offsets[row] : column.offsets[row + 1]].tolist()
    return found


def stub(trace: Any, batch: Batch, chunk: Any, row: int) -> Event:
    """As much of the event of a row as says what it orders."""
    code = int(batch.ev[row])
    if code in (SIGNAL, WAIT):
        return event(trace, batch, chunk, row)
    kind = BY_CODE[code].name
    data: dict[str, Any] = {"ev": kind}
    if batch.step[row] != MISSING:
        data["step"] = int(batch.step[row])
    if batch.actor[row] != NO_NAME:
        data["actor"] = trace.names.name("actor", int(batch.actor[row]))
    return Event(int(batch.pos[row]), kind, data)
