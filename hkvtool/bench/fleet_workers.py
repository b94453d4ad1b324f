"""How much sooner a fleet is checked by several processes than by one, and what more it costs.

Wall time is the machine's as it is, with whatever else runs on it; CPU time is of the checks alone
and says what the processes cost each other.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter

from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.fleet.asking import Outcome, check_instance
from hkvtool.fleet.instances import instances
from hkvtool.fleet.processes import ask_here
from hkvtool.model.errors import HkvError


@dataclass(frozen=True)
class Scaling:
    """One way to check all instances. Seconds; `cpu` is of all processes together."""

    workers: int
    instances: int
    events: int
    wall: float
    cpu: float
    load: float


def scaling(
    events: int, parts: int, workers: Sequence[int] = (1, 2),
    told: Callable[[int], None] | None = None,
) -> list[Scaling]:  # fmt: skip
    """Check so many events in so many traces, nothing wrong with any, by each number of processes.
    Raises HkvError where they do not come to the same."""
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as place:
        first = Path(place, "rank0.duckdb")
        each = synthetic_trace(first, max(1, events // parts), progress=told)
        for number in range(1, parts):
            shutil.copyfile(first, Path(place, f"rank{number}.duckdb"))
        fleet = instances(place)
        # What is compiled for the first time on a machine is of no way.
        list(ask_here(check_instance, fleet[:1], 1))
        found: list[Scaling] = []
        answers: list[list[str]] = []
        for count in workers:
            cpu, wall = _children(), perf_counter()
            outcomes = list(ask_here(check_instance, fleet, count))
            found.append(Scaling(
                count, parts, each * parts, perf_counter() - wall, _children() - cpu,
                os.getloadavg()[0],
            ))  # fmt: skip
            answers.append([_said(one, each) for one in outcomes])
    if any(one != answers[0] for one in answers):
        raise HkvError("the answers of one process are not those of several")
    return found


def _said(outcome: Outcome, events: int) -> str:
    report = outcome.report
    if outcome.trouble is not None:
        raise outcome.trouble
    assert report is not None
    if report.trace["events"] != events:
        raise HkvError("not all events were checked", where=outcome.instance.name)
    return repr(report.as_json())


def _children() -> float:
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
