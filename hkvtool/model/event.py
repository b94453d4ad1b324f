"""One event of a trace as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.events import ACCESSES, DEFAULT_ACTOR, DEVICE_ACTOR, EVENTS, check_keys

MALFORMED = "?"
"""`Event.ev` of a line that is no event at all; its text is in `Event.raw`."""

_KEYS = {name: frozenset(spec.keys) | {"ev"} for name, spec in EVENTS.items()}


def lane_of(ev: str, data: Mapping[str, Any]) -> str:
    """The lane of an event, given as its object: the one it names, or that of its kind."""
    actor = data.get("actor")
    if actor is not None:
        return str(actor)
    if "step" in data and ev in ACCESSES:
        return DEVICE_ACTOR
    return DEFAULT_ACTOR


@dataclass(frozen=True, slots=True)
class Event:
    """An event at position `pos` (1-based line number or row order).

    `data` is the object as written, unknown keys included, `ev` excluded from nothing: what
    was read is what will be written. `problem` says why the event cannot be taken at its
    word (HKV905); such an event is kept and takes part in nothing else.
    """

    pos: int
    ev: str
    data: Mapping[str, Any] = field(default_factory=dict)
    problem: str | None = None
    raw: str | None = None

    @staticmethod
    def of(pos: int, data: dict[str, Any]) -> Event:
        """An event from its object, checked against the table."""
        name = data.get("ev")
        return Event(pos, name if isinstance(name, str) else MALFORMED, data, check_keys(data))

    @property
    def meant(self) -> Event:
        """The event without the keys that its kind does not have: those are kept, and nobody has
        checked them."""
        keys = _KEYS.get(self.ev)
        if keys is None or self.data.keys() <= keys:
            return self
        known = {key: value for key, value in self.data.items() if key in keys}
        return Event(self.pos, self.ev, known, self.problem, self.raw)

    @property
    def actor(self) -> str:
        """The lane that did it."""
        return lane_of(self.ev, self.data)

    @property
    def step(self) -> int | None:
        step = self.data.get("step")
        return step if isinstance(step, int) else None

    @property
    def req(self) -> str | None:
        req = self.data.get("req")
        return None if req is None else str(req)

    def get(self, key: str, default: Any = None) -> Any:
        return self.data.get(key, default)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __contains__(self, key: str) -> bool:
        return key in self.data
