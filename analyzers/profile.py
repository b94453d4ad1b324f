"""What each family of rules takes of a check: `hkvtool check --profile`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TypeVar

from hkvtool.analyzers.check import Check, settled
from hkvtool.analyzers.context import Context
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.findings import Report

T = TypeVar("T")


def profiled(
    events: Iterable[Event], clock: Callable[[], float] = perf_counter
) -> tuple[Report, dict[str, float]]:
    """The report of a check, and the seconds that each family took, by its name; `order` and
    `state` are what the families rest on. The clock is read at every call, which takes time too.
    """
    shares: dict[str, float] = {}

    def timed(name: str, look: Callable[[Event], T]) -> Callable[[Event], T]:
        shares.setdefault(name, 0.0)

        def looked(event: Event) -> T:
            start = clock()
            try:
                return look(event)
            finally:
                shares[name] += clock() - start

        return looked

    evidence, events = settled(events)
    check = Check(Context(evidence))
    check.wrap = lambda look: timed(_family(look), look)
    ctx = check.ctx
    for name, attribute in (("order", "meet"), ("state", "follow")):
        setattr(ctx, attribute, timed(name, getattr(ctx, attribute)))
    with uncollected():
        return check.run(events), shares


def _family(look: Callable[[Event], None]) -> str:
    """The module that a family is written in."""
    return type(getattr(look, "__self__", look)).__module__.rpartition(".")[2]
