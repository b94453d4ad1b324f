"""The history of one block: its events, each with the generation the block was then in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.store.trace import Trace


class Moment(NamedTuple):
    """One event in the life of a block; `generation` is None before anything tells it."""

    event: Event
    generation: int | None


def history(
    trace: Trace, pool: str, block: int, until: int | None = None, after: Moment | None = None
) -> Iterator[Moment]:
    """Every event that names the block, in order; those behind a moment where one is given.

    An `alloc` starts the next generation; a `state` that lists generations says which one it is.
    """
    generation = after.generation if after else None
    since = after.event.pos + 1 if after else None
    for event in trace.events(since, until, block=(pool, block)):
        if event.ev == "alloc":
            generation = (generation or 0) + event["blocks"].count(block)
        elif event.ev == "state" and "gens" in event:
            generation = event["gens"][event["blocks"].index(block)]
        yield Moment(event, generation)
