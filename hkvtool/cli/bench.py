"""`hkvtool bench`: what things cost on this machine, each beside a baseline of the same run."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

from hkvtool.cli.traces import Format, print_json, print_line, print_table, progress

command = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure what recording, folding and checking cost here.",
)

_FORMAT = Annotated[Format, typer.Option("--format", help="How to print the figures.")]


@command.callback(invoke_without_command=True)
def _list(ctx: typer.Context) -> None:
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


@command.command("fold")
def fold(
    events: Annotated[
        int, typer.Option("--events", min=1_000, max=100_000_000, help="Length of the trace.")
    ] = 10_000_000,
    blocks: Annotated[
        int, typer.Option("--blocks", min=1, max=256, help="Blocks in each event that names some.")
    ] = 4,
    plain_events: Annotated[
        int, typer.Option("--plain-events", min=1, help="Events that the plain fold gets.")
    ] = 200_000,
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="FILE", help="Keep the trace there.")
    ] = None,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Fold a synthetic trace, compiled and plain, beside reading it alone and a bare loop.

    Then open it at some positions, as `hkvtool block --at` does. Events a second are of CPU time.
    """
    from hkvtool.bench.fold import fold_costs

    with progress("writing the trace", events) as told:
        found = fold_costs(events, blocks, plain_events, keep, told)
    if format is Format.JSON:
        print_json(found.facts())
        return
    base, plain = found.way("reading alone"), found.way("plain fold")
    print_table(
        ["", "events", "wall s", "CPU s", "events / CPU s", "of reading", "of plain", "peak MiB"],
        [
            [w.name, w.events, f"{w.wall:.2f}", f"{w.cpu:.2f}", f"{w.rate:,.0f}",
             f"{w.rate / base.rate:.3f}", f"{w.rate / plain.rate:,.1f}", w.peak_mib]
            for w in found.ways if w.events
        ],
    )  # fmt: skip
    print_line()
    rows: list[tuple[str, str]] = [
        (w.name, f"{w.wall:.1f} s, {w.cpu:.1f} s CPU") for w in found.ways if not w.events
    ]
    for name, times in (("wall", found.moments_wall), ("CPU", found.moments_cpu)):
        middle, most = median(times) * 1000, max(times) * 1000
        rows.append((f"--at, {name}", f"{middle:.0f} ms median, {most:.0f} ms at most"))
    rows.append(("trace", f"{found.file_bytes / max(1, found.events):.1f} bytes an event"))
    rows.append(("load of the machine", f"{found.load:.1f} on {os.cpu_count()} cores"))
    print_table(("", ""), rows)


