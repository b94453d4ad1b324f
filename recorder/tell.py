"""How the hooks tell an event: one prepared function for each kind that comes often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Sink = Callable[[Mapping[str, Any]], Any]
"""Takes one `hkv/1` event as its object; a guard, a list, a recording."""

Prepare = Callable[[str, Sequence[str]], Callable[..., Any]]
"""Makes a function that takes the values of these keys; what is None is left out."""

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


_GEOMETRY = frozenset({"pool", "group", "kernel"})


class Tell:
    """The events that come often as functions, all others by `event`."""

    def __init__(self, sink: Sink, prepare: Prepare | None = None) -> None:
        self._sink = sink
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

    def event(self, data: Mapping[str, Any]) -> Any:
        """Hand on one event."""
        if data["ev"] in _GEOMETRY:
            self.geometry.append(data)
        return self._sink(data)


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
