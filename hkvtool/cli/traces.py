"""What the commands that read a trace have in common: their arguments, and how they print."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.progress import ASKED, PREFIX
from hkvtool.model.text import event_line, shown

if TYPE_CHECKING:
    from hkvtool.store import Trace

TraceArgument = Annotated[
    str,
    typer.Argument(
        metavar="TRACE",
        help="A .duckdb trace, a .jsonl file (gzipped or not), an .hkv recording, or `-` (stdin).",
        show_default=False,
    ),
]

_TOLD_EVERY = 4096
"""Events between two moves of a progress bar."""

_LINE_EVERY = 0.25
"""Seconds between two lines about progress."""

LIMIT = 1000
"""Rows that a person is shown where no limit is given."""


class Format(str, Enum):
    """How to print facts."""

    TABLE = "table"
    JSON = "json"


def place(trace: Trace, text: str) -> tuple[str, int]:
    """The pool and block of ``POOL:ID``; the pool may be left out where there is one."""
    pools = {str(e["pool"]): e for e in trace.events(kinds={"pool"}) if e.problem is None}
    pool, colon, number = text.rpartition(":")
    try:
        block = int(number)
    except ValueError:
        raise HkvError(f"{text!r} names no block", hint="write POOL:ID, e.g. gpu:7") from None
    known = ", ".join(map(shown, pools)) or "none"
    if not colon:
        if len(pools) != 1:
            raise HkvError(f"{text!r} does not say which pool", hint=f"pools here: {known}")
        pool = next(iter(pools))
    if pool not in pools:
        raise HkvError(f"there is no pool {pool!r}", hint=f"pools here: {known}")
    return pool, block


class EventLines:
    """Prints events one a line: position, milliseconds since the first event, the event."""

    def __init__(self, trace: Trace) -> None:
        self._start: int | None = trace.meta.get("first_ts")
        self._pos = max(3, len(str(trace.meta.get("last_pos", 0))))
        self._ms = 0
        if self._start is not None:
            self._ms = max(2, len(self._time(trace.meta["last_ts"])))

    def heading(self) -> None:
        """The names of the columns."""
        clock = [f"{'ms':>{self._ms}}"] if self._ms else []
        print_line("  ".join([f"{'pos':>{self._pos}}", *clock, "event"]))

    def print(self, event: Event) -> None:
        """One event."""
        columns = [f"{event.pos:>{self._pos}}"]
        if self._ms:
            ts = event.get("ts")
            columns.append(f"{self._time(ts) if isinstance(ts, int) else '':>{self._ms}}")
        print_line("  ".join([*columns, event_line(event)]))

    def _time(self, ts: int) -> str:
        return f"{(ts - (self._start or 0)) / 1e6:.3f}"


def print_events(trace: Trace, events: Iterable[Event], *, limit: int) -> int:
    """Print events under a heading; says on stderr where it stops. Returns how many there were."""
    lines = EventLines(trace)
    count = 0
    for event in events:
        if limit and count == limit:
            say_cut(limit, "events")
            break
        if not count:
            lines.heading()
        lines.print(event)
        count += 1
    return count


def print_line(text: str = "") -> None:
    """One line on stdout; on a terminal it is cut rather than wrapped."""
    width = _screen()
    if width and len(text) > width:
        text = text[: width - 1] + "…"
    print(text.rstrip())


def _screen() -> int:
    """Columns of the terminal that stdout is, 0 where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def for_screen(text: str) -> str:
    """Data as it is, but shown where stdout is a terminal, which would act on what is in it."""
    return shown(text) if sys.stdout.isatty() else text


def counted(number: int, noun: str) -> str:
    """A number and its noun: 1 event, 2,000 events."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def say_cut(limit: int, what: str) -> None:
    """Say that there is more than was shown."""
    print(f"the first {limit:,} {what} are shown; --limit 0 shows all", file=sys.stderr)


def print_json(value: Any) -> None:
    """Facts as JSON; in plain ASCII, so that nothing in them reaches a terminal as it is."""
    print(json.dumps(value, indent=2))


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[Any]], *, tall: bool = False
) -> None:
    """Rows in aligned columns, indented; numbers to the right, None as nothing. Without any
    heading text the headings are left out. With `tall`, what is too wide for the screen is
    printed a value a line."""
    texts = [["" if value is None else shown(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    if tall and 0 < _screen() < sum(widths) + 2 * len(widths):
        _print_tall(headings, texts)
        return
    right = [all(map(_NUMBER.fullmatch, column)) for column in zip(*texts, strict=True)]
    right = right or [False] * len(headings)
    for row in [headings, *texts] if any(headings) else texts:
        places = zip(row, widths, right, strict=True)
        print_line("  " + "  ".join(f"{t:>{w}}" if r else f"{t:<{w}}" for t, w, r in places))


def _print_tall(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    width = max(map(len, headings))
    for number, row in enumerate(rows, 1):
        print_line(f"row {number}")
        for heading, text in zip(headings, row, strict=True):
            if text:
                print_line(f"  {heading:<{width}}  {text}")


_NUMBER = re.compile(r"-?[0-9,.]*")


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr while something long runs, where stderr is a terminal; lines for a program
    that asked for them; else None."""
    if not sys.stderr.isatty():
        yield _in_lines(what, total) if ASKED in os.environ else None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from hkvtool.cli.console import console

    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(shown(what), total=total)
        yield lambda done: bar.update(task, completed=done)


def _in_lines(what: str, total: int | None) -> Callable[[int], None]:
    last = 0.0

    def told(done: int) -> None:
        nonlocal last
        if monotonic() - last >= _LINE_EVERY:
            last = monotonic()
            share = f" {100 * done // max(1, total)} %" if total else f" {done:,}"
            print(f"{PREFIX}{shown(what)}{share}", file=sys.stderr, flush=True)

    return told


@contextmanager
def watched_events(trace: Trace, what: str, until: int | None = None) -> Iterator[Iterator[Event]]:
    """Every event of a trace up to a position, with a bar on stderr while they go by."""
    total = trace.count if sys.stderr.isatty() or ASKED in os.environ else None
    if total is not None and until is not None:
        total = min(total, until)
    with progress(what, total) as told:
        yield _told(trace.events(until=until), told)


def _told(events: Iterable[Event], told: Callable[[int], None] | None) -> Iterator[Event]:
    for number, event in enumerate(events):
        if told is not None and number % _TOLD_EVERY == 0:
            told(number)
        yield event
