"""The same trace under other limits: what would have been said, had there been a cap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event

LIMITS = ("recovering_blocks", "recovering_bytes", "stall_steps", "stall_ns", "thrash_trips")
"""Limits that can be asked about: the keys of `limits`."""


def limits_given(texts: Iterable[str]) -> dict[str, int]:
    """Limits from ``NAME=N``. Raises HkvError where one is none."""
    found: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in LIMITS:
            raise HkvError(f"there is no limit {name!r}", hint=f"limits: {', '.join(LIMITS)}")
        if not value.isdecimal():
            raise HkvError(f"{text!r} says no number", hint=f"write {name}=N")
        found[name] = int(value)
    return found


def stated(limits: Mapping[str, int]) -> Event:
    """The event that states them. It is nowhere in the trace and has position 0."""
    return Event.of(0, {"ev": "limits", **limits})


def under(events: Iterable[Event], limits: Mapping[str, int]) -> Iterator[Event]:
    """The events as they would stand with these limits for all groups, from the start on.

    They take the place of the trace's own of the same name, of whatever group. The event that
    states them has position 0: it is nowhere in the trace.
    """
    told = False
    for event in events:
        if limits and not told and event.ev != "trace":
            told = True
            yield stated(limits)
        if limits and event.ev == "limits" and event.problem is None:
            event = Event.of(event.pos, {k: v for k, v in event.data.items() if k not in limits})
        yield event
