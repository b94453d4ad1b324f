"""`hkvtool report`: one HTML file that can be sent."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import TraceArgument, counted, watched_events
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.analyzers.context import Context
    from hkvtool.analyzers.lookups import Lookups
    from hkvtool.report.heat import Heat


def command(
    trace: TraceArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="Where to, .html.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a report: findings with what led to them, the two ratios, the blocks over time.

    One file that needs no network. Needs the extra `report`: pip install 'hkvtool[report]'.
    """
    for name in ("altair", "vl_convert", "jinja2"):
        if find_spec(name) is None:
            raise HkvError(
                f"a report needs {name}, which is not installed",
                hint="pip install 'hkvtool[report]'",
            )
    from hkvtool.analyzers import check
    from hkvtool.analyzers.lookups import Lookups
    from hkvtool.report.checked import Checked, positions
    from hkvtool.report.heat import Heat
    from hkvtool.report.html import Told, html_report
    from hkvtool.store import open_trace
    from hkvtool.store.destination import Destination
    from hkvtool.store.exporting import writing
    from hkvtool.store.opening import STDIN, refuse_own_output

    if trace == STDIN:
        raise HkvError("a report reads its trace twice", hint="`hkvtool import` makes a file of it")
    refuse_own_output(trace, output, "report")
    # That the report could not be written in the end must not turn out after the check.
    Destination(output, force=force)
    seen: list[tuple[Lookups, Heat]] = []
    with open_trace(trace) as opened:
        clock = opened.meta.get("first_ts") is not None
        first, last = ("first_ts", "last_ts") if clock else ("first_pos", "last_pos")
        start, end = int(opened.meta.get(first) or 0), int(opened.meta.get(last) or 0)

        def watch(ctx: Context) -> Lookups:
            seen.append((Lookups(ctx), Heat(ctx, start, end)))
            return seen[0][0]

        with watched_events(opened, f"checking {trace}") as events:
            report = check(events, observers=[watch, lambda ctx: seen[0][1]])
        named = {pos for finding in report.findings for pos in positions(finding)}
        told = {e.pos: e for e in opened.events() if e.pos in named} if named else {}
        groups = [e.data for e in opened.events(kinds={"group"}) if e.problem is None]
        meta = {"engine": next((e.get("engine") for e in opened.events(kinds={"trace"})), None)}
    lookups, heat = seen[0]
    text = html_report(Told(
        Checked(trace, report, told), meta, groups, lookups.settled, heat.as_json(), heat, start,
        clock,
    ))  # fmt: skip
    with writing(output, force=force) as stream:
        stream.write(text.encode())
    roots = sum(not f.cause for f in report.findings)
    size = len(text.encode()) / 1e6
    print(f"{shown(output)}: {counted(roots, 'finding')}, {size:.1f} MB", file=sys.stderr)
