"""A trace that grows while it is looked at: what a running recording has become so far.

The latest events are values in memory, those before them rows of a DuckDB file that goes away.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Iterator, Sequence
from functools import cached_property
from threading import Lock
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.rows import DOMAINS, Names
from hkvtool.state.batch import Batch
from hkvtool.store.connect import create, explained
from hkvtool.store.duck import DuckTrace
from hkvtool.store.filters import Filter
from hkvtool.store.lines import encoded, in_chunks
from hkvtool.store.places import BEGINS, ENDS
from hkvtool.store.schema import EVENTS_TABLE, NAMES_TABLE
from hkvtool.store.scratch import Scratch
from hkvtool.store.summary import Summary
from hkvtool.store.trace import CONTROL_KINDS, Trace
from hkvtool.store.writer import names_batch

_HELD = 1 << 13
"""Events in memory, at most about: putting down a few rows takes as long as many."""


class GrowingTrace(DuckTrace):
    """Events are added by one thread and read by others; each reading has what was there when it
    began. `path` is what a person calls it."""

    def __init__(self, path: str) -> None:
        Trace.__init__(self, path)
        self._aside = Scratch()
        try:
            self._con = create(os.path.join(self._aside.name, "live.duckdb"), self._aside.name)
            with explained(path):
                for table in (EVENTS_TABLE, NAMES_TABLE):
                    self._con.execute(table.ddl)
        except BaseException:
            self._aside.cleanup()
            raise
        self._names, self._summary = Names(), Summary()
        self._named = dict.fromkeys(DOMAINS, 0)
        self._control: list[Event] = []
        self._begun: dict[str, Event] = {}
        self._held: list[Event] = []
        self._stored = 0
        self._facts: dict[str, Any] = {}
        self._ts: tuple[int, int] | None = None
        self._lock = Lock()

    def extend(self, events: Sequence[Event]) -> None:
        """Add events, the first behind the last. Raises HkvError where they cannot be put down."""
        for event in events:
            if event.ev in CONTROL_KINDS and event.problem is None:
                self._control.append(event)
            elif event.ev in BEGINS and event.problem is None:
                self._begun[str(event["handle"])] = event
            if self._summary.wants(event):
                self._summary.see(event)
            ts = event.data.get("ts")
            if isinstance(ts, int):
                self._ts = min(ts, self._ts[0]) if self._ts else ts, ts
        with self._lock:
            self._held.extend(events)
        if len(self._held) >= _HELD:
            self._put_down()

    @property
    def meta(self) -> dict[str, Any]:
        facts = dict(self._facts or self._summary.facts(self._names))
        facts["events"] = self.count
        facts["first_pos"], facts["last_pos"] = 1, self.count
        if self._ts is not None:
            facts["first_ts"], facts["last_ts"] = self._ts
        return facts

    @property
    def count(self) -> int:
        with self._lock:
            return self._stored + len(self._held)

    @cached_property
    def names(self) -> Any:
        return self._names

    @property
    def control(self) -> Any:
        return list(self._control)

    @cached_property
    def kinds(self) -> dict[str, int]:
        raise NotImplementedError("the kinds of a trace that grows are not counted")

    def events(
        self,
        since: int | None = None,
        until: int | None = None,
        req: str | int | None = None,
        kinds: Collection[str] | None = None,
        block: tuple[str | int, int] | None = None,
    ) -> Iterator[Event]:
        with self._lock:
            stored, held = self._stored, list(self._held)
        if stored and (since is None or since <= stored):
            last = stored if until is None else min(until, stored)
            yield from super().events(since, last, req, kinds, block)
        if held and (until is None or until > stored):
            if since is not None and block is None:
                held = held[max(0, since - held[0].pos) :]
            if block is not None:
                held = [*self._before(held[0].pos), *held]
            wanted = Filter(max(since or 0, stored + 1), until, req, kinds, block)
            yield from wanted.keep(held)

    def _spans(self, block: int) -> list[tuple[int, int]] | None:
        """Which stretches name a block is not noted on the way."""
        return None

    def _before(self, pos: int) -> list[Event]:
        """What earlier events say of where the blocks of later ones lie."""
        found = [e for e in (*self._control, *self._begun.copy().values()) if e.pos < pos]
        return sorted(found, key=lambda event: event.pos)

    def _batches(
        self, size: int, since: int | None, until: int | None, folded: bool
    ) -> Generator[Batch, None, None]:
        raise NotImplementedError("a trace that grows is folded event by event")

    def _put_down(self) -> None:
        """Let the events in memory become rows."""
        held = list(self._held)
        try:
            for chunk in in_chunks(encoded(held, self._names, Summary())):
                self._summary.add(chunk)
                self._insert("events", chunk.record_batch())
            for domain, first in self._named.items():
                known = self._names.values[domain][first:]
                if known:
                    self._insert("names", names_batch(domain, first, known))
                    self._named[domain] += len(known)
        except Exception as e:
            import duckdb

            if not isinstance(e, duckdb.Error):
                raise
            raise HkvError(
                f"what is recorded cannot be put aside to be looked at: {str(e).splitlines()[0]}",
                hint="point TMPDIR to a larger disk; the recording itself goes on",
            ) from e
        self._facts = self._summary.facts(self._names)
        for event in held:
            if event.ev in ENDS and event.problem is None:
                self._begun.pop(str(event["handle"]), None)
        with self._lock:
            self._stored += len(held)
            del self._held[: len(held)]

    def _insert(self, table: str, batch: Any) -> None:
        self._con.register("incoming", batch)
        self._con.execute(f"INSERT INTO {table} SELECT * FROM incoming")
        self._con.unregister("incoming")

    def close(self) -> None:
        super().close()
        self._aside.cleanup()
