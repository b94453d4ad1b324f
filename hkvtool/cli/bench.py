"""`hkvtool bench`: what things cost on this machine, each beside a baseline of the same run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from hkvtool.cli.traces import Format, print_json, print_table, progress

command = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Measure what recording and folding cost here.",
)

_FORMAT = Annotated[Format, typer.Option("--format", help="How to print the figures.")]


@command.command("fold")
def fold(
    events: Annotated[
        int, typer.Option("--events", min=1_000, max=100_000_000, help="Length of the trace.")
    ] = 1_000_000,
    format: _FORMAT = Format.TABLE,
) -> None:
    """Fold a synthetic trace, compiled and plain, beside reading it alone."""
    from hkvtool.bench.fold import fold_costs

    with progress("writing the trace", events) as told:
        ways = fold_costs(events, told=told)
    if format is Format.JSON:
        print_json([dataclasses.asdict(way) for way in ways])
        return
    base = ways[0]
    print_table(
        ["", "events", "wall s", "CPU s", "events / CPU s", "of reading"],
        [
            [w.name, w.events, f"{w.wall:.2f}", f"{w.cpu:.2f}", f"{w.rate:,.0f}",
             f"{w.rate / base.rate:.3f}"]
            for w in ways
        ],
    )  # fmt: skip


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
