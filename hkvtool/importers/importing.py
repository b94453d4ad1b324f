"""Other people's formats into a trace: which one a file is, and writing it down."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from hkvtool.importers.foreign import Importer, head_of
from hkvtool.importers.lines import Line, Names
from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.jsonl import write_line
from hkvtool.store.destination import Destination
from hkvtool.store.writer import TraceWriter

_MODULES = ("captured", "dynamo", "lmcache", "trtllm", "canary", "torch_memory", "cache_files")


def importers() -> dict[str, Importer]:
    """Every importer by its name, in the order in which they are asked."""
    found = [import_module(f"hkvtool.importers.{name}").IMPORTER for name in _MODULES]
    return {importer.name: importer for importer in found}


def sniffed(path: Path) -> Importer | None:
    """The importer of a file or folder; None where none knows it. Raises TraceError."""
    head = head_of(path)
    return next((i for i in importers().values() if i.sniff(path, head)), None)


def named(name: str) -> Importer:
    """The importer of a name. Raises HkvError."""
    known = importers()
    if name not in known:
        raise HkvError(f"there is no format {name!r}", hint=f"one of {', '.join(known)}")
    return known[name]


def import_foreign(
    importer: Importer, source: Path, output: Path, names: Names, *, force: bool = False
) -> tuple[int, list[str]]:
    """Write the trace of one file, as DuckDB or as JSON lines by the output's name. How many events
    there are, and what could not be read. Raises HkvError; then nothing is left behind."""
    problems: list[str] = []
    lines = _watched(
        importer.read(source, names), problems, f"{source} holds nothing of {importer.what}"
    )
    if output.suffix in (".jsonl", ".json"):
        with Destination(output, force=force) as place, place.path.open("wb") as out:
            count = 0
            for event in _events(lines):
                out.write(write_line(event).encode() + b"\n")
                count += 1
        return count, problems
    with TraceWriter(output, force=force) as writer:
        writer.write(_events(lines))
        writer.end_source(os.fspath(source))
    return writer.summary.events, problems


def _events(lines: Iterable[Line]) -> Iterator[Event]:
    for pos, line in enumerate(lines, 1):
        yield Event.of(pos, line)


def _watched(lines: Iterable[Line], problems: list[str], otherwise: str) -> Iterator[Line]:
    """Lines, and what they tell that could not be read. Raises TraceError where that is all."""
    whole = False
    for line in lines:
        whole = whole or line["ev"] not in ("trace", "dropped")
        if line["ev"] == "dropped":
            problems.append(str(line.get("reason", "")))
        for each in line.get("misnamed", ()):
            problems.append(f"misnamed: {each}")
        yield line
    if not whole:
        where, _, problem = problems[0].partition(": ") if problems else ("", "", "")
        raise TraceError(
            f"{otherwise}: {problem or 'there is nothing in it'}", where=where,
            hint="`hkvtool import --help` lists what can be read",
        )  # fmt: skip
