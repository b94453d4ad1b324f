"""`hkvtool events`: the events of a trace, filtered."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator
from enum import Enum
from typing import Annotated

import typer

from hkvtool.cli.traces import LIMIT, TraceArgument, for_screen, place, print_events, say_cut
from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import EVENTS
from hkvtool.model.jsonl import write_line
from hkvtool.model.text import shown


class Format(str, Enum):
    """How to print."""

    TABLE = "table"
    JSONL = "jsonl"


def command(
    trace: TraceArgument,
    req: Annotated[
        str | None, typer.Option(help="Only what names this request, or a step that carries it.")
    ] = None,
    block: Annotated[
        str | None, typer.Option(metavar="POOL:ID", help="Only what names this block.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(help="Only this kind of event; `?` for malformed ones. Can be repeated."),
    ] = None,
    since: Annotated[int | None, typer.Option(metavar="POS", help="From this position on.")] = None,
    until: Annotated[
        int | None, typer.Option(metavar="POS", help="Up to this position, included.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, help=f"Show so many, 0 for all ({LIMIT} in a table, else all)."),
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the events of a trace that fit every condition given.

    Times are milliseconds since the first event. With --format jsonl the lines are the events as
    they were written.
    """
    from hkvtool.store import open_trace

    with open_trace(trace) as opened:
        found = opened.events(
            since, until, req, set(kind) if kind else None, place(opened, block) if block else None
        )
        if format is Format.JSONL:
            count = _print_lines(found, limit or 0)
        else:
            count = print_events(opened, found, limit=LIMIT if limit is None else limit)
    if not count:
        print(f"no event fits{_meant(kind or [])}", file=sys.stderr)


def _print_lines(events: Iterator[Event], limit: int) -> int:
    count = 0
    for event in events:
        if limit and count == limit:
            say_cut(limit, "events")
            break
        print(_line(event))
        count += 1
    return count


def _line(event: Event) -> str:
    """The event as JSON in plain ASCII; what is no JSON as it was, unless it went to a screen."""
    if event.ev == MALFORMED:
        return for_screen(write_line(event))
    return json.dumps(dict(event.data), separators=(",", ":"))


def _meant(kinds: list[str]) -> str:
    for kind in kinds:
        if kind not in EVENTS and kind != MALFORMED:
            near = difflib.get_close_matches(kind, EVENTS, n=1)
            also = f"; did you mean {near[0]!r}?" if near else ""
            return f"; {shown(kind)!r} is no kind of event{also}"
    return ""
