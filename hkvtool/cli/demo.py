"""`hkvtool demo`: a guided minute over three real bugs and a production workload."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.model.errors import HkvError
from hkvtool.model.rules import Severity
from hkvtool.model.shipped import shipped

if TYPE_CHECKING:
    from rich.console import Console

    from hkvtool.model.findings import Report

BUGS = ("A01", "A33", "B10")
"""A hit that is too deep for one group, a tail that was not kept, and a race with a store."""

_TEACHES = {
    "A01": "Two groups of layers keep the same history; each was asked on its own how far it "
    "reaches, and the deeper answer won.",
    "A33": "Compressed entries are sealed from uncompressed tokens; when drafts are rejected, the "
    "tokens behind the last entry must still be there.",
    "B10": "Nothing went wrong in this recording: the copy was done in time. Only the edge that "
    "would have made sure of it is missing, and hkvtool says which one.",
}


def command(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Where the traces are put.")
    ] = Path("hkvtool-demo"),
) -> None:
    """Check three public KV-cache bugs, with and without their fix, and a production workload."""
    from hkvtool.cli.console import console
    from hkvtool.cli.demo_workload import PRESET, REQUESTS, show_workload

    started = time.monotonic()
    screen = console()
    screen.width = min(screen.width, 100)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise HkvError(f"cannot make {out}: {e.strerror}", hint="name another with --out") from e
    _say(
        screen,
        "An engine with hybrid attention keeps one history in several forms: compressed entries, "
        "the open tail, a sliding window, indexer rows, recurrent states, copies on disk. A hash "
        "that matches is not yet a place to resume from. These are three public bugs, recorded as "
        "the engine would have, and checked.",
    )
    for number, name in enumerate(BUGS, 1):
        _bug(screen, number, name, out)
    screen.print()
    screen.rule("A production workload, with and without validation", align="left")
    screen.print()
    _say(
        screen,
        f"The first {REQUESTS} requests of a production trace, through the reference engine with "
        f"the cache geometry of {PRESET}, recorded and checked. Its kernels stamp every row they "
        "write and verify every row they read, so engine, bytes and check are three witnesses. "
        "Then once more, taking a hash for a state as many engines do.",
    )
    screen.print()
    show_workload(screen, out)
    _next(screen, out, time.monotonic() - started)


def _bug(screen: Console, number: int, name: str, out: Path) -> None:
    case = json.loads(shipped("cases", name, "case.json").read_text(encoding="utf-8"))
    screen.print()
    screen.rule(f"{number} of {len(BUGS)}: {case['title']}", align="left")
    screen.print(f"{case['source']}", style="dim")
    screen.print()
    _say(screen, case["root_cause"])
    screen.print()
    bad = _checked(name, "bad", out)
    _show(screen, bad, out / f"{name}-bad.duckdb")
    screen.print()
    good = _checked(name, "good", out)
    _say(screen, _fixed(good), "green" if not good.count(Severity.ERROR) else "red")
    _say(screen, _TEACHES[name])


def _fixed(good: Report) -> str:
    """What the check says of the same scenario with the fix."""
    errors, ratios = good.count(Severity.ERROR), good.ratios
    said = f"With the fix: {errors or 'no'} error{'s' * (errors != 1)}"
    if ratios.matched:
        said += f"; {ratios.matched:,} tokens matched, {ratios.resumable:,} of them resumable"
    return said + "."


def _checked(name: str, arm: str, out: Path) -> Report:
    """Import one arm of a case into DuckDB and check what was stored."""
    from hkvtool.analyzers import check
    from hkvtool.store import open_trace
    from hkvtool.store.importing import import_traces

    target = out / f"{name}-{arm}.duckdb"
    source = shipped("cases", name, f"{arm}.jsonl")
    import_traces([str(source)], target, force=True)
    with open_trace(target) as trace:
        return check(trace.events())


def _show(screen: Console, report: Report, path: Path) -> None:
    """The root findings, as `hkvtool check` prints them."""
    from hkvtool.report.table import positions, report_lines
    from hkvtool.store import open_trace

    with open_trace(path) as trace:
        wanted = positions([report])
        events = {e.pos: e for e in trace.events() if e.pos in wanted}
    report.not_evaluable = {}
    lines = list(report_lines(report, events, screen.width))
    screen.print(f"$ hkvtool check {path}", style="bold")
    for line in lines[1:]:
        screen.print(line.text, style=line.style or None, soft_wrap=True)


def _next(screen: Console, out: Path, seconds: float) -> None:
    screen.print()
    screen.rule("What to try next", align="left")
    first, last = out / f"{BUGS[0]}-bad.duckdb", out / f"{BUGS[-1]}-bad.duckdb"
    rows: list[tuple[str, Any]] = [
        (f"hkvtool events {first} --req r2", "what one request did"),
        (f"hkvtool block {first} gpu:13 --at 38", "one block: its life, and its state then"),
        (f"hkvtool tui {out / 'workload-trust-hash.duckdb'}", "every block at any moment"),
        ("hkvtool rules HKV302", "a rule, with the smallest trace that breaks it"),
        (f'hkvtool sql {first} "SELECT * FROM hits"', "anything else, in SQL"),
        (f"hkvtool check --format json {last}", "the same for a program"),
        (f"hkvtool check {out / 'workload-trust-hash.duckdb'}", "why those reads were wrong"),
        ("hkvtool run --preset gemma3 --requests 100 -o run.duckdb", "another model, and more"),
        ("hkvtool import yours.jsonl", "a trace of your own"),
    ]
    width = max(len(command) for command, _ in rows)
    for command, what in rows:
        screen.print(f"  {command:<{width}}  {what}", soft_wrap=True)
    screen.print()
    screen.print(f"{len(BUGS)} bugs, {2 * len(BUGS) + 2} traces, {seconds:.1f} s", style="dim")


def _say(screen: Console, text: str, style: str | None = None) -> None:
    for line in textwrap.wrap(text, screen.width):
        screen.print(line, style=style)
