"""The keys an event can carry: one type and one sentence each.

A checker returns None when the value fits, else what is wrong with it in a few words. Types
are liberal where engines differ (ids may be strings or integers) and strict where the fold
would otherwise be misled (a token range is two ordered integers).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hkvtool.model.forms import HOME_FORMS, MEDIA, ROUTES

Check = Callable[[Any], str | None]

INT_LIMIT = 1 << 62
"""Integers beyond this do not fit the columns of a trace and are refused."""


@dataclass(frozen=True)
class KeyType:
    """A value type: its name in the docs, its check, and its JSON Schema."""

    name: str
    check: Check
    schema: dict[str, Any]


def _int(v: Any) -> str | None:
    if isinstance(v, bool) or not isinstance(v, int):
        return "is not an integer"
    return None if -INT_LIMIT < v < INT_LIMIT else "is out of range"


def _natural(v: Any) -> str | None:
    return _int(v) or (None if v >= 0 else "is negative")


def _name(v: Any) -> str | None:
    return None if isinstance(v, str) or _int(v) is None else "is not a name"


def _str(v: Any) -> str | None:
    return None if isinstance(v, str) else "is not a string"


def _bool(v: Any) -> str | None:
    return None if isinstance(v, bool) else "is not true or false"


def _plain_ints(v: list[Any]) -> bool:
    """Whether all are integers of the right size, at a glance."""
    return {*map(type, v)} <= {int} and (not v or -INT_LIMIT < min(v) <= max(v) < INT_LIMIT)


def _plain_names(v: list[Any]) -> bool:
    return {*map(type, v)} <= {str} or _plain_ints(v)


def _list_of(item: Check, what: str, plain: Callable[[list[Any]], bool] | None = None) -> Check:
    """A list, each item of which is looked at, unless all of it is what it mostly is."""

    def check(v: Any) -> str | None:
        if not isinstance(v, list):
            return f"is not a list of {what}"
        if plain is not None and plain(v):
            return None
        for i, x in enumerate(v):
            problem = item(x)
            if problem:
                return f"[{i}] {problem}"
        return None

    return check


def _map_of(item: Check, what: str) -> Check:
    def check(v: Any) -> str | None:
        if not isinstance(v, dict):
            return f"is not a map to {what}"
        for k, x in v.items():
            problem = item(x)
            if problem:
                return f"of {k!r} {problem}"
        return None

    return check


def _tokens(v: Any) -> str | None:
    if not isinstance(v, list) or len(v) != 2 or _natural(v[0]) or _natural(v[1]):
        return "is not [start, end) in tokens"
    return None if v[0] <= v[1] else "ends before it starts"


def _one_of(*values: str) -> Check:
    def check(v: Any) -> str | None:
        return None if v in values else f"is none of {', '.join(values)}"

    return check


def _any(v: Any) -> str | None:
    return None


_LOGICAL_ID = re.compile(r"-?[0-9]{1,18}")


def _place_map(v: Any) -> str | None:
    if not isinstance(v, dict):
        return "is not a map of logical id to pool index"
    for k, x in v.items():
        if not _LOGICAL_ID.fullmatch(k):
            return f"has a logical id {k!r} that is no integer"
        if _int(x):
            return f"of {k!r} is not an integer"
    return None


def _enum(name: str, *values: str) -> KeyType:
    return KeyType(name, _one_of(*values), {"enum": list(values)})


_BOUNDS = {"exclusiveMinimum": -INT_LIMIT, "exclusiveMaximum": INT_LIMIT}
_INT_SCHEMA: dict[str, Any] = {"type": "integer", **_BOUNDS}
_NATURAL_SCHEMA: dict[str, Any] = {
    "type": "integer", "minimum": 0, "exclusiveMaximum": INT_LIMIT,
}  # fmt: skip
_NAME_SCHEMA: dict[str, Any] = {"type": ["string", "integer"], **_BOUNDS}

INT = KeyType("integer", _int, _INT_SCHEMA)
NATURAL = KeyType("count", _natural, _NATURAL_SCHEMA)
STR = KeyType("string", _str, {"type": "string"})
NAME = KeyType("name", _name, _NAME_SCHEMA)
BOOL = KeyType("flag", _bool, {"type": "boolean"})
INTS = KeyType(
    "list of integers",
    _list_of(_int, "integers", _plain_ints),
    {"type": "array", "items": _INT_SCHEMA},
)
NAMES = KeyType(
    "list of names",
    _list_of(_name, "names", _plain_names),
    {"type": "array", "items": _NAME_SCHEMA},
)
SCALARS = KeyType("list", _list_of(_any, "values"), {"type": "array"})
TOKENS = KeyType(
    "token range",
    _tokens,
    {"type": "array", "items": _NATURAL_SCHEMA, "minItems": 2, "maxItems": 2},
)
INT_BY_GROUP = KeyType(
    "count by group",
    _map_of(_natural, "counts"),
    {"type": "object", "additionalProperties": _NATURAL_SCHEMA},
)
INTS_BY_GROUP = KeyType(
    "list of integers by group",
    _map_of(_list_of(_int, "integers", _plain_ints), "lists of integers"),
    {"type": "object", "additionalProperties": {"type": "array", "items": _INT_SCHEMA}},
)
NAMES_BY_GROUP = KeyType(
    "list of names by group",
    _map_of(_list_of(_name, "names", _plain_names), "lists of names"),
    {"type": "object", "additionalProperties": {"type": "array", "items": _NAME_SCHEMA}},
)
ROUTE_BY_GROUP = KeyType(
    "route by group",
    _map_of(_one_of(*ROUTES), "routes"),
    {"type": "object", "additionalProperties": {"enum": list(ROUTES)}},
)
OBJECT = KeyType("object", _map_of(_any, "values"), {"type": "object"})
PLACES = KeyType(
    "map of logical id to pool index",
    _place_map,
    {
        "type": "object",
        "propertyNames": {"pattern": f"^{_LOGICAL_ID.pattern}$"},
        "additionalProperties": _INT_SCHEMA,
    },
)
SCALAR = KeyType("name or number", _name, _NAME_SCHEMA)
FORM = _enum("form", *(f.value for f in HOME_FORMS))
MEDIUM = _enum("medium", *MEDIA)
ANY = KeyType("any", _any, {})

ENUMS: dict[str, KeyType] = {
    "window_kind": _enum("window kind", "sliding", "chunked"),
    "op:buffer": _enum("buffer operation", "write", "read"),
    "op:lease": _enum("lease operation", "grant", "expire", "release"),
    "kind:wire": _enum("wire event", "stored", "removed", "cleared"),
    "at:fingerprint": _enum("moment", "publish", "store", "load", "resume", "use"),
}
