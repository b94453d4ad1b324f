"""What each part of a check takes: `hkvtool check --profile`.

A long trace is screened, and the rules are asked of what is not surely right: then the shares are
those of the screen and of the second pass. Where the rules go through all of it, they are those of
each family.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TYPE_CHECKING

from hkvtool.analyzers.check import Check, settled
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.long_check import screen_of
from hkvtool.analyzers.shares import Shares, family_of
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.findings import Report

if TYPE_CHECKING:
    from hkvtool.store import Trace


def profiled(
    events: Iterable[Event], clock: Callable[[], float] = perf_counter
) -> tuple[Report, dict[str, float]]:
    """The report of a check by the rules alone, and the seconds that each family took, by its
    name; `order` and `state` are what the families rest on. The clock is read at every call,
    which takes time too."""
    shares = Shares(clock)
    evidence, events = settled(events)
    check = Check(Context(evidence))
    check.wrap = lambda look: shares.timed(family_of(look), look)
    shares.measure(check.ctx, {"meet": "order", "follow": "state"})
    with uncollected():
        return check.run(events), shares.seconds


def profiled_trace(
    trace: Trace, told: Callable[[int], None] | None = None,
    clock: Callable[[], float] = perf_counter,
) -> tuple[Report, dict[str, float]]:  # fmt: skip
    """The report of an opened trace as `check_trace` gives it, and what took how many seconds.
    `told` is told how many events the screen has looked at."""
    shares = Shares(clock)
    report = screen_of(trace, told, shares)
    if report is not None:
        return report, shares.seconds
    report, by_rules = profiled(trace.events(), clock)
    return report, {**shares.seconds, **by_rules}
