"""Text out of a trace, made fit for a terminal: what a person sees of an event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import DEFAULT_ACTOR


def shown(value: object) -> str:
    """`value` as text with every control character visible as an escape.

    Names in a trace come from requests; none of them may move the cursor, colour the screen,
    reverse the line or break it.
    """
    text = value if isinstance(value, str) else str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def compact(value: Any) -> str:
    """A JSON value in few characters: runs of block ids become `4-9`, quotes are left out."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ",".join(_items(value)) + "]"
    if isinstance(value, dict):
        return "{" + " ".join(f"{shown(k)}:{compact(v)}" for k, v in value.items()) + "}"
    return shown(value)


def _items(values: list[Any]) -> list[str]:
    out: list[str] = []
    start = 0
    while start < len(values):
        end = start
        while end + 1 < len(values) and _follows(values[end], values[end + 1]):
            end += 1
        if end > start + 1:
            out.append(f"{values[start]}-{values[end]}")
        else:
            out.extend(compact(v) for v in values[start : end + 1])
        start = end + 1
    return out


def _follows(a: Any, b: Any) -> bool:
    return type(a) is int and type(b) is int and b == a + 1


_FIRST = ("req", "group", "pool", "step", "handle", "blocks", "tokens")
"""Keys shown first, in this order, so that a column of events reads alike."""


def facts_line(facts: Mapping[str, Any]) -> str:
    """What one side of a finding took for true, for a person: the same words in every report."""
    return ", ".join(
        f"{shown(key).replace('_', ' ')} {'none' if value is None else compact(value)}"
        for key, value in facts.items()
    )


def event_line(event: Event) -> str:
    """One event on one line: `ev@actor key=value …`, without its position."""
    if event.ev == MALFORMED:
        return f"? {shown(event.problem)}: {shown((event.raw or '')[:200])}"
    keys = [k for k in _FIRST if k in event.data]
    keys += [k for k in event.data if k not in _FIRST and k not in ("ev", "actor", "ts", "seq")]
    lane = "" if event.actor == DEFAULT_ACTOR else f"@{shown(event.actor)}"
    parts = [shown(event.ev) + lane, *(f"{shown(k)}={_value(k, event.data[k])}" for k in keys)]
    return " ".join(parts) + (f"  ! {shown(event.problem)}" if event.problem else "")


def _value(key: str, value: Any) -> str:
    if key == "tokens" and isinstance(value, list) and len(value) == 2:
        return f"{compact(value[0])}..{compact(value[1])}"
    return compact(value)