@command.command("check")
def check(
    events: Annotated[
        int, typer.Option("--events", min=1_000, max=100_000_000, help="Length of the trace.")
    ] = 1_000_000,
    blocks: Annotated[
        int, typer.Option("--blocks", min=1, max=256, help="Blocks in each event that names some.")
    ] = 4,
    plain_events: Annotated[
        int, typer.Option("--plain-events", min=1, help="Events that the rules alone get.")
    ] = 20_000,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="This .duckdb trace instead.")
    ] = None,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Check a synthetic trace as `hkvtool check` does, beside reading it alone and the rules alone.

    Then the share of each family of rules in the latter. Events a second are of CPU time.
    """
    from hkvtool.bench.check import check_costs

    with progress("writing the trace", events) as told:
        found = check_costs(events, blocks, plain_events, trace, told)
    if format is Format.JSON:
        print_json(found.facts())
        return
    plain = found.way("rules alone")
    print_table(
        ["", "events", "wall s", "CPU s", "events / CPU s", "of rules alone", "peak MiB"],
        [
            [w.name, w.events, f"{w.wall:.2f}", f"{w.cpu:.2f}", f"{w.rate:,.0f}",
             f"{w.rate / plain.rate:,.1f}", w.peak_mib]
            for w in found.ways if w.events
        ],
    )  # fmt: skip
    print_line()
    total = sum(found.shares.values()) or 1.0
    rows: list[tuple[str, str]] = [
        (w.name, f"{w.wall:.1f} s, {w.cpu:.1f} s CPU") for w in found.ways if not w.events
    ]
    rows += [(name, f"{100 * taken / total:.1f} % of the rules alone")
             for name, taken in found.shares.items()]  # fmt: skip
    rows.append(("findings", f"{found.findings:,}" + "; by the rules" * (not found.screened)))
    rows.append(("load of the machine", f"{found.load:.1f} on {os.cpu_count()} cores"))
    print_table(("", ""), rows)


@command.command("ring")
def ring(format: _FORMAT = Format.TABLE) -> None:
    """Record events of usual sizes, beside a line of JSON and a call that does nothing."""
    from hkvtool.bench.ring import costs

    found = costs()
    if format is Format.JSON:
        print_json([dataclasses.asdict(cost) for cost in found])
        return
    ways = list(found[0].ways)
    print_table(
        ["ns an event, median", *ways, "bytes", "JSON bytes"],
        [
            [cost.event, *(f"{cost.ways[way].median:,.0f}" for way in ways),
             cost.payload_bytes, cost.json_bytes]
            for cost in found
        ],
    )  # fmt: skip


@command.command("record")
def record(
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine", metavar="PYTHON", help="Measure a real vLLM, under this Python of its own."
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option("--rounds", min=2, max=1000, help="Turns of each arm, with --engine.")
    ] = 12,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Record a busy decode loop, seal it and make a trace of it; then hooks that are off.

    With --engine: vLLM's scheduler alone and a whole vLLM with a tiny model, not recorded,
    recorded, under either guard, and with vLLM's own KV events, in turn. Times are processor time.
    """
    if engine is not None:
        _record_engine(engine, rounds, format)
        return
    from hkvtool.bench.recording import record_cost

    cost = record_cost()
    if format is Format.JSON:
        print_json(dataclasses.asdict(cost))
        return
    step = cost.emit_ns * cost.events_a_step / 1000
    sizes = f"{cost.ring_bytes:.1f} in the ring, {cost.sealed_bytes:.1f} sealed"
    others = f"{cost.trace_bytes:.1f} in the trace, {cost.json_bytes:.1f} as JSON lines"
    rows = [
        ("events", f"{cost.events:,}, {cost.events_a_step:.1f} a step, {cost.dropped} dropped"),
        ("in the program", f"{cost.emit_ns:,.0f} ns an event, {step:,.1f} us a step"),
        ("a block more", f"{cost.block_ns:,.0f} ns"),
        ("in the sealer", f"{cost.seal_ns:,.0f} ns an event"),
        ("at ingest", f"{cost.ingest_ns:,.0f} ns an event"),
        ("bytes an event", f"{sizes}, {others}"),
        ("hook that is off", f"{cost.off_ns:+.0f} ns a call"),
        ("hook taken out", f"{cost.detached_ns:+.0f} ns a call"),
    ]
    print_table(("", ""), rows)


def _record_engine(python: str, rounds: int, format: Format) -> None:
    from hkvtool.bench.vllm_costs import LOADS, vllm_cost

    with progress("measuring", None):
        found = vllm_cost(python, rounds)
    if format is Format.JSON:
        print_json({**dataclasses.asdict(found), "share": found.share, "shares": found.shares})
        return
    for load in (found.scheduler, found.engine):
        print_line(f"{LOADS[load.load]}: {load.steps} steps, {load.rounds} rounds")
        print_table(
            ["", "us a step", "more than off", "nine in ten", "of off"],
            [
                [name, f"{arm.us_a_step:,.1f}", *(
                    ("", "", "") if name == "off" else
                    (f"{arm.more_us:+.1f}", f"{arm.more_low:+.1f} to {arm.more_high:+.1f}",
                     f"{100 * arm.share:+.2f} %")
                )]
                for name, arm in load.arms.items()
            ],
        )  # fmt: skip
        told = f"{load.events_a_step:.1f} events a step of {load.ring_bytes:.0f} bytes in the ring"
        print_line(f"{told}\n")
    each = found.scheduler.ns_an_event
    print_line(f"an event with its hook, in the scheduler: {each:,.0f} ns")
    for arm, share in found.shares.items():
        print_line(
            f"{arm}: the events of a step of the engine, at the scheduler's price: "
            f"{100 * share:.2f} % of the step"
        )


