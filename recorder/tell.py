"""How the hooks tell an event: one prepared function for each kind that comes often."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Sink = Callable[[Mapping[str, Any]], Any]
"""Takes one `hkv/1` event as its object; a guard, a list, a recording."""

Prepare = Callable[[str, Sequence[str]], Callable[..., Any]]
"""Makes a function that takes the values of these keys; what is None is left out."""

NumberOf = Callable[[str, str], int]
"""`Recording.engine_number`."""

_SHAPES: dict[str, tuple[str, ...]] = {
    "alloc": ("blocks", "group", "req", "pool"),
    "touch": ("blocks", "group", "req", "pool", "owner"),
    "free": ("blocks", "group", "req", "pool", "owner", "front"),
    "slide": ("group", "req", "blocks"),
    "publish": ("group", "blocks", "hashes", "tokens", "req"),
    "unpublish": ("group", "blocks", "hashes", "reason"),
    "dispatch": ("step", "reqs", "starts", "counts", "tables", "zeroed", "copies"),
    "retire": ("step",),
}


_NAMES = frozenset({"req", "reqs", "owner", "owners", "handle", "event"})
"""Keys whose values name what is of one engine only. Two that work together, one of them for
prefill, may call a request alike."""

_GEOMETRY = frozenset({"pool", "group", "kernel"})


class Tell:
    """The events that come often as functions, all others by `event`."""

    def __init__(
        self, sink: Sink, prepare: Prepare | None = None, number_of: NumberOf | None = None
    ) -> None:
        self._sink = sink
        self._number_of = number_of
        self._suffix = ""
        """Behind the names that another engine of the recording may use too."""
        self.geometry: list[Mapping[str, Any]] = []
        """What was told of pools, groups and kernels."""
        make = prepare or _plain(sink)
        self.alloc = make("alloc", _SHAPES["alloc"])
        self.touch = make("touch", _SHAPES["touch"])
        self.free = make("free", _SHAPES["free"])
        self.slide = make("slide", _SHAPES["slide"])
        self.publish = make("publish", _SHAPES["publish"])
        self.unpublish = make("unpublish", _SHAPES["unpublish"])
        self.dispatch = make("dispatch", _SHAPES["dispatch"])
        self.retire = make("retire", _SHAPES["retire"])

    def engine_number(self, kind: str, key: str = "") -> int:
        """`Recording.engine_number`; without a key of the engine that is in this one process."""
        if self._number_of is None:
            return 0
        number = self._number_of(kind, key or f"process {os.getpid()}")
        if number and not self._suffix:
            self._suffix = beside(number)
            for ev, keys in _SHAPES.items():
                setattr(self, ev, _apart(getattr(self, ev), keys, self._suffix))
        return number

    def event(self, data: Mapping[str, Any]) -> Any:
        """Hand on one event."""
        if self._suffix:
            suffix = self._suffix
            data = {k: _with(v, suffix) if k in _NAMES else v for k, v in data.items()}
        if data["ev"] in _GEOMETRY:
            self.geometry.append(data)
        return self._sink(data)


def beside(number: int) -> str:
    """What is put behind the names of the engine of this number, so that no other's are alike."""
    return f"@e{number + 1}" if number else ""


def _with(value: Any, suffix: str) -> Any:
    """A name, a list of names or lists by group, each with the suffix."""
    if isinstance(value, str):
        return value + suffix
    if isinstance(value, Mapping):
        return {key: _with(one, suffix) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with(one, suffix) for one in value]
    return value


def _apart(tell: Callable[..., Any], keys: Sequence[str], suffix: str) -> Callable[..., Any]:
    """What tells events of one shape, for an engine whose names are to be told apart."""
    named = [i for i, key in enumerate(keys) if key in _NAMES]

    def told(*values: Any) -> Any:
        mine = list(values)
        for i in named:
            if i < len(mine):
                mine[i] = _with(mine[i], suffix)
        return tell(*mine)

    return told


def _plain(sink: Sink) -> Prepare:
    """Functions that hand the event on as an object."""

    def make(ev: str, keys: Sequence[str]) -> Callable[..., Any]:
        def tell(*values: Any) -> Any:
            event: dict[str, Any] = {"ev": ev}
            for key, value in zip(keys, values, strict=False):
                if value is not None:
                    event[key] = value
            return sink(event)

        return tell

    return make


def both(one: Prepare, sink: Sink) -> Prepare:
    """Functions that do what `one` makes, and hand the event to `sink` too."""
    other = _plain(sink)

    def make(ev: str, keys: Sequence[str]) -> Callable[..., Any]:
        first, second = one(ev, keys), other(ev, keys)

        def tell(*values: Any) -> Any:
            stored = first(*values, *[None] * (len(keys) - len(values)))
            second(*values)
            return stored

        return tell

    return make
