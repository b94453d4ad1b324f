"""`hkvtool ratios`: match and resumable ratio, and what cost the difference."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import Format, TraceArgument, print_json, watched_events

if TYPE_CHECKING:
    from hkvtool.analyzers.context import Context
    from hkvtool.analyzers.lifetimes import Lifetimes
    from hkvtool.analyzers.lookups import Lookups


class By(str, Enum):
    """What to tell the ratios by."""

    TIME = "time"
    GROUP = "group"
    TENANT = "tenant"
    REQUEST = "request"
    RULE = "rule"
    BLOCKS = "blocks"


def command(
    trace: TraceArgument,
    by: Annotated[
        list[By] | None, typer.Option("--by", help="Just this part; several are shown in order.")
    ] = None,
    bins: Annotated[int, typer.Option("--bins", min=1, max=1000, help="Stretches of time.")] = 10,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """Say what lookups asked for, what matched, and what of it could be resumed.

    Over time, by group, tenant, request and rule. Beside it what blocks went through: how long
    they were held and then kept, how many there were in each form, how much was on its way at once
    against the caps.
    """
    from hkvtool.analyzers import check
    from hkvtool.analyzers.lifetimes import Lifetimes
    from hkvtool.analyzers.lookups import Lookups
    from hkvtool.report.ratios import PARTS, Account, account_lines
    from hkvtool.store import open_trace

    seen: list[tuple[Lookups, Lifetimes]] = []

    def watch(ctx: Context) -> Lookups:
        seen.append((Lookups(ctx), Lifetimes(ctx)))
        return seen[0][0]

    with open_trace(trace) as opened:
        with watched_events(opened, f"checking {trace}") as events:
            check(events, observers=[watch, lambda ctx: seen[0][1]])
        clock = "first_ts" in opened.meta
    lookups, lifetimes = seen[0]
    account = Account(trace, lookups.settled, lifetimes.as_json(), clock, bins)
    if format is Format.JSON:
        print_json(account.as_json())
        return
    from hkvtool.cli.console import console

    out = console()
    parts = [one.value for one in by] if by else PARTS
    for line in account_lines(account, out.width, parts):
        out.print(line.text, style=line.style or None, soft_wrap=True)
