"""JSON lines, or Parquet that was exported, into a DuckDB trace."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl
from hkvtool.store.duck import DuckTrace
from hkvtool.store.lines import open_lines, stream_lines
from hkvtool.store.opening import (
    STDIN,
    head_of,
    head_of_stream,
    is_duckdb,
    is_parquet,
    refuse_own_output,
    refuse_stdin_twice,
    refuse_what_is_no_text,
    stdin,
)
from hkvtool.store.parquet import read_parquet
from hkvtool.store.summary import Summary
from hkvtool.store.writer import TraceWriter

Progress = Callable[[str, int], None]
"""Told a file and how many of its bytes have been read."""


def default_output(source: str) -> Path:
    """The trace beside the file that it is made from: `x.jsonl.gz` gives `x.duckdb`."""
    if source == STDIN:
        raise HkvError("standard input has no name", hint="say where to write with -o")
    path = Path(source)
    stem = path.name
    for ending in (".gz", ".jsonl", ".json", ".ndjson", ".parquet"):
        stem = stem.removesuffix(ending)
    return path.with_name((stem or path.name) + ".duckdb")


def import_traces(
    sources: Sequence[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Write the events of several files, parts of one recording in order, as one trace.

    The `pos` of a later part counts on from the last line of the one before. Memory stays
    bounded but for the names; on any failure nothing is left behind.
    """
    _check(sources, output)
    with TraceWriter(output, force=force) as writer:
        for source in sources:
            _import_one(writer, source, progress)
        if not writer.summary.events:
            raise TraceError(f"{', '.join(sources)}: there is no event in it")
    return writer.summary


def _check(sources: Sequence[str], output: str | os.PathLike[str]) -> None:
    """Refuse early what would be found out only after hours of reading."""
    refuse_stdin_twice(sources)
    for source in sources:
        head = None if source == STDIN else head_of(source)
        if head is None:
            continue
        if is_duckdb(head):
            # One that is no trace, or a damaged one, is told as such.
            DuckTrace(source).close()
            raise HkvError(
                f"{source} is a DuckDB trace already",
                hint=f"`hkvtool export {source}` turns it into JSON lines",
            )
        if not is_parquet(head):
            refuse_what_is_no_text(source, head)
        refuse_own_output(source, output, "trace")


def _import_one(writer: TraceWriter, source: str, progress: Progress | None) -> None:
    offset = writer.summary.last_pos or 0
    writer.write(_events(source, progress), offset=offset)
    writer.end_source(source)


def _events(source: str, progress: Progress | None) -> Iterator[Event]:
    head = None if source == STDIN else head_of(source)
    if head is None:
        with (
            nullcontext(stdin()) if source == STDIN else open(source, "rb") as pipe,
            stream_lines(source, pipe, head_of_stream(source, pipe)) as stream,
        ):
            yield from read_jsonl(stream)
    elif is_parquet(head):
        yield from read_parquet(source)
    else:
        told = (lambda read: progress(source, read)) if progress else None
        with open_lines(source, progress=told) as stream:
            yield from read_jsonl(stream)
