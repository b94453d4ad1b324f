"""What each step writes and reads, worked out from what its worker was told.

A recorder does not list blocks on the hot path: a `dispatch` says which requests run from which
token, how many tokens, and what changed in their block tables. From that every access follows:

- attention writes the step's tokens, then reads the history, of a window only what is in it;
- a recurrent layer reads the state at the start, then writes the one at the end;
- blocks to be cleared and copies on write come before all of it;
- a store takes the tokens that its blocks stand for in the request's table.

They stand where the worker begins the step, if it says so (a `buffer` event that reads
`block_table`), else right behind the `dispatch`. A `dispatch` without `reqs` goes on with those of
the one before of its engine, a token each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.recording import STEP_BITS
from hkvtool.store.rounds import Rounds
from hkvtool.store.stored_runs import Runs

Data = dict[str, Any]

BLOCK_TABLE = "block_table"
"""The buffer whose read marks where a worker begins a step; its write says that one will."""

FORGOTTEN = 64
"""Steps that no worker ever began, of those that were dispatched so long ago."""

REMEMBERED = 256
"""Requests that are over whose tables are kept: a store may begin a step or two behind the end."""


@dataclass(slots=True)
class _Group:
    name: str
    pool: str
    form: str
    unit: int
    window: int = 0
    chunked: bool = False
    ratio: int = 1
    states: str = ""


@dataclass(slots=True)
class _Batch:
    """One dispatched step that has not been worked out yet."""

    step: int
    reqs: list[str]
    starts: list[int]
    counts: list[int]
    tables: list[dict[int, list[int]]]
    zeroed: list[int] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)


class Reads:
    """Follows the block tables of a worker and says what its steps touch."""

    def __init__(self) -> None:
        self._tables: dict[int, str] = {}
        self._groups: dict[str, list[_Group]] = {}
        self._held: dict[str, dict[int, list[int]]] = {}
        self._last: dict[int, _Batch] = {}
        """What each engine did last, by what the numbers of its steps begin with."""
        self._waiting: dict[int, _Batch] = {}
        self._ended: dict[str, dict[int, list[int]]] = {}
        """Tables of the latest requests that are over: what they hold may still be stored."""
        self._runs = Runs()
        self._worker = False

    def follow(self, event: Event) -> tuple[Data | None, list[Data]]:
        """An event as it is to be told (None: as it is), and the accesses that follow it."""
        ev = event.ev
        if event.problem is not None:
            return None, []
        if ev == "dispatch":
            batch = self._begin(event)
            if batch is None:
                return None, []
            told = None if "reqs" in event else {**event.data, "reqs": batch.reqs}
            if self._worker:
                self._wait(batch)
                return told, []
            return told, list(self._accesses(batch))
        if ev == "group":
            self._declare(event.data)
        elif ev in ("finish", "abort"):
            self._end(str(event.req))
        elif ev == "store_begin":
            return self._runs.begun(event, *self._table(event))
        elif ev == "store_end":
            return None, self._runs.ended(event)
        elif ev == "state" and "round" not in event:
            # Recording begins, or goes on: what these have was changed unseen.
            for owner in event.get("owners") or ():
                self._held.pop(str(owner), None)
        elif ev == "buffer" and event.get("name") == BLOCK_TABLE:
            self._worker = True
            if event.get("op") == "read":
                return None, self._run(event.step)
        return None, []

    def _end(self, req: str) -> None:
        held = self._held.pop(req, None)
        if held is not None:
            self._ended.pop(req, None)
            self._ended[req] = held
            if len(self._ended) > REMEMBERED:
                del self._ended[next(iter(self._ended))]

    def _table(self, event: Event) -> tuple[list[int], int]:
        """The blocks of a request in a group, in the order of their tokens, and the tokens of
        each; nothing where they were never told."""
        req, name = str(event.req), event.get("group")
        for number, table in self._tables.items():
            for group in self._groups.get(table, ()):
                if group.name == name:
                    held = self._held.get(req) or self._ended.get(req) or {}
                    return held.get(number, []), group.unit
        return [], 0

    def before(self, event: Event) -> list[Data]:
        """Accesses that come before an event: those of a step that ends and never told that it
        began."""
        if event.ev == "retire" and event.problem is None and self._waiting:
            return self._run(event.step)
        return []

    def _run(self, step: int | None) -> list[Data]:
        ready = None if step is None else self._waiting.pop(step, None)
        return [] if ready is None else list(self._accesses(ready))

    def _wait(self, batch: _Batch) -> None:
        self._waiting[batch.step] = batch
        if len(self._waiting) > FORGOTTEN:
            del self._waiting[next(iter(self._waiting))]

    def _declare(self, event: Mapping[str, Any]) -> None:
        """Which groups a block table is of, by the number it has in `dispatch`."""
        if "table_index" not in event:
            return
        table = str(event.get("table", event["group"]))
        number = int(event["table_index"])
        if self._tables.get(number) != table:
            self._tables[number] = table
            self._groups[table] = []
        unit = event.get("block_tokens")
        if not isinstance(unit, int) or unit <= 0:
            return
        mine = self._groups[table]
        mine[:] = [g for g in mine if g.name != event["group"]]
        mine.append(
            _Group(
                event["group"], str(event.get("pool")), str(event.get("form")), unit,
                event.get("window") or 0, event.get("window_kind") == "chunked",
                event.get("ratio") or 1, str(event.get("states", "")),
            )
        )  # fmt: skip

    def _begin(self, event: Event) -> _Batch | None:
        """Bring the tables up to date, and keep what the step will see of them."""
        if "reqs" not in event:
            last = self._last.get(int(event["step"]) >> STEP_BITS)
            if last is None:
                return None
            starts = [s + n for s, n in zip(last.starts, last.counts, strict=True)]
            reqs, counts = last.reqs, [1] * len(last.reqs)
        elif "starts" in event and "counts" in event:
            reqs, starts, counts = event["reqs"], event["starts"], event["counts"]
            if not len(reqs) == len(starts) == len(counts) or min([*starts, *counts, 0]) < 0:
                return None
        else:
            return None
        if not self._change(event.get("tables") or [], reqs):
            return None
        tables = [{n: list(t) for n, t in self._held.get(str(r), {}).items()} for r in reqs]
        # A worker that tells what it does tells this too.
        before = {} if self._worker else event.data
        batch = _Batch(
            int(event["step"]), reqs, starts, counts, tables,
            before.get("zeroed") or [], before.get("copies") or [],
        )  # fmt: skip
        self._last[batch.step >> STEP_BITS] = batch
        return batch

    def _change(self, tables: list[int], reqs: list[str]) -> bool:
        """Take changes of tables into account; False where they are not what they should be."""
        at = 0
        while at < len(tables):
            if at + 4 > len(tables) or not 0 <= tables[at] < len(reqs):
                return False
            req, how, first, count = str(reqs[tables[at]]), *tables[at + 1 : at + 4]
            at += 4
            if not 0 <= count <= len(tables) - at:
                return False
            # What is added to a table whose beginning was never told says no block's place in it.
            held = self._held.get(req, {})
            if how:
                held = self._held[req] = {}
            for number in range(first, first + count):
                end = at + 1 + tables[at] if at < len(tables) else -1
                if not at < end <= len(tables):
                    return False
                held.setdefault(number, []).extend(tables[at + 1 : end])
                at = end
        return True

    def _accesses(self, batch: _Batch) -> Iterator[Data]:
        step = batch.step
        mine = dict.fromkeys(number for held in batch.tables for number in held)
        groups = [(n, g) for n in mine for g in self._groups.get(self._tables.get(n, ""), ())]
        pool = groups[0][1].pool if groups else None
        if batch.zeroed and pool is not None:
            yield {"ev": "zero", "step": step, "pool": pool, "blocks": batch.zeroed}
        if batch.copies and pool is not None:
            ends = batch.copies
            yield {"ev": "copy", "step": step, "pool": pool, "src": ends[::2], "dst": ends[1::2]}
        for number, group in groups:
            yield from _of_group(batch, number, group)


class Deriving:
    """Takes the events of a recording one by one, in order."""

    def __init__(self) -> None:
        self._reads = Reads()
        self._rounds = Rounds()
        self._left_out: dict[str, int] = {}
        """Events of each lane that are told no further: nobody is to miss their numbers."""
        self._pos = 0

    def of(self, event: Event) -> Iterator[Event]:
        """The event with the accesses that it begins, numbered anew; nothing where a flight
        recorder tells what is known."""
        if not self._rounds.needs(event):
            if "seq" in event:
                self._left_out[event.actor] = self._left_out.get(event.actor, 0) + 1
            return
        if event.actor in self._left_out and isinstance(event.get("seq"), int):
            seq = event["seq"] - self._left_out[event.actor]
            event = Event.of(event.pos, {**event.data, "seq": seq})
        for data in self._reads.before(event):
            self._pos += 1
            yield _at(self._pos, data, event)
        told, accesses = self._reads.follow(event)
        self._pos += 1
        if told is not None:
            yield Event.of(self._pos, told)
        elif event.pos == self._pos:
            yield event
        else:
            yield replace(event, pos=self._pos)
        for data in accesses:
            self._pos += 1
            yield _at(self._pos, data, event)


def derive_reads(events: Iterable[Event]) -> Iterator[Event]:
    """The events of a recording with the accesses of its steps, numbered anew."""
    deriving = Deriving()
    for event in events:
        yield from deriving.of(event)


def _at(pos: int, data: Data, beside: Event) -> Event:
    """An access, at the time of the event that it belongs to."""
    if "ts" in beside:
        data["ts"] = beside["ts"]
    return Event.of(pos, data)


def _of_group(batch: _Batch, number: int, group: _Group) -> Iterator[Data]:
    """One layer runs the whole batch: what one request writes, another may read in that step."""
    find = _states if group.form == "recurrent" else _tokens
    writes: list[Data] = []
    uses: list[Data] = []
    for i, req in enumerate(batch.reqs):
        blocks = batch.tables[i].get(number)
        if blocks:
            about = {"step": batch.step, "req": req, "group": group.name}
            start = batch.starts[i]
            write, use = find(group, blocks, start, start + batch.counts[i])
            if write:
                writes.append({"ev": "write", **about, **write})
            if use:
                uses.append({"ev": "use", **about, **use})
    yield from uses + writes if group.form == "recurrent" else writes + uses


def _tokens(group: _Group, blocks: list[int], start: int, end: int) -> tuple[Data, Data]:
    """What attention writes and reads."""
    unit = group.unit
    low, high = start, end
    if group.ratio > 1:
        low, high = start // group.ratio * group.ratio, end // group.ratio * group.ratio
    write: Data = {}
    written = blocks[low // unit : -(-high // unit)]
    if high > low and written:
        write = {"blocks": written, "tokens": [low, high]}
    first = 0
    if group.chunked:
        first = start - start % group.window
    elif group.window:
        first = max(0, start - group.window + 1)
    read = blocks[first // unit : -(-high // unit)]
    return write, {"blocks": read, "tokens": [first, high]} if high > first and read else {}


def _states(group: _Group, blocks: list[int], start: int, end: int) -> tuple[Data, Data]:
    """The state at `start`, if any, is read; the one at `end` is written, and where all are kept
    those at block ends between."""
    unit = group.unit
    if group.states == "none":
        before, after = blocks[:1], blocks[:1]
    else:
        before = blocks[(start - 1) // unit : (start - 1) // unit + 1] if start else []
        last = (end - 1) // unit
        after = blocks[start // unit if group.states == "all" else last : last + 1]
    write: Data = {"blocks": after, "tokens": [start, end]} if after else {}
    return write, {"blocks": before} if start and before else {}
