"""A trace is written whole or not at all."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import duckdb
import pytest

from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.store import open_trace
from hkvtool.store.connect import open_read_only
from hkvtool.store.destination import Destination
from hkvtool.store.importing import default_output, import_traces
from hkvtool.store.lines import in_chunks
from hkvtool.store.schema import META, TABLES
from hkvtool.store.writer import TraceWriter

RESETS = [Event.of(pos, {"ev": "reset"}) for pos in range(1, 4)]


def write(path: Path, *parts: Iterable[Event], force: bool = False) -> None:
    with TraceWriter(path, force=force) as writer:
        for part in parts:
            writer.write(part)


def broken() -> Iterator[Event]:
    yield from RESETS
    raise OSError("the source broke")


def test_nothing_is_left_where_the_source_breaks(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the source broke"):
        write(tmp_path / "t.duckdb", broken())
    assert os.listdir(tmp_path) == []


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(b"precious")
    with pytest.raises(HkvError, match="exists already") as caught:
        TraceWriter(path)
    assert "--force" in caught.value.hint
    with pytest.raises(OSError, match="the source broke"):
        write(path, broken(), force=True)
    assert path.read_bytes() == b"precious"
    write(path, RESETS, force=True)
    with open_trace(path) as trace:
        assert trace.count == 3
    assert os.listdir(tmp_path) == ["t.duckdb"]


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with pytest.raises(HkvError, match="exists already"), TraceWriter(path) as writer:
        writer.write(RESETS)
        path.write_bytes(b"faster")
    assert path.read_bytes() == b"faster"
    assert os.listdir(tmp_path) == ["t.duckdb"]


def test_a_trace_is_for_its_owner_alone(tmp_path: Path) -> None:
    write(tmp_path / "t.duckdb", RESETS)
    assert stat.S_IMODE((tmp_path / "t.duckdb").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("no/t.duckdb", "there is no such folder"),
        ("file/t.duckdb", "is not a folder|Not a directory"),
        ("folder", "it is a folder"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_place_that_is_none_is_told_at_once(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(HkvError, match=what):
        Destination(tmp_path / name)


def test_special_files_are_never_replaced() -> None:
    with pytest.raises(HkvError, match="no regular file"):
        Destination("/dev/null", force=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(HkvError, match="Permission denied"), TraceWriter(tmp_path / "t.duckdb"):
        pass


FULL = """
import resource, sys
from hkvtool.model.errors import HkvError
from hkvtool.store.importing import import_traces
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
try:
    import_traces([sys.argv[1]], sys.argv[2])
except HkvError as e:
    print(e.what, "|", e.hint)
"""


def test_a_write_that_fails_is_told_and_leaves_nothing(jsonl, tmp_path: Path) -> None:
    """A limit on file sizes stands in for a full disk: to DuckDB both are a failed write."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    source = jsonl({"ev": "admit", "req": f"r{i}"} for i in range(2000))
    out = tmp_path / "out" / "t.duckdb"
    out.parent.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FULL, source, str(out)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith(f"cannot write {out}: File too large"), done
    assert done.stderr == ""
    assert os.listdir(out.parent) == []


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupt_leaves_nothing(tmp_path: Path, force: bool) -> None:
    out = tmp_path / "out"
    out.mkdir()
    code = (
        "import sys; from hkvtool.store.importing import import_traces; "
        "import_traces(['-'], sys.argv[1], force=True)"
    )
    if force:
        (out / "t.duckdb").write_bytes(b"precious")
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(out / "t.duckdb")],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdin is not None
    child.stdin.write(b'{"ev":"reset"}\n' * 1000)
    child.stdin.flush()
    until = time.monotonic() + 30
    while len(os.listdir(out)) <= force and time.monotonic() < until:
        assert child.poll() is None
        os.sched_yield()
    child.send_signal(signal.SIGINT)
    child.stdin.close()
    assert child.wait(30) != 0
    assert [(p.name, p.read_bytes()) for p in out.iterdir()] == [("t.duckdb", b"precious")] * force


def test_a_source_is_never_its_own_trace(jsonl) -> None:
    source = jsonl([{"ev": "reset"}])
    for force in (False, True):
        with pytest.raises(HkvError, match="overwritten by its own trace"):
            import_traces([source], source, force=force)


def test_a_trace_is_not_imported_twice(jsonl, duckdb_of, tmp_path: Path) -> None:
    path = duckdb_of(jsonl([{"ev": "reset"}]))
    with pytest.raises(HkvError, match="is a DuckDB trace already"):
        import_traces([path], tmp_path / "again.duckdb")