@command.command("engine")
def engine(
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="The model's cache geometry.")
    ] = "deepseek-v4",
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="How many of the shipped workload.")
    ] = 30,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Run the reference engine without and with recording, and count its captured launches."""
    from hkvtool.bench.engine import engine_costs
    from hkvtool.cli.run import SHIPPED, workload_path
    from hkvtool.engine.workload import read_workload

    found = engine_costs(preset, list(read_workload(workload_path(SHIPPED), requests)))
    if format is Format.JSON:
        print_json([dataclasses.asdict(cost) for cost in found])
        return
    base = found[0]
    print_table(
        ["", "wall s", "CPU s", "of unrecorded", "events", "steps", "graph launches", "bypasses"],
        [
            [c.name, f"{c.wall:.2f}", f"{c.cpu:.2f}", f"{c.cpu / max(base.cpu, 1e-9):.3f}",
             c.events, c.steps, c.graph_launches, c.graph_bypasses]
            for c in found
        ],
    )  # fmt: skip


@command.command("explore")
def explore(
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of each way.")] = 30,
    budget: Annotated[
        int, typer.Option("--budget", min=1, help="Orders that one certificate may take.")
    ] = 20_000,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Count schedules to the first failure by way of choosing them, and what sleep sets save.

    The random walk and, where it is installed, hypothesis are the baselines. Windows are planted
    bugs and the race cases that come with hkvtool.
    """
    from hkvtool.bench.explore import CAP, hunts, planted, reduction
    from hkvtool.bench.explore_cases import race_windows

    windows = {
        f"depth {depth}, {4 * size} ops": planted(depth, size, 0)
        for depth in (2, 3) for size in (15, 60)
    }  # fmt: skip
    found = list(hunts({**windows, **race_windows()}, seeds))
    saved = [
        reduction(*shape, 0, budget) for shape in ((3, 4, 4), (3, 6, 16), (4, 4, 16), (4, 6, 64))
    ]
    if format is Format.JSON:
        print_json({
            "cap": CAP, "hunts": [dataclasses.asdict(hunt) for hunt in found],
            "reductions": [dataclasses.asdict(one) for one in saved],
        })  # fmt: skip
        return
    ways = list(found[0].runs)
    print_table(
        ["median runs to a failure", "ops", *ways],
        [[h.name, h.ops, *(_first(h.runs[way], CAP) for way in ways)] for h in found],
    )
    print_line()
    print_table(
        ["actors x ops, blocks", "interleavings", "orders run", "blocked", "of all", ""],
        [
            [f"{r.actors} x {r.length}, {r.blocks}", f"{r.interleavings:,}", f"{r.orders:,}",
             f"{r.blocked:,}", f"1/{r.interleavings / max(1, r.orders + r.blocked):,.0f}",
             "complete" if r.complete else "cut short"]
            for r in saved
        ],
    )  # fmt: skip


def _first(runs: list[int | None], cap: int) -> str:
    """Median, and how many of the seeds found it where not all did."""
    hits = [run for run in runs if run is not None]
    middle = median([run if run is not None else cap + 1 for run in runs])
    text = f"{middle:.0f}" if middle <= cap else f"> {cap:,}"
    return text if len(hits) == len(runs) else f"{text} ({len(hits)} of {len(runs)})"


