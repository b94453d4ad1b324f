"""`hkvtool sql`: a trace asked in SQL."""

from __future__ import annotations

import csv
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from hkvtool.cli.traces import LIMIT, TraceArgument, for_screen, print_table, say_cut
from hkvtool.model.errors import HkvError, TraceError

if TYPE_CHECKING:
    from hkvtool.store.duck import DuckTrace

_FETCHED = 4096


class Format(str, Enum):
    """How to print rows."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def command(
    trace: TraceArgument,
    query: Annotated[str, typer.Argument(help="One SELECT, or DESCRIBE, SHOW TABLES, EXPLAIN.")],
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
    limit: Annotated[int, typer.Option(min=0, help="Show so many rows, 0 for all.")] = LIMIT,
) -> None:
    """Ask a trace in SQL (DuckDB's).

    Views: event_log, block_events, hash_events, hits, transfers, requests, pools, groups; their
    columns: "DESCRIBE hits". The column "group" needs its double quotes. A query reads this trace
    and nothing else: no other file, no extension, no setting.
    """
    with _opened(trace) as opened:
        print_answer(opened, query, format, limit)


class Tables(Protocol):
    """What a query can be put to."""

    def select(self, query: str) -> Any:
        """The result, as DuckDB gives it."""


def print_answer(tables: Tables, query: str, format: Format, limit: int) -> None:
    """Ask, and print the rows."""
    columns, rows = _ask(tables, query)
    shown_rows = _capped(rows, limit)
    if format is Format.JSON:
        _print_json(columns, shown_rows)
    elif format is Format.CSV:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(map(_csv, row) for row in shown_rows)
    else:
        cells = [[_text(value) for value in row] for row in shown_rows]
        print_table(columns, cells, tall=True)


@contextmanager
def _opened(path: str) -> Iterator[DuckTrace]:
    """The trace as DuckDB; JSON lines are imported into a file that goes away again."""
    from hkvtool.store import open_trace
    from hkvtool.store.duck import DuckTrace
    from hkvtool.store.scratch import Scratch
    from hkvtool.store.writer import TraceWriter

    with ExitStack() as stack:
        opened = stack.enter_context(open_trace(path))
        if not isinstance(opened, DuckTrace):
            folder = stack.enter_context(Scratch())
            copy = Path(folder) / "trace.duckdb"
            with TraceWriter(copy) as writer:
                writer.write(opened.events())
                writer.end_source(path)
            opened = stack.enter_context(open_trace(copy))
        assert isinstance(opened, DuckTrace)
        yield opened


def _ask(tables: Tables, query: str) -> tuple[list[str], Iterator[Sequence[Any]]]:
    import duckdb

    if any("\ud800" <= c <= "\udfff" for c in query):
        raise HkvError("the query is not in UTF-8", where=query)
    try:
        statements = duckdb.extract_statements(query)
        allowed = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
        if len(statements) != 1 or statements[0].type not in allowed:
            raise HkvError(
                "a query is one SELECT (or DESCRIBE, SHOW TABLES, SUMMARIZE, EXPLAIN)",
                hint="a trace is only read: nothing in it or beside it can be changed",
            )
        result = tables.select(query)
        return [column[0] for column in result.description], _rows(result, query)
    except duckdb.Error as e:
        raise _explained(e, query) from e


def _rows(result: Any, query: str) -> Iterator[Sequence[Any]]:
    import duckdb

    from hkvtool.store.signals import heard

    try:
        while rows := heard(lambda: result.fetchmany(_FETCHED), result.interrupt):
            yield from rows
    except duckdb.Error as e:
        raise _explained(e, query) from e


_BARE_GROUP = re.compile(r'(?<!["\w])group(?!["\w])(?!\s+by\b)', re.IGNORECASE)


_DAMAGE = re.compile("Corrupt database file|Could not read enough bytes")
"""What DuckDB says of blocks that it looks at no sooner than a query needs them."""


def _explained(error: Exception, query: str) -> HkvError:
    from hkvtool.store.connect import DAMAGED

    first, _, rest = str(error).strip().partition("\n")
    if _DAMAGE.search(first):
        return TraceError(f"what the query asks for cannot be read: {first}", hint=DAMAGED)
    hint = ""
    if "syntax error" in first and _BARE_GROUP.search(query):
        hint = 'group is a word of SQL: write the column as "group", in double quotes'
    elif "does not exist" in first or "not found" in first:
        near = (line.strip() for line in rest.splitlines())
        hint = next((line for line in near if line.startswith(("Did you mean", "Candidate"))), "")
        hint = hint or "`SHOW TABLES` and `DESCRIBE event_log` list what there is"
    elif "disabled by configuration" in first or "has been locked" in first:
        hint = "a query reads this trace and nothing else"
    return HkvError(f"the query failed: {first}", hint=hint)


def _capped(rows: Iterator[Sequence[Any]], limit: int) -> Iterator[Sequence[Any]]:
    for count, row in enumerate(rows):
        if limit and count == limit:
            say_cut(limit, "rows")
            return
        yield row


def _text(value: Any) -> Any:
    """A value for a cell: what has parts as JSON, the rest as it is."""
    return json.dumps(_plain(value)) if isinstance(value, list | dict | bool) else value


def _csv(value: Any) -> Any:
    text = _text(value)
    return for_screen(text) if isinstance(text, str) else text


def _plain(value: Any) -> Any:
    """A value of DuckDB as one of JSON; what JSON has no word for becomes text."""
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)


def _print_json(columns: list[str], rows: Iterator[Sequence[Any]]) -> None:
    """One array, an object a line."""
    names = _distinct(columns)
    print("[", end="")
    for count, row in enumerate(rows):
        text = json.dumps(dict(zip(names, map(_plain, row), strict=True)))
        print(",\n " * bool(count) + text, end="")
    print("]")


def _distinct(columns: list[str]) -> list[str]:
    """Column names of which none hides another."""
    names: list[str] = []
    for column in columns:
        name, n = column, 2
        while name in names:
            name, n = f"{column}_{n}", n + 1
        names.append(name)
    return names
