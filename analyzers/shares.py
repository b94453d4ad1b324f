"""How long each of several functions takes, without what it calls of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_DONE = object()


class Shares:
    """Seconds by name, of whatever was measured."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._within = 0.0
        """What measured functions took that the present one has called."""

    def timed(self, name: str, call: Callable[..., T]) -> Callable[..., T]:
        """The function, measured under a name."""
        self.seconds.setdefault(name, 0.0)

        def measured(*given: Any, **named: Any) -> T:
            start, around = self._clock(), self._within
            self._within = 0.0
            try:
                return call(*given, **named)
            finally:
                took = self._clock() - start
                self.seconds[name] += took - self._within
                self._within = around + took

        return measured

    def measure(self, owner: Any, methods: Mapping[str, str]) -> None:
        """Measure methods of an object, under the names that they are given."""
        for method, name in methods.items():
            setattr(owner, method, self.timed(name, getattr(owner, method)))

    def waited(self, name: str, items: Iterator[T]) -> Iterator[T]:
        """The items, with the time that was waited for them."""
        following = self.timed(name, lambda: next(items, _DONE))
        while (item := following()) is not _DONE:
            yield item  # type: ignore[misc]


def family_of(look: Callable[..., object]) -> str:
    """The module that a family is written in."""
    return type(getattr(look, "__self__", look)).__module__.rpartition(".")[2]
