"""Writing a DuckDB trace."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from hkvtool.model.collector import uncollected
from hkvtool.model.errors import HkvError
from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import ACCESSES, BY_CODE
from hkvtool.model.rows import DOMAINS, Names
from hkvtool.store.columns import Chunk
from hkvtool.store.connect import Connection, create
from hkvtool.store.destination import Destination
from hkvtool.store.duck import DuckTrace
from hkvtool.store.lines import encoded, in_chunks
from hkvtool.store.moments import keyframe_rows, packed
from hkvtool.store.schema import (
    KEYFRAMES_TABLE,
    KINDS_TABLE,
    META,
    META_TABLE,
    NAMES_TABLE,
    STRETCHES_TABLE,
    TABLES,
    Table,
)
from hkvtool.store.signals import duckdb_loaded, held_back
from hkvtool.store.stored_names import stored
from hkvtool.store.stretches import Named
from hkvtool.store.stretches import Row as Stretches
from hkvtool.store.summary import Summary
from hkvtool.store.trace import CHUNK_ROWS
from hkvtool.store.views import VIEWS

_COMMITTED_ROWS = 1 << 19
"""Rows a transaction: DuckDB holds on to memory for as long as one is open. That the file is
whole or not there is the `Destination`'s to see to."""


class TraceWriter:
    """Writes one trace, which is there under its name once the context is left without error.

    Events come in order of `pos`, as values (`write`) or as columns (`append`). Memory stays
    bounded but for `names`. A producer that numbers names itself gives them to `add_names`.
    """

    def __init__(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        self._destination = Destination(path, force=force)
        self.names = Names()
        self.summary = Summary()
        self._con: Connection = None
        self._uncommitted = 0
        self._named = Named()

    def write(self, events: Iterable[Event], *, offset: int = 0) -> None:
        """Write events whose `pos` is counted on from `offset`."""
        with uncollected():
            for chunk in in_chunks(encoded(events, self.names, self.summary)):
                if offset:
                    chunk.ints["pos"] += offset
                self.append(chunk)

    def append(self, chunk: Chunk) -> None:
        """Write rows in columns."""
        if chunk.n == 0:
            return
        last = self.summary.last_pos
        if last is not None and chunk.ints["pos"][0] <= last:
            raise ValueError(f"pos {chunk.ints['pos'][0]} after {last}")
        self.summary.add(chunk)
        self._insert("events", chunk.record_batch())
        self._tell(self._named.add(chunk))
        self._uncommitted += chunk.n
        if self._uncommitted >= _COMMITTED_ROWS:
            self._uncommitted = 0
            with self._failing():
                self._con.execute("COMMIT")
                self._con.execute("BEGIN TRANSACTION")

    def add_names(self, domain: str, first: int, names: Any) -> None:
        """Write the names of numbers from `first` on, an Arrow array of strings."""
        self._insert("names", names_batch(domain, first, names))

    def _tell(self, rows: Iterable[Stretches]) -> None:
        """Write which stretches name which blocks."""
        told = list(rows)
        if told:
            self._insert("stretches", _rows_batch(STRETCHES_TABLE, told))

    def end_source(self, path: str) -> None:
        """Say that all events since the last source came from the file `path`."""
        self.summary.add_source(path)

    def __enter__(self) -> TraceWriter:
        try:
            self._destination.__enter__()
            with self._failing(), held_back():
                self._con = create(self._destination.path, self._destination.scratch)
                for table in TABLES:
                    self._con.execute(table.ddl)
                self._con.execute("BEGIN TRANSACTION")
        except BaseException as e:
            self._close()
            self._destination.__exit__(type(e), e, e.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                with self._failing():
                    self._finish()
        except BaseException as e:
            kind, error, trace = type(e), e, e.__traceback__
            raise
        finally:
            self._close()
            self._destination.__exit__(kind, error, trace)

    def _finish(self) -> None:
        """Everything that is known only at the end."""
        for domain in DOMAINS:
            known = self.names.values[domain]
            for first in range(0, len(known), CHUNK_ROWS):
                self.add_names(domain, first, known[first : first + CHUNK_ROWS])
        self._insert("kinds", _rows_batch(KINDS_TABLE, self._kinds()))
        self._tell(self._named.rest())
        facts = self.summary.facts(self.names)
        self._insert("meta", _rows_batch(META_TABLE, _facts(facts)))
        for view in VIEWS:
            self._con.execute(view.ddl)
        self._con.execute("COMMIT")
        self._keyframes(facts)
        self._con.execute("CHECKPOINT")
        con, self._con = self._con, None
        con.close()

    def _keyframes(self, facts: dict[str, Any]) -> None:
        """The state at some positions, where the trace is long."""
        path = os.fspath(self._destination.path)
        trace = DuckTrace.unfinished(path, self._con, facts)
        self._con.execute("BEGIN TRANSACTION")
        for pos, whole, chunks in keyframe_rows(trace):
            rows = [(pos, whole, c.field, c.number, *packed(c.values)) for c in chunks]
            # Where nothing is declared there is no state to keep.
            if rows:
                self._insert("keyframes", _rows_batch(KEYFRAMES_TABLE, rows))
        self._con.execute("COMMIT")

    def _kinds(self) -> Iterator[tuple[int, str, bool, int, str]]:
        counts = self.summary.kind_counts()
        yield 0, MALFORMED, False, counts[MALFORMED], "cannot be taken at its word"
        for code, spec in BY_CODE.items():
            yield code, spec.name, spec.name in ACCESSES, counts[spec.name], spec.doc

    def _insert(self, table: str, batch: Any) -> None:
        with self._failing(), held_back():
            self._con.register("incoming", batch)
            self._con.execute(f"INSERT INTO {table} SELECT * FROM incoming")
            self._con.unregister("incoming")

    def _close(self) -> None:
        con, self._con = self._con, None
        if con is not None:
            import duckdb

            # What was not committed goes away with the file; so does the error of closing it.
            with suppress(duckdb.Error):
                con.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        duckdb = duckdb_loaded()
        try:
            yield
        except duckdb.Error as e:
            raise self._explained(e) from e

    def _explained(self, error: Exception) -> HkvError:
        text = str(error)
        for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO):
            if os.strerror(code).lower() in text.lower():
                return self._destination.failure(OSError(code, os.strerror(code)))
        first = text.splitlines()[0] if text else type(error).__name__
        return HkvError(f"cannot write {self._destination.target}: {first}")


def _facts(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for fact in META:
        if fact.key in facts:
            value = facts[fact.key]
            yield fact.key, _utf8(json.dumps(value) if fact.kind == "json" else str(value))


def _rows_batch(table: Table, rows: Iterable[tuple[Any, ...]]) -> Any:
    """Some rows of a small table as Arrow."""
    import pyarrow as pa

    arrays = [pa.array(column) for column in zip(*rows, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])


def names_batch(domain: str, first: int, names: Any) -> Any:
    """Names of numbers from `first` on as rows of the table `names`."""
    import numpy as np
    import pyarrow as pa

    n = len(names)
    texts, is_int, escaped = names, [False] * n, [False] * n
    if isinstance(names, list):
        rows = [stored(name) for name in names]
        texts = [name for name, _, _ in rows]
        is_int = [integer for _, integer, _ in rows]
        escaped = [escape for _, _, escape in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([domain] * n),
            pa.array(np.arange(first, first + n, dtype=np.int32)),
            pa.array(texts, pa.string()),
            pa.array(is_int, pa.bool_()),
            pa.array(escaped, pa.bool_()),
        ],
        [column.name for column in NAMES_TABLE.columns],
    )


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
