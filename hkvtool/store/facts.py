"""The facts in `meta`, once they are what they are said to be and fit the events.

Readers lay memory out and draw axes by them, so an altered one is refused when the file is opened:
a position a million times as far as the last event costs a million times as much.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from hkvtool.model.errors import TraceError
from hkvtool.store.schema import META

ASKED = (
    "SELECT count(*), min(pos), max(pos), min(ts), max(ts), "
    "(SELECT coalesce(sum(greatest(count, 0)), 0) FROM kinds) FROM events"
)
"""What the events say of themselves; DuckDB answers from its statistics, without reading them."""

_ALTERED = "the file was altered; import or ingest it again"

_OPTIONAL = frozenset({"engine", "note", "first_pos", "last_pos", "first_ts", "last_ts", "clocks"})
"""Facts that are left out where they are not known."""


class Counted(NamedTuple):
    """The answer to `ASKED`."""

    events: int
    first_pos: int | None
    last_pos: int | None
    first_ts: int | None
    last_ts: int | None
    by_kind: int


def facts(path: str, said: Mapping[str, str], counted: Counted) -> dict[str, Any]:
    """The facts by key. Raises TraceError where one is missing, of another kind, or not true."""
    found: dict[str, Any] = {}
    for fact in META:
        text = said.get(fact.key)
        if text is None:
            if fact.key in _OPTIONAL:
                continue
            raise TraceError(f"{path}: meta `{fact.key}` is missing", hint=_ALTERED)
        try:
            value = text if fact.kind == "text" else json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if value is None or (fact.kind == "integer" and type(value) is not int):
            raise TraceError(f"{path}: meta `{fact.key}` is no {fact.kind}", hint=_ALTERED)
        if fact.key in _SHAPES and not _SHAPES[fact.key](value):
            raise TraceError(
                f"{path}: meta `{fact.key}` is not what a trace has there", hint=_ALTERED
            )
        found[fact.key] = value
    for key in ("events", "first_pos", "last_pos", "first_ts", "last_ts"):
        true = getattr(counted, key)
        if found.get(key) != true:
            raise TraceError(
                f"{path}: meta `{key}` says {_told(found.get(key))}, and the events say "
                f"{_told(true)}", hint=_ALTERED,
            )  # fmt: skip
    if counted.by_kind != counted.events:
        raise TraceError(
            f"{path}: the kinds add up to {counted.by_kind:,} events, and there are "
            f"{counted.events:,}", hint=_ALTERED,
        )  # fmt: skip
    return found


def _told(value: int | None) -> str:
    return "nothing" if value is None else f"{value:,}"


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _each(one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(one, value))


def _keys(**kinds: type | tuple[type, ...]) -> Callable[[Any], bool]:
    """An object with at least these keys, of these types."""
    return lambda value: (
        isinstance(value, dict)
        and all(isinstance(value.get(key), kind) for key, kind in kinds.items())
    )


_MAYBE = (int, type(None))

_SHAPES: dict[str, Callable[[Any], bool]] = {
    "problems": _is_count,
    "dropped": _is_count,
    "requests": _is_count,
    "evidence": _each(lambda value: isinstance(value, str)),
    "sources": _each(_keys(file=str, first=int, last=int, events=int)),
    "lanes": lambda value: isinstance(value, dict) and all(map(_is_count, value.values())),
    "clocks": _each(
        _keys(host=str, pairs=int, offset=int, skew=int, edges=int, lowest=_MAYBE, highest=_MAYBE)
    ),
}
"""Of facts that are more than a text or a number."""
