"""What is said of a trace as a whole: counts, span, lanes, evidence. The facts of `meta`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from hkvtool import __version__
from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import ACCESSES, BY_CODE, DEFAULT_ACTOR, DEVICE_ACTOR, EVENTS, FORMAT
from hkvtool.model.evidence import Evidence
from hkvtool.model.rows import MISSING, NO_NAME, Names
from hkvtool.store.columns import Chunk
from hkvtool.store.schema import META, SCHEMA_VERSION

_ACCESS_CODES = np.array(sorted(EVENTS[name].code for name in ACCESSES), np.int64)

_TELLING = frozenset({"trace", "dropped"})

_KINDS = 256
"""`ev` is one byte."""


class Summary:
    """Gathers the facts of a trace while its chunks go by.

    `see` takes the events that say something their columns do not (`wants` tells which);
    `add` takes every chunk.
    """

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.sources: list[dict[str, Any]] = []
        self.clocks: list[dict[str, Any]] = []
        self.kinds = np.zeros(_KINDS, np.int64)
        self.first_pos: int | None = None
        self.last_pos: int | None = None
        self._engine: str | None = None
        self._note: str | None = None
        self._dropped = 0
        self._ts: tuple[int, int] | None = None
        self._lanes: dict[int, int] = {}
        self._requests = np.zeros(1024, np.bool_)

    def wants(self, event: Event) -> bool:
        """True where `see` would learn something."""
        return event.ev in _TELLING or not self.evidence.settled

    def see(self, event: Event) -> None:
        """Take one event into account beyond its columns."""
        self.evidence.see(event)
        if event.problem is not None:
            return
        if event.ev == "dropped":
            self._dropped += int(event["count"])
        elif event.ev == "trace":
            self._engine = self._engine or _text(event.get("engine"))
            self._note = self._note or _text(event.get("note"))

    def add(self, chunk: Chunk) -> None:
        """Take a chunk into account; chunks come in order of `pos`."""
        pos, ev = chunk.ints["pos"], chunk.ints["ev"]
        if self.first_pos is None:
            self.first_pos = int(pos[0])
        self.last_pos = int(pos[-1])
        self.kinds += np.bincount(ev, minlength=_KINDS)
        ts = chunk.column("ts")
        ts = ts[ts != MISSING]
        if len(ts):
            low, high = self._ts or (ts[0], ts[0])
            self._ts = min(int(low), int(ts.min())), max(int(high), int(ts.max()))
        self._add_lanes(chunk)
        self._add_requests(chunk)

    def add_source(self, path: str) -> None:
        """Say that all events since the last source came from the file `path`."""
        before = sum(source["events"] for source in self.sources)
        first = 1 + max((s["last"] for s in self.sources), default=0)
        self.sources.append(
            {
                "file": os.path.basename(path),
                "first": first,
                "last": max(first, self.last_pos or 0),
                "events": self.events - before,
            }
        )

    def _add_lanes(self, chunk: Chunk) -> None:
        ev, actor = chunk.ints["ev"], chunk.column("actor")
        on_device = (chunk.column("step") != MISSING) & np.isin(ev, _ACCESS_CODES)
        lane = np.where(actor != NO_NAME, actor, np.where(on_device, _DEVICE, _DEFAULT))
        for number, count in zip(*np.unique(lane[ev != 0], return_counts=True), strict=True):
            self._lanes[int(number)] = self._lanes.get(int(number), 0) + int(count)

    def _add_requests(self, chunk: Chunk) -> None:
        req = chunk.column("req")
        req = req[req != NO_NAME]
        if len(req):
            most = int(req.max())
            if most >= len(self._requests):
                self._requests.resize(max(most + 1, 2 * len(self._requests)), refcheck=False)
            self._requests[req] = True

    @property
    def events(self) -> int:
        return int(self.kinds.sum())

    def kind_counts(self) -> dict[str, int]:
        """Events by kind, in the order of the format; `?` are those with a problem."""
        names = {0: MALFORMED, **{code: spec.name for code, spec in BY_CODE.items()}}
        return {name: int(self.kinds[code]) for code, name in names.items()}

    def facts(self, names: Names) -> dict[str, Any]:
        """The facts of `META`; those that are not known are left out."""
        # Events that came as columns were seen by nobody; their kinds still tell.
        self.evidence.see_kinds(kind for kind, count in self.kind_counts().items() if count)
        known: dict[str, Any] = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "hkvtool_version": __version__,
            "sources": self.sources,
            "engine": self._engine,
            "note": self._note,
            "evidence": list(self.evidence.classes),
            "evidence_source": self.evidence.source,
            "events": self.events,
            "problems": int(self.kinds[0]),
            "dropped": self._dropped,
            "first_pos": self.first_pos,
            "last_pos": self.last_pos,
            "first_ts": self._ts[0] if self._ts else None,
            "last_ts": self._ts[1] if self._ts else None,
            "lanes": self._lane_counts(names),
            "requests": int(self._requests.sum()),
            "clocks": self.clocks or None,
        }
        return {fact.key: known[fact.key] for fact in META if known[fact.key] is not None}

    def _lane_counts(self, names: Names) -> dict[str, int]:
        counts: dict[str, int] = {}
        for number, count in self._lanes.items():
            lane = _UNNAMED.get(number) or str(names.name("actor", number))
            counts[lane] = counts.get(lane, 0) + count
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


_DEFAULT, _DEVICE = -1, -2
_UNNAMED = {_DEFAULT: DEFAULT_ACTOR, _DEVICE: DEVICE_ACTOR}


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
