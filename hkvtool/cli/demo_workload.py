"""The workload part of `hkvtool demo`: engine, recorder, trace and check, end to end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hkvtool.cli.run import SHIPPED, counted, recording, workload_path
from hkvtool.cli.traces import progress
from hkvtool.model.rules import RULES, Severity

if TYPE_CHECKING:
    from rich.console import Console

    from hkvtool.model.findings import Report

PRESET = "deepseek-v4"
REQUESTS = 30
"""Of the shipped production trace: enough to share prefixes, few enough for a minute."""


@dataclass(frozen=True)
class Told:
    """One run by its three witnesses: the engine's account, its bytes, and the check."""

    asked: int
    matched: int
    resumed: int
    reads: int
    wrong: int
    events: int
    report: Report

    @property
    def errors(self) -> int:
        return self.report.count(Severity.ERROR)


def show_workload(screen: Console, out: Path) -> None:
    """Run the workload twice, with validation and without, and set the two side by side."""
    careful = _told(out / "workload.duckdb", trust_hash=False)
    trusting = _told(out / "workload-trust-hash.duckdb", trust_hash=True)
    rows = [
        ("", "validated", "--trust-hash"),
        ("tokens asked for", careful.asked, trusting.asked),
        ("of which matched by hash", careful.matched, trusting.matched),
        ("of which resumed from", careful.resumed, trusting.resumed),
        ("blocks read, stamps verified", careful.reads, trusting.reads),
        ("reads of wrong bytes", careful.wrong, trusting.wrong),
        ("events recorded", careful.events, trusting.events),
        ("errors that the check finds", careful.errors, trusting.errors),
    ]
    for name, one, other in rows:
        cells = [f"{c:,}" if isinstance(c, int) else c for c in (one, other)]
        style = "bold" if not name else "red" if name.startswith(("reads", "errors")) else None
        screen.print(f"  {name:<30}{cells[0]:>14}{cells[1]:>14}", style=style)
    screen.print()
    for code, count in _roots(trusting.report):
        screen.print(f"  {code} {RULES[code].name}: {count} with --trust-hash", style="red")


def _roots(report: Report) -> list[tuple[str, int]]:
    return Counter(
        f.code for f in report.findings if not f.cause and f.severity is Severity.ERROR
    ).most_common()


def _told(target: Path, *, trust_hash: bool) -> Told:
    from hkvtool.analyzers import check
    from hkvtool.engine.config import Config
    from hkvtool.engine.engine import Engine
    from hkvtool.engine.presets import preset
    from hkvtool.engine.workload import read_workload
    from hkvtool.store import open_trace

    arrivals = list(read_workload(workload_path(SHIPPED), REQUESTS))
    geometry = preset(PRESET)
    blocks = geometry.blocks
    config = Config(
        geometry, blocks, cpu_blocks=2 * blocks, disk_blocks=4 * blocks, trust_hash=trust_hash
    ).fitted(max(request.total for request in arrivals))
    arrivals.sort(key=lambda request: request.arrival)
    with (
        recording(target, force=True) as sink,
        Engine(config, sink) as engine,
        progress(f"running {PRESET}", len(arrivals)) as told,
    ):
        engine.run(counted(arrivals, told), f"{REQUESTS} requests")
    with open_trace(target) as trace:
        report = check(trace.events())
    scheduler, memory = engine.scheduler, engine.memory
    return Told(
        scheduler.asked, scheduler.matched, scheduler.resumed, memory.reads, memory.bad_reads,
        engine.events, report,
    )  # fmt: skip
