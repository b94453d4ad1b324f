"""`hkvtool tui`: the terminal application."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from hkvtool.cli.console import at_a_terminal
from hkvtool.cli.traces import progress
from hkvtool.model.errors import Exit, HkvError

VIEWS = ("map", "block", "hit", "findings", "requests", "transfers", "ratios", "events")


def command(
    trace: Annotated[
        str,
        typer.Argument(
            metavar="TRACE",
            help="A .duckdb trace, a .jsonl file (gzipped or not), or an .hkv recording.",
            show_default=False,
        ),
    ],
    at: Annotated[
        int | None, typer.Option("--at", metavar="POS", help="Open at this position.")
    ] = None,
    view: Annotated[
        str | None, typer.Option("--view", metavar="NAME", help=f"Open on {', '.join(VIEWS)}.")
    ] = None,
    check: Annotated[
        bool | None,
        typer.Option("--check/--no-check", help="Run the rules at once; else if it is short."),
    ] = None,
    screenshot: Annotated[
        Path | None,
        typer.Option("--screenshot", metavar="FILE.svg", help="Write a picture and leave."),
    ] = None,
    size: Annotated[
        str, typer.Option("--size", metavar="COLUMNSxLINES", help="Of the picture.")
    ] = "120x40",
) -> int:
    """Look at every block of a trace at any moment.

    Opens on the most severe finding, else on the map of blocks. `?` in it says what is there and
    what the keys do.
    """
    if view is not None and view not in VIEWS:
        raise HkvError(f"there is no view {view!r}", hint=f"one of {', '.join(VIEWS)}")
    if trace == "-":
        raise HkvError(
            "the keyboard comes through standard input, and so a trace cannot",
            hint="import it first: `hkvtool import - -o trace.duckdb`",
        )
    if screenshot is None and not at_a_terminal():
        raise HkvError(
            "this is no terminal", hint="--screenshot FILE.svg writes a picture of the screen"
        )
    columns, lines = _size(size)
    if screenshot is not None:
        from hkvtool.store.opening import refuse_own_output

        refuse_own_output(trace, screenshot, "picture")
    from hkvtool.tui.opening import opened
    from hkvtool.tui.running import picture, run

    pass_on = {"name": Path(trace).name or trace, "start": at, "view": view, "check": check}
    with ExitStack() as stack:
        with progress(f"reading {trace}", None):
            session = stack.enter_context(opened(trace, check, wait=screenshot is None))
        if screenshot is not None:
            picture(session, screenshot, (columns, lines), **pass_on)
        else:
            return run(session, **pass_on)
    return Exit.OK


def _size(text: str) -> tuple[int, int]:
    columns, _, lines = text.lower().partition("x")
    if not (columns.isdecimal() and lines.isdecimal()):
        raise HkvError(f"{text!r} is no size", hint="write 120x40")
    found = int(columns), int(lines)
    if not (20 <= found[0] <= 500 and 8 <= found[1] <= 200):
        raise HkvError(f"{text} is too small or too large", hint="20x8 to 500x200")
    return found
