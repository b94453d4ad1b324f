"""A trace in a DuckDB file."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain
from operator import attrgetter
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np

from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.rows import Row, decode_checked
from hkvtool.state.batch import Batch, ListColumn
from hkvtool.state.codes import CONTROL, FOLDED
from hkvtool.store.ahead import ahead
from hkvtool.store.columns import (
    ABSENT,
    FILLED_BY,
    IN_BATCH,
    INTS,
    LISTS,
    UNFOLDED,
    absent,
    frozen,
)
from hkvtool.store.conditions import (
    BEGIN_CODES,
    ENDING_KINDS,
    ending,
    ev_among,
    naming,
    queries,
    span,
)
from hkvtool.store.connect import Connection, explained, open_read_only, record_batches, threads
from hkvtool.store.facts import ASKED, Counted, facts
from hkvtool.store.filters import Filter
from hkvtool.store.name_rows import NameRows
from hkvtool.store.schema import SCHEMA_VERSION, SEEN_SINCE, STRETCHES_TABLE, TABLES
from hkvtool.store.signals import heard
from hkvtool.store.stored_names import PAGE, SMALL_PAGE, StoredNames
from hkvtool.store.stretches import IDS, MOST, spans_of
from hkvtool.store.stretches import Row as Stretches
from hkvtool.store.trace import CHUNK_ROWS, Trace

if TYPE_CHECKING:
    from hkvtool.state.keyframes import Chunk
    from hkvtool.state.standing import Standing


_CLOSED_WITHIN, _CLOSE_PAUSE = 50, 0.02
"""How often a connection is tried to be closed, and seconds between."""

_FEW_ROWS = 1 << 11
"""Rows at a time of several answers that are read together."""

_MOST_SPANS = 128
"""Stretches that are looked into one by one for a block; of more the whole trace is read."""

_ROWS_AT_ONCE = 64
"""Rows of keyframes that are fetched at once, a few kilobytes each."""


class DuckTrace(Trace):
    """A trace that hkvtool wrote; any other DuckDB file is refused with a TraceError."""

    def __init__(self, path: str, at_most: int | None = None) -> None:
        """`at_most` is for who keeps a trace open and asks little at a time: so many bytes of it
        are held in memory, and one thread reads it, since each has buffers of its own."""
        super().__init__(path)
        self._con = open_read_only(path, at_most)
        self._page = PAGE if at_most is None else SMALL_PAGE
        try:
            self._meta = self._checked()
        except BaseException:
            self._con.close()
            raise

    @property
    def meta(self) -> dict[str, Any]:
        return dict(self._meta)

    @cached_property
    def names(self) -> StoredNames:
        rows = NameRows(self.path, self._con)
        return StoredNames(rows, rows.counts(), self._page)

    @cached_property
    def kinds(self) -> dict[str, int]:
        with explained(self.path):
            rows = self._con.cursor().execute(
                "SELECT name, coalesce(count, 0) FROM kinds WHERE name IS NOT NULL ORDER BY ev"
            )
            return dict(rows.fetchall())

    def events(
        self,
        since: int | None = None,
        until: int | None = None,
        req: str | int | None = None,
        kinds: Collection[str] | None = None,
        block: tuple[str | int, int] | None = None,
    ) -> Iterator[Event]:
        wanted = Filter(since, until, req, kinds, block)
        near = None if block is None else self._near(int(block[1]), until)
        return wanted.keep(self._merged(queries(_ROW, wanted)) if near is None else near)

    def batches(
        self,
        size: int = CHUNK_ROWS,
        since: int | None = None,
        until: int | None = None,
        folded: bool = False,
    ) -> Iterator[Batch]:
        batches = self._batches(size, since, until, folded)
        return ahead(batches) if folded and threads() > 1 else batches

    def _batches(
        self, size: int, since: int | None, until: int | None, folded: bool
    ) -> Generator[Batch, None, None]:
        columns = self._folded_columns if folded else _COLUMNS
        query = f"SELECT {columns} FROM events {span(since, until, FOLDED if folded else ())}"
        for chunk in self._stream(query, size):
            yield _batch(chunk, {} if folded else _texts(chunk.column("rest")))

    def batches_with(self, more: Mapping[str, str], size: int) -> Iterator[tuple[Batch, Any]]:
        """Batches without `rest`, each with the Arrow record batch it was made of: there are
        further columns by name, as SQL over the columns of `events` makes them."""
        made = [f'{sql} AS "{name}"' for name, sql in more.items()]
        query = f"SELECT {', '.join([_WHOLE, *made])} FROM events"
        chunks = ((_batch(chunk, {}), chunk) for chunk in self._stream(query, size))
        return ahead(chunks) if threads() > 1 else chunks

    @cached_property
    def _folded_columns(self) -> str:
        """What the fold takes, without the columns that no event of this trace fills."""
        there = {kind for kind, count in self.kinds.items() if count}
        ints = [
            name for name in IN_BATCH
            if name not in UNFOLDED and (name not in FILLED_BY or FILLED_BY[name] & there)
        ]  # fmt: skip
        return ", ".join([_filled(name) for name in ints] + [f'"{name}"' for name in LISTS])

    @classmethod
    def unfinished(cls, path: str, con: Connection, facts: dict[str, Any]) -> DuckTrace:
        """The trace that a writer has open, with what it knows of it."""
        trace = cls.__new__(cls)
        Trace.__init__(trace, path)
        trace._con, trace._meta, trace._page = con, facts, PAGE
        return trace

    def keyframe(self, pos: int) -> tuple[int, Iterator[Chunk]] | None:
        found = self._kept_by(pos)
        if found is None:
            return None
        last, stretch = found
        # Not what follows from the rest; the header first.
        own = f"{stretch} AND NOT starts_with(field, 'seen_')"
        parts = (self._chunks(f"{own} AND (field = 'h') = {so}") for so in ("true", "false"))
        return last, chain.from_iterable(parts)

    def standing(self, pos: int) -> Standing | None:
        from hkvtool.state.standing import Standing

        found = self._kept_by(pos)
        if found is None:
            return super().standing(pos)
        if self._meta["schema_version"] < SEEN_SINCE:
            return None
        last, stretch = found

        def read(fields: Sequence[str], numbers: Sequence[int] | None) -> Iterator[Chunk]:
            wanted = f"{stretch} AND field IN ({', '.join(map(repr, fields))})"
            if numbers is not None:
                wanted += f" AND chunk IN ({', '.join(str(int(n)) for n in numbers)})"
            return self._chunks(wanted, many=False)

        return Standing(self.path, last, read)

    def _kept_by(self, pos: int) -> tuple[int, str] | None:
        """The last keyframe at or before a position, and what names the rows that it is of."""
        with explained(self.path):
            query = "SELECT max(pos), max(pos) FILTER (whole) FROM keyframes WHERE pos <= ?"
            last, whole = self._con.cursor().execute(query, [int(pos)]).fetchone()
        if last is None:
            return None
        return int(last), f"pos BETWEEN {int(whole or 0)} AND {int(last)}"

    def _stored_chunks(self, wanted: str) -> Iterator[Any]:
        """What was stored last of each chunk among some rows."""
        # They are named on both sides: only so is the rest of the table left unread. And by
        # their places: else DuckDB would put what is in the chunks into a table of hashes.
        query = (
            f"SELECT field, chunk, size, data FROM keyframes WHERE {wanted} AND rowid IN "
            f"(SELECT arg_max(rowid, pos) FROM keyframes WHERE {wanted} GROUP BY field, chunk)"
        )
        with explained(self.path):
            result = self._con.cursor().execute(query)
            while rows := result.fetchmany(_ROWS_AT_ONCE):
                yield from rows

    def _chunks(self, wanted: str, *, many: bool = True) -> Iterator[Chunk]:
        from hkvtool.state.keyframes import CHUNK
        from hkvtool.store.moments import unpacked_each

        most = 8 * max(CHUNK, self.count)

        def sized() -> Iterator[Any]:
            # So much memory is taken before anything is unpacked.
            for row in self._stored_chunks(wanted):
                if not 0 <= row[2] <= most:
                    raise ValueError(f"{row[2]:,} bytes in one chunk")
                yield row

        try:
            yield from unpacked_each(sized(), threads() if many else 1)
        except (ValueError, OSError, LookupError, TypeError) as e:
            raise TraceError(
                f"{self.path}: a keyframe cannot be unpacked: {e}",
                hint="the file was altered; import or ingest it again",
            ) from e

    def arrow(self, size: int = CHUNK_ROWS) -> Iterator[Any]:
        return self._stream(f"SELECT {_STORED} FROM events", size)

    def select(self, query: str) -> Connection:
        """The result of a query, as DuckDB gives it. DuckDB's errors pass through."""
        cursor = self._con.cursor()
        return heard(lambda: cursor.execute(query), cursor.interrupt)

    def close(self) -> None:
        import duckdb

        for _ in range(_CLOSED_WITHIN):
            try:
                self._con.close()
                return
            except duckdb.Error:
                # A thread that nobody waits for any more is asking it something.
                sleep(_CLOSE_PAUSE)

    def _stream(self, query: str, size: int) -> Iterator[Any]:
        """Arrow record batches of a query over `events`, fetched as they are asked for."""
        last = -1
        with explained(self.path):
            for chunk in record_batches(self._con.cursor(), query, size):
                pos = chunk.column("pos").to_numpy()
                if pos[0] <= last or (np.diff(pos) <= 0).any():
                    raise TraceError(
                        f"{self.path}: events are not in order of pos after {last}",
                        hint="the file was altered; import or ingest it again",
                    )
                last = int(pos[-1])
                lists = (chunk.column(name) for name in LISTS if name in chunk.schema.names)
                if any(column.values.null_count for column in lists):
                    raise TraceError(
                        f"{self.path}: a list before event {last} has nothing in one of its places",
                        hint="the file was altered; import or ingest it again",
                    )
                yield chunk

    def _merged(self, asked: list[str]) -> Iterator[Event]:
        """The events of some queries in order; several of them a few rows at a time."""
        if len(asked) == 1:
            return self._decoded(asked[0])
        return merge(*(self._decoded(one, _FEW_ROWS) for one in asked), key=attrgetter("pos"))

    def _near(self, block: int, until: int | None) -> Iterator[Event] | None:
        """The events that can name a block, and those that say in which pool it is; None where that
        is not known of so few stretches."""
        spans = self._spans(block)
        if spans is None:
            return None
        found = [row for span in spans for row in self._rows(naming(_ROW, block, *span, until))]
        begun = {int(row.handle) for row in found if row.ev in BEGIN_CODES}
        if any(self.kinds.get(kind) for kind in ENDING_KINDS):
            for query in ending(_ROW, block, sorted(begun), until):
                found += self._rows(query)
        found.sort(key=attrgetter("pos"))
        events = (self._event(row, self.names) for row in found)
        return merge((e for e in self.control if e.ev == "group"), events, key=attrgetter("pos"))

    def _spans(self, block: int) -> list[tuple[int, int]] | None:
        """The stretches that name a block, if they were noted and are few."""
        if self._meta["schema_version"] < STRETCHES_TABLE.since or not 0 <= block < MOST:
            return None
        query = (
            "SELECT first, ends, chunk, size, data FROM stretches WHERE chunk = ? ORDER BY first"
        )
        with explained(self.path):
            con = self._con.cursor()
            if con.execute("SELECT first FROM stretches LIMIT 1").fetchone() is None:
                return None
            rows = con.execute(query, [block // IDS]).fetchall()
        try:
            spans = spans_of([Stretches(*row) for row in rows], block)
        except (ValueError, OSError, LookupError, TypeError) as e:
            raise TraceError(
                f"{self.path}: what names a block cannot be unpacked: {e}",
                hint="the file was altered; import or ingest it again",
            ) from e
        return spans if len(spans) <= _MOST_SPANS else None

    def _decoded(self, query: str, size: int = CHUNK_ROWS) -> Iterator[Event]:
        names = self.names
        for row in self._rows(query, size):
            yield self._event(row, names)

    def _rows(self, query: str, size: int = CHUNK_ROWS) -> Iterator[Row]:
        for chunk in self._stream(query, size):
            for first in range(0, chunk.num_rows, _DECODED_AT_ONCE):
                rows = chunk.slice(first, _DECODED_AT_ONCE)
                columns = [rows.column(name).to_pylist() for name in Row._fields]
                yield from map(Row._make, zip(*columns, strict=True))

    def _event(self, row: Row, names: StoredNames) -> Event:
        try:
            return decode_checked(row, names)
        except (KeyError, IndexError, ValueError, TypeError) as e:
            raise TraceError(
                f"{self.path}: the event at {row.pos} makes no sense: {e}",
                hint="the file was altered; import or ingest it again",
            ) from e

    def _checked(self) -> dict[str, Any]:
        """The facts in `meta`, once it is clear that this is a trace we can read."""
        with explained(self.path):
            columns = self._con.execute(
                "SELECT table_name, column_name, data_type FROM information_schema.columns "
                "JOIN information_schema.tables USING (table_catalog, table_schema, table_name) "
                "WHERE table_schema = 'main' AND table_type = 'BASE TABLE'"
            ).fetchall()
            have = {(table, column): kind for table, column, kind in columns}
            if ("meta", "key") not in have or ("meta", "value") not in have:
                raise _foreign(self.path)
            said = dict(self._con.execute("SELECT key, value FROM meta").fetchall())
        version = self._check_version(said)
        for table in TABLES:
            for column in table.columns if version >= table.since else ():
                kind = have.get((table.name, column.name))
                if kind != column.type and version < SCHEMA_VERSION:
                    raise _older(self.path, said, version)
                if kind != column.type:
                    raise TraceError(
                        f"{self.path}: column {table.name}.{column.name} is "
                        f"{kind or 'missing'}, not {column.type}",
                        hint="the file was altered; import or ingest it again",
                    )
        try:
            with explained(self.path):
                counted = Counted(*self._con.execute(ASKED).fetchone())
            return facts(self.path, said, counted)
        except TraceError as e:
            if version < SCHEMA_VERSION:
                raise _older(self.path, said, version) from e
            raise

    def _check_version(self, said: dict[str, str]) -> int:
        try:
            version = int(said["schema_version"])
        except (KeyError, ValueError, TypeError):
            raise _foreign(self.path) from None
        if version > SCHEMA_VERSION:
            writer = said.get("hkvtool_version", "a newer version")
            raise TraceError(
                f"{self.path} was written by hkvtool {writer} (trace schema {version}); "
                f"this one reads up to schema {SCHEMA_VERSION}",
                hint=f"pip install -U 'hkvtool>={writer}'",
            )
        return version


def _older(path: str, said: dict[str, str], version: int) -> TraceError:
    writer = said.get("hkvtool_version", "")
    return TraceError(
        f"{path} was written by an older hkvtool ({writer}, trace schema {version}); this one "
        f"reads schema {SCHEMA_VERSION}",
        hint="import or ingest it again, from what it was made of",
    )


def _foreign(path: str) -> TraceError:
    return TraceError(
        f"{path} is a DuckDB file, but not a trace", hint="a trace is what import or ingest made"
    )


def _batch(chunk: Any, rest: dict[int, str]) -> Batch:
    there = set(chunk.schema.names)
    ints: dict[str, Any] = {
        name: chunk.column(name).to_numpy() if name in there else absent(name, chunk.num_rows)
        for name in IN_BATCH
    }
    lists = {name: _list_column(chunk.column(name)) for name in LISTS}
    return Batch(n=chunk.num_rows, rest=rest, **ints, **lists)


def _list_column(array: Any) -> ListColumn:
    offsets = array.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    values = array.values.slice(first, end - first).to_numpy(zero_copy_only=False)
    return ListColumn(
        frozen((offsets - first).astype(np.int64)), frozen(values.astype(np.int64, copy=False))
    )


def _texts(array: Any) -> dict[int, str]:
    """The texts of a column that has few of them, by row."""
    if array.null_count == len(array):
        return {}
    rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
    return dict(zip(rows.tolist(), array.drop_null().to_pylist(), strict=True))


def _filled(name: str) -> str:
    absent = ABSENT.get(name)
    value = f'"{name}"' if absent is None else f'coalesce("{name}", {absent})'
    return f'{value}::BIGINT AS "{name}"'


_ROW = ", ".join(
    [_filled(name) for name in INTS] + [f'"{n}"' for n in Row._fields if n not in INTS]
)
_DECODED_AT_ONCE = 1 << 12
"""Rows that are Python objects at a time."""

_STORED = ", ".join(f'"{name}"' for name in Row._fields)
_WHOLE = ", ".join([_filled(name) for name in IN_BATCH] + [f'"{name}"' for name in LISTS])
_COLUMNS = f"{_WHOLE}, CASE WHEN {ev_among(CONTROL)} THEN rest END AS rest"
