"""`hkvtool export`: a trace in another format."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkvtool.cli.traces import TraceArgument, counted, for_screen, progress, watched_events
from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from hkvtool.model.event import Event
    from hkvtool.store import Trace


class Format(str, Enum):
    """What to write."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    PYTEST = "pytest"
    PERFETTO = "perfetto"


class Encoding(str, Enum):
    """How a perfetto file is written."""

    JSON = "json"
    PROTOBUF = "protobuf"


PACKETS = (".pftrace", ".perfetto-trace")
"""What files in Perfetto's own format are called."""


def command(
    trace: TraceArgument,
    format: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.JSONL,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Where to write; JSON lines go to stdout without it."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    most: Annotated[
        int, typer.Option("--most", min=1, help="Records that a perfetto file has at most.")
    ] = 2_000_000,
    encoding: Annotated[
        Encoding | None,
        typer.Option(
            "--encoding",
            help="Of a perfetto file; else protobuf where its name ends in .pftrace. Protobuf "
            "needs the extra `perfetto`.",
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private",
            help="JSON lines in which requests, clients, tenants and hashes are numbers.",
        ),
    ] = False,
    finding: Annotated[
        str | None,
        typer.Option(
            "--finding", metavar="F3", help="What a pytest test is about; else the first."
        ),
    ] = None,
) -> None:
    """Write a trace out as hkv/1 JSON lines, as Parquet, as a test, or for the Perfetto viewer.

    With --private they can be shared: who asked for what is not in them, nor notes, an engine's own
    words and the time of day; findings are the same. Names of pools, groups, lanes and the engine
    stay, and so do token counts and times between events.

    JSON lines stand on the line of their position. A name that ends in .gz is compressed.
    Parquet has one row an event, names in place of numbers; `import` reads it back. A test is one
    Python file that fails as long as the finding is there: minimise the trace first.
    """
    from hkvtool.store import open_trace
    from hkvtool.store.destination import Destination
    from hkvtool.store.exporting import export_jsonl, writing
    from hkvtool.store.opening import refuse_own_output
    from hkvtool.store.parquet import export_parquet

    if finding is not None and format is not Format.PYTEST:
        raise HkvError("--finding belongs to --format pytest")
    if private and format is not Format.JSONL:
        raise HkvError(
            "--private belongs to --format jsonl",
            hint=f"`hkvtool export` of what it wrote makes {format.value} of it",
        )
    if encoding is not None and format is not Format.PERFETTO:
        raise HkvError("--encoding belongs to --format perfetto")
    if output is not None and str(output) != "-":
        refuse_own_output(trace, output, "export")
        Destination(output, force=force)
    with open_trace(trace) as opened:
        if format is Format.PYTEST:
            _write_test(opened, trace, finding, output, force=force)
            return
        if output is None or str(output) == "-":
            if format in (Format.PARQUET, Format.PERFETTO):
                raise HkvError(f"{format.value} is written to a file", hint="name it with -o")
            _to_stdout(opened, private)
            return
        if format is Format.PERFETTO:
            packets = encoding is Encoding.PROTOBUF or (
                encoding is None and output.name.removesuffix(".gz").endswith(PACKETS)
            )
            count = _write_timeline(opened, output, most, packets=packets, force=force)
        else:
            with progress(f"writing {output.name}", opened.count) as told:
                if format is Format.PARQUET:
                    count = export_parquet(opened, output, force=force, progress=told)
                else:
                    with writing(output, force=force) as stream:
                        count = export_jsonl(opened, stream, told, _change(private))
    print(f"{shown(output)}: {counted(count, 'event')}", file=sys.stderr)


def _write_timeline(opened: Trace, output: Path, most: int, *, packets: bool, force: bool) -> int:
    from hkvtool.report.perfetto import export_perfetto
    from hkvtool.report.perfetto_json import JsonTimeline
    from hkvtool.report.perfetto_packets import PacketTimeline
    from hkvtool.store.exporting import writing

    with (
        writing(output, force=force) as stream,
        watched_events(opened, f"writing {output.name}") as events,
    ):
        out = PacketTimeline(stream) if packets else JsonTimeline(stream)
        report, left_out = export_perfetto(events, out, most=most)
    if left_out:
        print(
            f"{left_out:,} records beyond --most {most:,} were left out, from the end",
            file=sys.stderr,
        )
    count: int = report.trace["events"]
    return count


def _write_test(
    opened: Trace, trace: str, asked: str | None, output: Path | None, *, force: bool
) -> None:
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.cli.picking import root_finding
    from hkvtool.report.pytest_case import pytest_case
    from hkvtool.store.exporting import writing

    events = list(opened.events())
    text = pytest_case(events, root_finding(check_trace(opened, events=events), asked, trace))
    if output is None or str(output) == "-":
        print(text, end="")
        return
    with writing(output, force=force) as stream:
        stream.write(text.encode())
    print(f"{shown(output)}: a test of {counted(len(events), 'event')}", file=sys.stderr)


def _change(private: bool) -> Callable[[Event], Event] | None:
    from hkvtool.model.pseudonyms import Pseudonyms

    return Pseudonyms() if private else None


def _to_stdout(trace: Trace, private: bool) -> None:
    from hkvtool.model.jsonl import write_line
    from hkvtool.store.exporting import export_jsonl

    change = _change(private)
    if sys.stdout.isatty():
        for event in map(change, trace.events()) if change else trace.events():
            print(for_screen(write_line(event)))
    else:
        export_jsonl(trace, sys.stdout.buffer, change=change)
        sys.stdout.buffer.flush()
