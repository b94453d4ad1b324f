"""Rows of a batch beside the columns that are folded: which the rules are asked about, what their
names stand for, and the events that they are."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from hkvtool.analyzers.kinds import table
from hkvtool.analyzers.screen_fold import MOST_BUFFERS, ScreenedFold, Suspicious
from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.model.rows import NO_NAME, Row, decode
from hkvtool.state.batch import Batch
from hkvtool.state.codes import BUFFER, CAPTURE, LAUNCH, SIGNAL, WAIT
from hkvtool.store.columns import IN_BATCH, LISTS
from hkvtool.store.trace import CONTROL_KINDS

LOUD = CONTROL_KINDS | {
    "refuse", "preempt", "select", "capture", "lease", "wire", "fingerprint"
}  # fmt: skip
"""Events that the rules are always asked about."""

_LOUD = table(EVENTS[kind].code for kind in LOUD)

_KEPT = 16
"""Batches whose lookups and resumes are at hand."""


class Rows:
    """Batch after batch, with the further columns that `screen_asked.columns` names."""

    def __init__(self, trace: Any, fold: ScreenedFold) -> None:
        self.trace, self.fold = trace, fold
        self.control: dict[int, Event] = {event.pos: event for event in trace.control}
        self.lately: deque[tuple[Batch, Any]] = deque(maxlen=_KEPT)
        self.captures: dict[str, str] = {}
        self.captured: set[str] = set()
        self.buffers: dict[str, int] = {}
        self.names: dict[str, int] = {}

    def take(self, batch: Batch, chunk: Any) -> tuple[Any, Any]:
        """Which rows the rules are asked about, and the numbers of what rows name in `rest`."""
        self.lately.append((batch, chunk.column("rest")))
        stops = _LOUD[batch.ev]
        if "elsewhere" in chunk.schema.names:
            stops |= chunk.column("elsewhere").to_numpy(zero_copy_only=False)
        stops |= self._launched(batch, chunk)
        return stops.astype(np.int8), self._said(batch, chunk)

    def event(self, batch: Batch, row: int) -> Event:
        """The event of a row, `ts` left out."""
        pos = int(batch.pos[row])
        if pos in self.control:
            return self.control[pos]
        rest = next(rest for one, rest in reversed(self.lately) if one is batch)
        values: dict[str, Any] = {name: int(getattr(batch, name)[row]) for name in IN_BATCH}
        for name in LISTS:
            offsets, ids = getattr(batch, name).offsets, getattr(batch, name).values
            if offsets[row] < offsets[row + 1]:
                values[name] = ids[offsets[row] : offsets[row + 1]].tolist()
        return decode(Row(**values, rest=rest[row].as_py()), self.trace.names)

    def earlier(self, pos: int) -> Event:
        """The lookup or resume at a position."""
        for batch, _ in reversed(self.lately):
            if batch.pos[0] <= pos <= batch.pos[-1]:
                return self.event(batch, int(np.searchsorted(batch.pos, pos)))
        found: Event = next(self.trace.events(since=pos, until=pos))
        return found

    def forget_captures(self) -> None:
        """Another capture may be among what was lost."""
        self.captures.clear()
        self.captured.clear()

    def _launched(self, batch: Batch, chunk: Any) -> Any:
        """Launches that do not just repeat what their capture has baked in."""
        asked = batch.ev == LAUNCH
        rows = np.flatnonzero(asked)
        if len(rows):
            rests = chunk.column("rest")
            if (batch.ev == CAPTURE).any():
                # In which order they come is for the rules to see.
                self.captured.clear()
            for row in np.flatnonzero(asked & (batch.req == NO_NAME)).tolist():
                asked[row] = rests[row].as_py() not in self.captured
        for row in np.flatnonzero(batch.ev == CAPTURE).tolist():
            event = self.event(batch, row)
            self.captures[str(event["graph"])] = chunk.column("rest")[row].as_py()
            self.captured = set(self.captures.values())
        return asked

    def _said(self, batch: Batch, chunk: Any) -> Any:
        """Numbers of the events that the signals and waits of a batch name, and of buffers."""
        said = np.full(batch.n, -1, np.int64)
        if "named" not in chunk.schema.names:
            return said
        rows = np.flatnonzero((batch.ev == SIGNAL) | (batch.ev == WAIT))
        named = chunk.column("named")
        if len(rows):
            found = named.take(pa.array(rows)).dictionary_encode()
            numbers = np.array(self._numbered(found.dictionary.to_pylist()), np.int64)
            said[rows] = numbers[found.indices.to_numpy()]
        for row in np.flatnonzero(batch.ev == BUFFER).tolist():
            name = named[row].as_py()
            said[row] = self.buffers.setdefault(name, len(self.buffers))
        if len(self.buffers) > MOST_BUFFERS:
            raise Suspicious("too many buffers", 0)
        return said

    def _numbered(self, texts: list[str]) -> list[int]:
        """Numbers of the names of events; those not met lately are reused."""
        sc = self.fold.sc
        lately = dict.fromkeys(texts)
        fresh = [text for text in lately if text not in self.names]
        if len(self.names) + len(fresh) > len(sc.v_serial):
            old = [text for text in self.names if text not in lately]
            free = [self.names.pop(text) for text in old]
            sc.v_serial[free] = 0
            if len(free) < len(fresh):
                room = np.zeros(2 * len(lately), np.int64)
                free += range(len(sc.v_serial), len(sc.v_serial) + len(room))
                grown = np.concatenate([sc.v_serial, room])
                sc = self.fold.sc = sc._replace(v_serial=grown)
            self.names.update(zip(fresh, free, strict=False))
        else:
            self.names.update(zip(fresh, range(len(self.names), 1 << 40), strict=False))
        return [self.names[text] for text in texts]