@command.command("tui")
def tui(
    events: Annotated[
        int, typer.Option("--events", min=1_000, max=100_000_000, help="Length of the trace.")
    ] = 1_000_000,
    blocks: Annotated[
        int, typer.Option("--blocks", min=1_000, max=1 << 24, help="Blocks of its pool.")
    ] = 1 << 20,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FILE", help="Keep the trace there, or use it again."),
    ] = None,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Look around in a synthetic trace without a terminal: paint, step, seek, zoom.

    Each is timed until the screen has settled; milliseconds of CPU time count every thread.
    """
    from hkvtool.bench.tui import tui_costs

    with progress("writing the trace", events) as told:
        found = tui_costs(events, blocks, keep, told)
    if format is Format.JSON:
        print_json(found.facts())
        return
    print_table(
        ["", "CPU ms, median", "at most", "wall ms, median", "times"],
        [
            [c.what, f"{median(c.cpu):.1f}", f"{max(c.cpu):.1f}", f"{median(c.wall):.1f}",
             len(c.cpu)]
            for c in found.costs
        ],
    )  # fmt: skip
    print_line()
    rows: list[tuple[str, str]] = [
        ("trace", f"{found.events:,} events, {found.blocks:,} blocks"),
        ("peak memory", f"{found.peak_mib:,} MiB"),
    ]
    print_table(("", ""), rows)


@command.command("scaling")
def scaling(
    events: Annotated[
        int, typer.Option("--events", min=200_000, help="Events of all traces together.")
    ] = 20_000_000,
    parts: Annotated[int, typer.Option("--parts", min=2, help="In so many traces.")] = 8,
    workers: Annotated[int, typer.Option("--workers", min=2, help="Processes, against one.")] = 2,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Check long traces in one process and in several, and say how much sooner those are done.

    Wall time is as the machine was; CPU time says what the processes cost each other.
    """
    from dataclasses import asdict

    from hkvtool.bench.fleet_workers import scaling as measured

    with progress("measuring", events // parts) as told:
        found = measured(events, parts, (1, workers), told)
    if format is Format.JSON:
        print_json([asdict(one) for one in found])
        return
    one = found[0]
    print_line(f"{one.events:,} events in {one.instances} traces")
    print_table(
        ["processes", "wall s", "sooner", "CPU s", "CPU ns an event", "CPU of one", "load"],
        [
            [f"{f.workers}", f"{f.wall:,.1f}", f"{one.wall / f.wall:.2f} x", f"{f.cpu:,.1f}",
             f"{1e9 * f.cpu / f.events:,.0f}", f"{f.cpu / one.cpu:.2f} x", f"{f.load:.1f}"]
            for f in found
        ],
    )  # fmt: skip


@command.command("fleet")
def fleet(
    instances: Annotated[
        int, typer.Option("--instances", min=1, max=1000, help="Engines that are measured.")
    ] = 2,
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="How many of the shipped workload each.")
    ] = 30,
    events: Annotated[
        int, typer.Option("--events", min=60_000, help="Length of the long trace.")
    ] = 1_000_000,
    hosts: Annotated[int, typer.Option("--hosts", min=1, help="Hosts of the projection.")] = 1000,
    engines: Annotated[int, typer.Option("--engines", min=1, help="Engines of a host.")] = 8,
    steps: Annotated[
        float, typer.Option("--steps", min=0.1, help="Steps an engine takes in a second.")
    ] = 30.0,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Record, ingest and check some reference engines, and say what many hosts would come to.

    The projection multiplies what an event costs here. It says nothing of a network.
    """
    from hkvtool.bench.fleet import fleet_costs
    from hkvtool.cli.run import SHIPPED, workload_path
    from hkvtool.engine.workload import read_workload

    arrivals = list(read_workload(workload_path(SHIPPED), requests))
    with progress("measuring", events) as told:
        found = fleet_costs(arrivals, instances, events, told)
    projected = [found.projected(count, engines, steps) for count in sorted({1, hosts})]
    if format is Format.JSON:
        print_json({**found.facts(), "projected": projected})
        return
    measured = f"{found.instances} engines, {found.events:,} events"
    costs = f"{found.ingest_ns:,.0f} to ingest, {found.rules_ns:,.0f} by the rules"
    rows = [
        ("measured", f"{measured}, {found.events_a_step:.1f} a step"),
        ("bytes an event", f"{found.parquet_bytes:.1f}"),
        ("CPU ns an event", f"{costs}, {found.screen_ns:,.0f} by the screen"),
    ]
    print_table(("", ""), rows)
    print_line()
    print_table(
        ["hosts", "engines", "events / s", "GB a day", "MB / s a host", "cores: ingest",
         "screen", "rules"],
        [
            [f"{p['hosts']:,.0f}", f"{p['engines']:,.0f}", f"{p['events_per_second']:,.0f}",
             f"{p['bytes_per_day'] / 1e9:,.0f}", f"{p['bytes_per_second_of_a_host'] / 1e6:.3f}",
             f"{p['cores_to_ingest']:,.2f}", f"{p['cores_to_screen']:,.2f}",
             f"{p['cores_for_rules']:,.2f}"]
            for p in projected
        ],
    )  # fmt: skip
