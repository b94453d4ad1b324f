"""`hkvtool block`: the history of one block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import LIMIT, EventLines, TraceArgument, place, print_line, say_cut
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from hkvtool.store import Trace


def command(
    trace: TraceArgument,
    block: Annotated[str, typer.Argument(metavar="POOL:ID", help="E.g. gpu:7.")],
    at: Annotated[
        int | None, typer.Option("--at", metavar="POS", help="Up to this position.")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Show so many events, 0 for all.")] = LIMIT,
) -> None:
    """Tell the history of one block, generation by generation."""
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        pool, number = place(opened, block)
        _print_history(opened, pool, number, at, limit)


def _print_history(trace: Trace, pool: str, block: int, at: int | None, limit: int) -> None:
    from hkvtool.store.history import history

    lines = EventLines(trace)
    generation: int | None = -1
    for count, moment in enumerate(history(trace, pool, block, at)):
        if limit and count == limit:
            say_cut(limit, "events")
            return
        if moment.generation != generation:
            if count:
                print_line()
            generation = moment.generation
            since = "before any alloc" if generation is None else f"generation {generation}"
            print_line(f"{shown(pool)}:{block}  {since}")
        lines.print(moment.event)
    if generation == -1:
        until = "" if at is None else f" up to position {at}"
        raise HkvError(f"no event names block {pool}:{block}{until}")
