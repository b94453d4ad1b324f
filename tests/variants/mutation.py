"""One fault put into a correct trace, and the codes by which it may be found.

The correct engines show that a checker is silent where it must be; these show that it is not
silent for want of looking, on long traces full of unrelated work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from .tape import Event

Change = Callable[[list[Event], Random], "list[Event] | None"]


@dataclass(frozen=True)
class Mutation:
    """`change` gives the faulty trace, or None where the trace offers no place for it."""

    change: Change
    codes: frozenset[str]
    options: dict[str, Any] = field(default_factory=dict)


MUTATIONS: dict[str, Mutation] = {}


def mutation(codes: str, **options: Any) -> Callable[[Change], Change]:
    """Note a change under its own name, with the codes it may be found by."""

    def add(change: Change) -> Change:
        wanted = frozenset(f"HKV{code}" for code in codes.split())
        MUTATIONS[change.__name__] = Mutation(change, wanted, options)
        return change

    return add


def where(events: list[Event], ev: str, **keys: Any) -> Iterator[int]:
    """Positions of the events of one kind whose keys have these values."""
    for n, e in enumerate(events):
        if e["ev"] == ev and all(e.get(k) == v for k, v in keys.items()):
            yield n


def without(events: list[Event], *gone: int) -> list[Event]:
    return [e for n, e in enumerate(events) if n not in gone]


def pick(rng: Random, places: Iterator[int]) -> int | None:
    """One of the places, None where there is none."""
    found = list(places)
    return rng.choice(found) if found else None
