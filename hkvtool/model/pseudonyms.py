"""A trace that does not say whose it was: what names people and their prompts becomes numbers.

Everything that a rule looks at stays: which names are equal, the order, blocks, token counts and
forms. What the engine and its cache look like stays too: names of pools, groups, lanes, buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import EVENTS

_NAMED = {
    "req": "r", "reqs": "r", "owner": "r", "owners": "r", "external": "c", "trace_id": "c",
    "tenant": "t", "hashes": "h", "handle": "x", "event": "e", "graph": "g", "values": "v",
}  # fmt: skip
"""Keys whose values name something, and what new names begin with. An owner may be a request."""

_REASONS = frozenset({
    "evict", "reset", "invalidate", "promote", "sleep", "wake", "resize", "realloc",
})  # fmt: skip
"""Reasons that the format defines; others are an engine's own words, which may say anything."""

_UNKNOWN = "unknown"
"""Kind of an event that is none: its own words are left out, and it is HKV905 as before."""


class Pseudonyms:
    """Takes the events of one trace in their order."""

    def __init__(self) -> None:
        self._names: dict[str, dict[tuple[bool, str], Any]] = {}
        self._start: int | None = None

    def __call__(self, event: Event) -> Event:
        """The event under new names; times count from the trace's first."""
        spec = EVENTS.get(event.ev)
        if spec is None or event.ev == MALFORMED or event.problem is not None:
            return Event.of(event.pos, {"ev": _UNKNOWN})
        out: dict[str, Any] = {"ev": event.ev}
        for key, value in event.data.items():
            if key not in spec.keys or key == "note":
                continue
            if key == "ts":
                self._start = value if self._start is None else self._start
                out[key] = value - self._start
            elif key == "reason":
                out |= {key: value} if value in _REASONS else {}
            elif key == "key":
                out[key] = [self._input(said) for said in value]
            elif key in _NAMED:
                out[key] = self._each(value, _NAMED[key])
            else:
                out[key] = value
        return Event.of(event.pos, out)

    def _each(self, value: Any, prefix: str) -> Any:
        """One name, a list of them, or lists by group."""
        if isinstance(value, Mapping):
            return {group: self._each(named, prefix) for group, named in value.items()}
        if isinstance(value, list):
            return [self._each(named, prefix) for named in value]
        return None if value is None else self._name(value, prefix)

    def _input(self, said: Any) -> Any:
        """What a hash depends on: `lora=X` keeps the word before `=`."""
        if not isinstance(said, str):
            return self._name(said, "k")
        word, is_, value = said.partition("=")
        return f"{word}={self._name(value, 'k')}" if is_ else self._name(said, "k")

    def _name(self, value: Any, prefix: str) -> Any:
        """A text keeps being one, a number too, since an engine may use both."""
        names = self._names.setdefault(prefix, {})
        number = isinstance(value, int)
        key = (number, str(value))
        if key not in names:
            count = len(names) + 1
            names[key] = count if number else f"{prefix}{count}"
        return names[key]