def test_a_source_without_an_event_is_told(jsonl, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="there is no event in it"):
        import_traces([jsonl(["", "  "])], tmp_path / "t.duckdb")
    assert not (tmp_path / "t.duckdb").exists()


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("a/x.jsonl", "a/x.duckdb"),
        ("x.jsonl.gz", "x.duckdb"),
        ("x.y.parquet", "x.y.duckdb"),
        ("plain", "plain.duckdb"),
        (".jsonl", ".jsonl.duckdb"),
    ],
)
def test_the_trace_lies_beside_its_source(source: str, output: str) -> None:
    assert default_output(source) == Path(output)


def test_stdin_needs_a_name() -> None:
    with pytest.raises(HkvError, match="has no name"):
        default_output("-")


def test_chunks_stay_small_in_rows_and_in_weight(monkeypatch) -> None:
    from hkvtool.model.rows import Row

    rows = [Row(pos, 15) for pos in range(1, 11)]
    assert [chunk.n for chunk in in_chunks(rows, 4)] == [4, 4, 2]
    monkeypatch.setattr("hkvtool.store.lines._CHUNK_WEIGHT", 10)
    heavy = [row._replace(blocks=[1] * 6) for row in rows]
    assert [chunk.n for chunk in in_chunks(heavy, 4)] == [2] * 5


def test_columns_alone_imply_evidence(tmp_path: Path) -> None:
    from hkvtool.model.rows import Row
    from hkvtool.store.columns import Chunk

    with TraceWriter(tmp_path / "t.duckdb") as writer:
        writer.append(Chunk.of([Row(1, EVENTS["alloc"].code, blocks=[1])]))
        writer.append(Chunk.of([Row(5, EVENTS["signal"].code)]))
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert trace.meta["evidence"] == ["host", "stream"]
        assert trace.meta["evidence_source"] == "implied"
        assert (trace.meta["first_pos"], trace.meta["last_pos"]) == (1, 5)


def test_a_long_trace_is_written_in_many_transactions(jsonl, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("hkvtool.store.writer._COMMITTED_ROWS", 3)
    monkeypatch.setattr("hkvtool.store.lines._CHUNK_WEIGHT", 1)
    source = jsonl({"ev": "admit", "req": f"r{i}", "x": 1} for i in range(10))
    import_traces([source], tmp_path / "t.duckdb")
    with open_trace(tmp_path / "t.duckdb") as trace:
        assert [e["req"] for e in trace.events()] == [f"r{i}" for i in range(10)]


def test_events_out_of_order_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pos 1 after 3"):
        write(tmp_path / "t.duckdb", RESETS, RESETS)
    assert os.listdir(tmp_path) == []


def test_the_file_is_what_the_schema_says(jsonl, duckdb_of) -> None:
    with duckdb.connect(duckdb_of(jsonl([{"ev": "reset", "ts": 5}])), read_only=True) as con:
        for table in TABLES:
            rows = con.execute(f"DESCRIBE {table.name}").fetchall()
            assert [row[:2] for row in rows] == [(c.name, c.type) for c in table.columns]
        keys = {key for (key,) in con.execute("SELECT key FROM meta").fetchall()}
        assert keys == {fact.key for fact in META} - {"engine", "note", "clocks"}
        assert con.execute("SELECT count FROM kinds WHERE name = 'reset'").fetchone() == (1,)


@pytest.mark.parametrize(
    "query",
    [
        "COPY events TO '{dir}/x.csv'",
        "COPY events TO '{dir}/x.parquet'",
        "EXPORT DATABASE '{dir}/x'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "SELECT * FROM read_parquet('/etc/passwd')",
        "ATTACH '{dir}/y.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET threads = 1",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "PRAGMA enable_profiling = 'json'",
        "CREATE TABLE t (x INTEGER)",
        "DELETE FROM events",
        "SELECT * FROM secret_of_python",
    ],
)
def test_a_query_reaches_nothing_but_the_trace(jsonl, duckdb_of, tmp_path, query: str) -> None:
    import pyarrow

    secret_of_python = pyarrow.table({"x": [1]})
    assert secret_of_python.num_rows == 1
    path = duckdb_of(jsonl([{"ev": "reset"}]))
    before = sorted(os.listdir(tmp_path))
    con = open_read_only(path)
    try:
        with pytest.raises(duckdb.Error):
            con.cursor().execute(query.format(dir=tmp_path)).fetchall()
    finally:
        con.close()
    assert sorted(os.listdir(tmp_path)) == before


def test_one_process_may_open_a_trace_twice(jsonl, duckdb_of) -> None:
    path = duckdb_of(jsonl([{"ev": "reset"}]))
    with open_trace(path) as one, open_trace(path) as other:
        assert list(one.events()) == list(other.events())
    with open_trace(path) as again:
        assert again.count == 1
