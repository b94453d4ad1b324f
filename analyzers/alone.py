"""What one engine of several on a shared pool can tell without the others, and its check."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from hkvtool.analyzers.check import check
from hkvtool.analyzers.long_check import check_trace
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.state.fold import PLAIN_LIMIT
from hkvtool.store.opening import open_trace
from hkvtool.store.scratch import Scratch
from hkvtool.store.trace import Trace
from hkvtool.store.writer import TraceWriter

_HOLDING = frozenset({"alloc", "touch", "free", "pin", "unpin", "state", "zero", "fingerprint"})


def by_itself(events: Iterable[Event], shared: frozenset[str]) -> Iterator[Event]:
    """A trace without what only all engines of a shared pool together can tell: what its places
    hold, and who holds them. Another engine may have written there since this one looked."""
    groups: dict[str, bool] = {}
    for event in events:
        if event.problem is not None:
            yield event
            continue
        if event.ev == "group":
            groups[str(event["group"])] = str(event["pool"]) in shared
        elif event.ev in _HOLDING:
            pool = event.get("pool")
            named = str(pool) in shared if pool is not None else groups.get(str(event.get("group")))
            if named:
                continue
        elif event.ev in ("store_begin", "load_begin") and "peer" in event:
            pool = event.get("to" if event.ev == "store_begin" else "from")
            if str(pool) in shared:
                data = {key: value for key, value in event.data.items() if key != "peer"}
                event = Event(event.pos, event.ev, data)
        yield event


def check_alone(trace: Trace, shared: frozenset[str]) -> Report:
    """The check of what an engine can tell by itself, where others use those pools too."""
    told = by_itself(trace.events(), shared)
    if trace.count < PLAIN_LIMIT:
        report = check(told)
    else:
        with Scratch() as aside:
            copy = os.path.join(aside, "alone.duckdb")
            with TraceWriter(copy) as writer:
                writer.write(told)
            with open_trace(copy) as alone:
                report = check_trace(alone)
    report.trace["events"] = trace.count
    return report
