"""One check of one opened trace: by the screen where it is long, else by the rules at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from hkvtool.analyzers.check import check
from hkvtool.model.findings import Report
from hkvtool.state.fold import PLAIN_LIMIT

if TYPE_CHECKING:
    from hkvtool.analyzers.shares import Shares
    from hkvtool.model.event import Event
    from hkvtool.store import Trace


def check_trace(
    trace: Trace, told: Callable[[int], None] | None = None, events: Iterable[Event] | None = None
) -> Report:
    """What `check` says of a trace, sooner where it is long and little is wrong with it. `told`
    is told how many events were looked at; `events` are the trace's where somebody has them."""
    return screen_of(trace, told) or check(trace.events() if events is None else events)


def screen_of(
    trace: Trace, told: Callable[[int], None] | None = None, shares: Shares | None = None
) -> Report | None:
    """The report of a long trace in a DuckDB file, the rules asked of what compiled code does not
    surely find right; None where they must look at all of it, and of any other trace. What takes
    how long is put into `shares`."""
    return _screened(trace, told, right=False, shares=shares)


def right_of(trace: Trace, told: Callable[[int], None] | None = None) -> Report | None:
    """The report of a long trace in a DuckDB file in which nothing is wrong; None of any other."""
    return _screened(trace, told, right=True)


def _screened(
    trace: Trace, told: Callable[[int], None] | None, *, right: bool, shares: Shares | None = None
) -> Report | None:
    if trace.count < PLAIN_LIMIT:
        return None
    from hkvtool.store.duck import DuckTrace

    if not isinstance(trace, DuckTrace):
        return None
    from hkvtool.analyzers.screen import screened

    return screened(trace, told, right=right, shares=shares)
