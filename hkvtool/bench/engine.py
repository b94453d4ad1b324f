"""What the reference engine costs, and what recording it adds: the same run without and with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine, Sink
from hkvtool.engine.presets import preset
from hkvtool.engine.workload import Request


@dataclass(frozen=True)
class EngineCost:
    """One run of the engine: times in seconds, and how its steps were launched."""

    name: str
    wall: float
    cpu: float
    events: int
    steps: int
    graph_launches: int
    graph_bypasses: int


def engine_costs(
    name: str, arrivals: list[Request], rounds: int = 3, folder: Path | None = None
) -> list[EngineCost]:
    """Run the same requests unrecorded and recorded, in turns, and keep the fastest of each.

    The first, unrecorded one is the baseline. Recorded means through a ring, as in any engine;
    the ring's file is made within the time.
    """
    geometry = preset(name)
    config = Config(
        geometry, geometry.blocks, cpu_blocks=2 * geometry.blocks, disk_blocks=4 * geometry.blocks
    ).fitted(max(request.total for request in arrivals))
    arrivals = sorted(arrivals, key=lambda request: request.arrival)
    best: dict[str, EngineCost] = {}
    for _ in range(rounds):
        for way in ("not recorded", "recorded"):
            with tempfile.TemporaryDirectory(dir=folder, prefix="hkvtool-") as place:
                cost = _run(way, config, arrivals, Path(place, "run.hkv"))
            if way not in best or cost.cpu < best[way].cpu:
                best[way] = cost
    return list(best.values())


def reference_run(name: str, arrivals: list[Request], target: Path, seed: int = 0) -> EngineCost:
    """Run the requests once, recorded into a folder."""
    geometry = preset(name)
    config = Config(geometry, geometry.blocks, cpu_blocks=2 * geometry.blocks, seed=seed).fitted(
        max(request.total for request in arrivals)
    )
    return _run("recorded", config, sorted(arrivals, key=lambda r: r.arrival), target)


def _run(way: str, config: Config, arrivals: list[Request], target: Path) -> EngineCost:
    wall, cpu = perf_counter(), process_time()
    with _sink(way, target) as sink, Engine(config, sink) as engine:
        engine.run(iter(arrivals), way)
    tables = engine.tables
    return EngineCost(
        way, perf_counter() - wall, process_time() - cpu,
        engine.events, engine.steps, tables.launches, tables.bypasses,
    )  # fmt: skip


@contextmanager
def _sink(way: str, target: Path) -> Iterator[Sink]:
    from hkvtool.recorder.recording import sink

    if way != "recorded":
        yield lambda event: None
        return
    with sink(target) as emit:
        yield emit
