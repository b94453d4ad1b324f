"""What a fleet costs: bytes and CPU time of an event on its way, and what that makes of many hosts.

Measured on reference engines, which are recorded, ingested into a fleet and checked one by one,
and on one long synthetic trace in which nothing is wrong, which compiled code goes through. The
projection multiplies; it says nothing of what a cluster's network or a scheduler adds.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

from hkvtool.bench.engine import reference_run
from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.engine.workload import Request
from hkvtool.fleet.asking import check_instance
from hkvtool.fleet.ingesting import Ingest
from hkvtool.fleet.instances import Instance

_DAY = 86_400


@dataclass
class FleetCosts:
    """What one event costs: bytes in the fleet's Parquet, nanoseconds of CPU time."""

    instances: int
    events: int
    events_a_step: float
    parquet_bytes: float
    ingest_ns: float
    rules_ns: float
    """Plain Python: of traces in which something is wrong, and of short ones."""
    screen_ns: float
    """Compiled code: of long traces in which nothing is wrong, read out of DuckDB."""
    screen_events: int
    load: float

    def projected(self, hosts: int, engines: int, steps_per_second: float) -> dict[str, float]:
        """What so many hosts come to, each with so many engines that are never idle."""
        a_second = hosts * engines * steps_per_second * self.events_a_step
        return {
            "hosts": hosts,
            "engines": hosts * engines,
            "events_per_second": a_second,
            "events_per_day": a_second * _DAY,
            "bytes_per_day": a_second * _DAY * self.parquet_bytes,
            "bytes_per_second_of_a_host": a_second / hosts * self.parquet_bytes,
            "cores_to_ingest": a_second * self.ingest_ns / 1e9,
            "cores_to_screen": a_second * self.screen_ns / 1e9,
            "cores_for_rules": a_second * self.rules_ns / 1e9,
        }

    def facts(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def fleet_costs(
    arrivals: list[Request],
    instances: int,
    screen_events: int,
    told: Callable[[int], None] | None = None,
) -> FleetCosts:
    """Record so many engines, ingest and check them in this process. Raises HkvError."""
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as place:
        steps = 0
        sources = []
        for number in range(instances):
            target = Path(place, f"rank{number}.hkv")
            run = reference_run("deepseek-v4", arrivals, target, seed=number)
            steps += run.steps
            sources.append(Instance(target.name, str(target)))
        # What is loaded and compiled once is not of any event.
        check_instance(sources[0])
        started = process_time()
        kept = [Ingest(str(Path(place, "fleet")))(source) for source in sources]
        ingest = process_time() - started
        for one in kept:
            if one.trouble is not None:
                raise one.trouble
        events = sum(one.events for one in kept)
        parquet = sum(os.stat(one.path).st_size for one in kept)
        started = process_time()
        for one in kept:
            check_instance(Instance(one.path, one.path))
        rules = process_time() - started
        long = Instance("long.duckdb", str(Path(place, "long.duckdb")))
        screened = synthetic_trace(long.path, screen_events, progress=told)
        check_instance(long)
        started = process_time()
        check_instance(long)
        screen = process_time() - started
    return FleetCosts(
        instances, events, events / steps, parquet / events,
        1e9 * ingest / events, 1e9 * rules / events, 1e9 * screen / screened, screened,
        os.getloadavg()[0],
    )  # fmt: skip
