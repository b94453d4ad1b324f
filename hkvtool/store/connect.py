"""Connections to DuckDB: what they may do, and their errors in a user's words."""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.store.schema import STORAGE_VERSION
from hkvtool.store.scratch import Scratch
from hkvtool.store.signals import duckdb_loaded, held_back

Connection = Any
"""A `duckdb.DuckDBPyConnection`; the name would import DuckDB."""

_GIB = 1 << 30

_FOR_A_THREAD = 1 << 27
"""Bytes for each thread that reads: what DuckDB needs to work well. It would keep as much of what
it has read as it may, which makes nothing faster: the system keeps the file's pages as well."""

_FLUSHED_FROM = "16MiB"
"""DuckDB gives back what it has freed once it is so much; its own default is 128 MiB a thread."""


def open_read_only(path: str | os.PathLike[str], at_most: int | None = None) -> Connection:
    """Open a database that can reach nothing but itself: read-only, no files, no extensions,
    and no way for a query to change that. With `at_most` one thread holds no more than so many
    bytes of it in memory. Raises TraceError."""
    duckdb = duckdb_loaded()
    with explained(path), held_back():
        con = duckdb.connect(os.fspath(path), read_only=True)
        if at_most is None:
            return _confined(con, _spill_folder(), threads() * _FOR_A_THREAD)
        return _confined(con, _spill_folder(), at_most, 1)


def create(path: str | os.PathLike[str], scratch: str | os.PathLike[str]) -> Connection:
    """Create a database that the oldest DuckDB of our range can read; it spills to `scratch`."""
    duckdb = duckdb_loaded()
    con = duckdb.connect(os.fspath(path), config={"storage_compatibility_version": STORAGE_VERSION})
    return _confined(con, os.fspath(scratch), at_most=_GIB)


def _confined(con: Connection, spill: str, at_most: int, workers: int | None = None) -> Connection:
    """The connection, with its database confined. Where this process has the database open
    already, it is confined and keeps its limits."""
    try:
        locked = con.execute("SELECT current_setting('lock_configuration')").fetchone()
        if locked is not None and not locked[0]:
            memory = min(at_most, _memory_limit())
            # One by one and in this order: some can no longer be set once others are.
            for name, value in _limits(spill, memory, workers or threads()).items():
                con.execute(f"SET {name} = {value}")
    except BaseException:
        con.close()
        raise
    return con


def _limits(spill: str, memory: int, workers: int) -> dict[str, str]:
    quoted = spill.replace("'", "''")
    return {
        "enable_progress_bar": "false",
        "allocator_flush_threshold": f"'{_FLUSHED_FROM}'",
        "memory_limit": f"'{memory >> 20}MiB'",
        "threads": str(workers),
        "temp_directory": f"'{quoted}'",
        "python_enable_replacements": "false",
        "allow_community_extensions": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "enable_external_access": "false",
        "lock_configuration": "true",
    }


def threads() -> int:
    """How many threads may work at once: the cores that this process may use, four at most."""
    return max(1, min(4, len(os.sched_getaffinity(0))))


@cache
def _memory_limit() -> int:
    """Bytes that DuckDB may use: a quarter of what this process may have, a GiB at most.

    DuckDB's own default is 80 % of the machine, which is the engine's, not ours; and what it has
    read of a long trace it keeps as long as there is room.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(limit).read_text()))
        except (OSError, ValueError):
            continue
    return min(max(total // 4, _GIB // 4), _GIB)


@cache
def _spill_folder() -> str:
    """Where queries that outgrow memory spill: private, and gone when the process ends.

    One folder for the whole process, since DuckDB refuses to open a file twice with settings
    that differ.
    """
    folder = Scratch()
    atexit.register(folder.cleanup)
    return folder.name


def record_batches(con: Connection, query: str, size: int) -> Iterator[Any]:
    """Arrow record batches of a query, about `size` rows each, none of them empty.

    The result streams: it is never in memory as a whole.
    """
    relation = con.sql(query)
    # DuckDB 2 renamed it.
    reader = getattr(relation, "to_arrow_reader", None) or relation.fetch_arrow_reader
    for batch in reader(size):
        if batch.num_rows:
            yield batch


@contextmanager
def explained(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn what DuckDB raises while a trace is read into a TraceError."""
    duckdb = duckdb_loaded()
    try:
        yield
    except duckdb.Error as e:
        raise explain(path, e) from e


_LOCK = re.compile(r"Conflicting lock is held in (?P<who>.*?) \(PID (?P<pid>\d+)\)")
DAMAGED = "the file is damaged or was cut; import or ingest it again"

_NEWER = re.compile(
    r"version number (?P<is>\d+), but we can only read versions? .*?(?P<most>\d+)\D*\."
)


def explain(path: str | os.PathLike[str], error: Exception) -> HkvError:
    """The error of a reader in words: what is wrong with the file, and what to do."""
    text = str(error)
    lock = _LOCK.search(text)
    if lock:
        who = os.path.basename(lock["who"])
        return TraceError(
            f"{path} is open for writing in another process",
            where=f"process {lock['pid']} ({who})",
            hint="wait until it is done; a trace can be read by many once nobody writes it",
        )
    newer = _NEWER.search(text)
    if newer:
        return TraceError(
            f"{path} has DuckDB storage version {newer['is']}; this DuckDB reads up to "
            f"{newer['most']}",
            hint="pip install -U duckdb",
        )
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    if "out of memory" in text.lower():
        return HkvError(f"the query needs more memory than it may have: {first}")
    return TraceError(
        f"{path} cannot be read: {first}",
        hint=DAMAGED,
    )
