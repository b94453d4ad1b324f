"""A trace as one Parquet file, for tools that read no DuckDB: names in place of numbers.

Nothing is lost. How the names of a domain are written is said in the file's metadata, and
`import` gives back the same events.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

from hkvtool.model.errors import TraceError
from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import BY_CODE, EVENTS, FORMAT
from hkvtool.model.rows import DOMAINS, Names, Row, decode_checked
from hkvtool.store.columns import ABSENT
from hkvtool.store.destination import Destination
from hkvtool.store.schema import HOLDERS, NAMES_OF, SCHEMA_VERSION
from hkvtool.store.trace import CHUNK_ROWS, Trace

_FORMAT, _VERSION, _SPELLING = b"hkv:format", b"hkv:schema_version", b"hkv:names"

_HOLDER_CODES = [EVENTS[name].code for name in HOLDERS]

TEXT, INTEGER, JSON = "text", "integer", "json"
"""How the names of a domain are written: all were strings, all were integers, or each as JSON."""


def export_parquet(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Write every event as one row; returns how many. `progress` is told how many so far."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with Destination(path, force=force) as destination:
        spelled = {domain: _spelled(trace.names.values[domain]) for domain in DOMAINS}
        texts = {domain: pa.array(names, pa.string()) for domain, (_, names) in spelled.items()}
        metadata = {
            _FORMAT: FORMAT,
            _VERSION: str(SCHEMA_VERSION),
            _SPELLING: json.dumps({domain: how for domain, (how, _) in spelled.items()}),
        }
        written = 0
        writer = None
        try:
            for batch in trace.arrow():
                table = _named(batch, texts)
                if writer is None:
                    schema = table.schema.with_metadata(metadata)
                    writer = pq.ParquetWriter(destination.path, schema, compression="zstd")
                writer.write_table(table)
                written += table.num_rows
                if progress:
                    progress(written)
        except OSError as e:
            raise destination.failure(e) from e
        finally:
            if writer is not None:
                writer.close()
        if not written:
            raise TraceError(f"{trace.path}: there is no event in it")
    return written


def _spelled(names: Any) -> tuple[str, list[str]]:
    """The names of a domain as texts, and how they are written."""
    if all(isinstance(name, int) for name in names) and len(names):
        return INTEGER, [str(name) for name in names]
    try:
        for name in names:
            name.encode()
    except (AttributeError, UnicodeEncodeError):
        return JSON, [json.dumps(name) for name in names]
    return TEXT, list(names)


def _named(batch: Any, texts: dict[str, Any]) -> Any:
    """A record batch of `events` with names in place of numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: batch.column(name) for name in Row._fields}
    kinds = pa.array([MALFORMED, *(BY_CODE[c].name for c in range(1, len(BY_CODE) + 1))])
    holds = pc.is_in(columns["ev"], pa.array(_HOLDER_CODES, pa.uint8()))
    nobody = pa.scalar(None, pa.int32())
    owner = pc.if_else(holds, columns["group2"], nobody)
    columns["group2"] = pc.if_else(holds, nobody, columns["group2"])
    columns["ev"] = kinds.take(columns["ev"])
    for name, domain in NAMES_OF.items():
        if name == "hashes":
            lists = columns[name]
            columns[name] = pa.ListArray.from_arrays(
                lists.offsets, texts[domain].take(lists.values), mask=lists.is_null()
            )
        else:
            columns[name] = texts[domain].take(columns[name])
    columns["owner"] = texts["req"].take(owner)
    copies = pc.equal(columns["ev"], "copy")
    nothing = pa.scalar(None, pa.int64())
    columns["src_group"] = texts["group"].take(pc.if_else(copies, columns["aux"], nothing))
    columns["aux"] = pc.if_else(copies, nothing, columns["aux"])
    return pa.table(columns)


def is_ours(path: str) -> bool:
    """True where a Parquet file was written by `export_parquet`."""
    return _FORMAT in _metadata(path)


def is_our_schema(schema: Any) -> bool:
    """The same of a schema that was read already, wherever its file lies."""
    return _FORMAT in (schema.metadata or {})


def _metadata(path: str) -> dict[bytes, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path).metadata or {}
    except (OSError, pa.ArrowException) as e:
        raise TraceError(f"{path} cannot be read as Parquet: {e}") from e


def read_parquet(path: str) -> Iterator[Event]:
    """The events of a file that `export_parquet` wrote. Raises TraceError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = _metadata(path)
    if _FORMAT not in metadata:
        raise TraceError(
            f"{path} is no trace", hint="only Parquet files that hkvtool exported can be read"
        )
    version = metadata.get(_VERSION, b"0")
    if not version.isdigit() or int(version[:9]) > SCHEMA_VERSION:
        raise TraceError(f"{path} was exported by a newer hkvtool", hint="pip install -U hkvtool")
    try:
        spelling = json.loads(metadata[_SPELLING])
        names = Names()
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(CHUNK_ROWS):
                for values in batch.to_pylist():
                    yield decode_checked(_row(values, spelling, names), names)
    except (OSError, pa.ArrowException, KeyError, ValueError, TypeError) as e:
        raise TraceError(f"{path} cannot be read: {e}", hint="export it again") from e


def _row(values: dict[str, Any], spelling: dict[str, str], names: Names) -> Row:
    kind = values["ev"]
    values["ev"] = 0 if kind == MALFORMED else EVENTS[kind].code
    owner, src_group = values.pop("owner"), values.pop("src_group")
    for column, domain in NAMES_OF.items():
        said = values[column]
        if column == "hashes":
            if said is not None:
                values[column] = [names.id(domain, _name(text, spelling[domain])) for text in said]
        elif said is not None:
            values[column] = names.id(domain, _name(said, spelling[domain]))
    if owner is not None:
        values["group2"] = names.id("req", _name(owner, spelling["req"]))
    if src_group is not None:
        values["aux"] = names.id("group", _name(src_group, spelling["group"]))
    for column, absent in ABSENT.items():
        if values[column] is None:
            values[column] = absent
    return Row(**values)


def _name(text: str, how: str) -> str | int:
    if how == INTEGER:
        return int(text)
    name: str | int = json.loads(text) if how == JSON else text
    return name
