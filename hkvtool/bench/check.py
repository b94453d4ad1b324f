"""What checking a long trace costs: as `hkvtool check` does it, beside reading alone and the rules.

As in `hkvtool.bench.fold`, the trace is written, the code compiled and the figures taken in
processes of their own. The rules alone, plain Python, get a prefix: they cost the same for every
event.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.bench.ways import Way, child, peak

PLAIN = 20_000
"""Events that the rules alone are timed on."""


@dataclass
class CheckCosts:
    """What was measured in one run; `ways` in the order of the telling, reading first."""

    events: int
    file_bytes: int = 0
    load: float = 0.0
    screened: bool = False
    """Whether nothing was left for the rules to look at."""
    findings: int = 0
    ways: list[Way] = field(default_factory=list)
    shares: dict[str, float] = field(default_factory=dict)
    """Seconds that each family of rules, and what they rest on, took of the plain pass."""

    def way(self, name: str) -> Way:
        """One way by its name."""
        return next(way for way in self.ways if way.name == name)

    def facts(self) -> dict[str, Any]:
        """As plain values, rates included."""
        plain = self.way("rules alone")
        ways = [
            {**asdict(way), "events_per_second": round(way.rate),
             "of_rules_alone": round(way.rate / plain.rate, 2)}
            for way in self.ways
        ]  # fmt: skip
        return {**asdict(self), "ways": ways}


def check_costs(
    events: int,
    blocks_per_event: int = 4,
    plain_events: int = PLAIN,
    trace: Path | None = None,
    told: Callable[[int], None] | None = None,
) -> CheckCosts:
    """Time each way once over one trace, a synthetic one where none is given. Raises HkvError."""
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as folder:
        path = trace or Path(folder, "trace.duckdb")
        if trace is None:
            synthetic_trace(path, events, blocks_per_event, progress=told)
        compiling = child(__name__, "compile", str(path))
        found = child(__name__, "measure", str(path), str(plain_events))
        ways = [Way(**way) for way in (*found.pop("ways"), compiling)]
        if trace is None:
            faulty = Path(folder, "faulty.duckdb")
            synthetic_trace(faulty, events, blocks_per_event, faulty=True, progress=told)
            ways.insert(2, Way(**child(__name__, "faulty", str(faulty))))
        return CheckCosts(file_bytes=path.stat().st_size, ways=ways, **found)


def _compiling(path: str) -> dict[str, Any]:
    """What making the screen ready costs, once a machine."""
    from hkvtool.analyzers.screen_fold import warm_up
    from hkvtool.store import open_trace

    way = Way("compiling", 0)
    with open_trace(path) as trace, way.timed():
        if warm_up(trace):
            way.name = "compiling (it was in the cache)"
    return asdict(way)


def _faulty(path: str) -> dict[str, Any]:
    """What the check of a trace with one fault costs."""
    from hkvtool.analyzers.screen import screened
    from hkvtool.analyzers.screen_fold import warm_up
    from hkvtool.store import open_trace

    with open_trace(path) as trace:
        warm_up(trace)
        way = Way("check, one fault", trace.count)
        with peak(way), way.timed():
            report = screened(trace)
        if report is None or not report.findings:
            way.name = "check, one fault (not narrowed)"
    return asdict(way)


def _measured(path: str, plain_events: int) -> dict[str, Any]:
    """What one run over a trace costs, as plain values."""
    from hkvtool.analyzers import check
    from hkvtool.analyzers.profile import profiled
    from hkvtool.analyzers.screen import screened
    from hkvtool.analyzers.screen_fold import warm_up
    from hkvtool.store import open_trace

    with open_trace(path) as trace:
        count = trace.count
        warm_up(trace)
        reading, whole = Way("reading alone", count), Way("check", count)
        with peak(reading), reading.timed():
            for _ in trace.batches():
                pass
        with peak(whole), whole.timed():
            report = screened(trace)
        by_rules = report is None
        if report is None:
            with peak(whole), whole.timed():
                report = check(trace.events())
        some = list(islice(trace.events(), plain_events))
        plain = Way("rules alone", len(some))
        with plain.timed():
            check(some)
        _, shares = profiled(some, process_time)
    return {
        "events": count,
        "load": os.getloadavg()[0],
        "screened": not by_rules,
        "findings": len(report.findings),
        "ways": [asdict(way) for way in (reading, whole, plain)],
        "shares": dict(sorted(shares.items(), key=lambda item: -item[1])),
    }


if __name__ == "__main__":
    mode, *rest = sys.argv[1:]
    if mode == "measure":
        facts = _measured(rest[0], int(rest[1]))
    else:
        facts = _compiling(rest[0]) if mode == "compile" else _faulty(rest[0])
    print(json.dumps(facts))
