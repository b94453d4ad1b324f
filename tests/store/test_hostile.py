"""Files that are no trace, or a damaged one: a clear error or an event that says so, never more."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest

from hkvtool.cli.app import main
from hkvtool.model.errors import HkvError, TraceError
from hkvtool.model.event import MALFORMED
from hkvtool.model.jsonl import MAX_LINE_BYTES
from hkvtool.store import open_trace
from hkvtool.store.importing import import_traces
from hkvtool.store.schema import META, SCHEMA_VERSION


def whole(path: str | Path) -> int:
    """Read all there is in every way there is."""
    with open_trace(path) as trace:
        count = sum(1 for _ in trace.events())
        assert sum(batch.n for batch in trace.batches()) == trace.count == count
        return count


def altered(path: str, statement: str) -> str:
    with duckdb.connect(path) as con:
        con.execute(statement)
    return path


@pytest.fixture
def made(cases, duckdb_of) -> str:
    path: str = duckdb_of(cases["A01"].bad)
    return path


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"PAR1....", "is a Parquet file"),
        (b"\x7fELF\x02\x01\0\0", "is neither a DuckDB trace nor JSON lines"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "is cut or damaged"),
        (b"\0" * 20, "is neither a DuckDB trace nor JSON lines"),
        (b"\n\n \n", "there is no event in it"),
        (gzip.compress(b"", mtime=0), "there is no event in it"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=what):
        whole(path)
    with pytest.raises(TraceError):
        import_traces([str(path)], tmp_path / "out.duckdb")
    assert os.listdir(tmp_path) == ["file.jsonl"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="is a folder"):
        open_trace(tmp_path)
    with pytest.raises(TraceError, match="there is no file"):
        open_trace(tmp_path / "no.duckdb")
    with pytest.raises(TraceError, match="there is no file"):
        open_trace(tmp_path / "no" / "no.duckdb")
    with pytest.raises(TraceError, match="no regular file"):
        open_trace("/dev/null")
    (tmp_path / "x.hkv").mkdir()
    with pytest.raises(TraceError, match="holds no recording"):
        open_trace(tmp_path / "x.hkv")


def test_a_file_of_the_same_name_is_offered(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").touch()
    with pytest.raises(TraceError) as caught:
        open_trace(tmp_path / "x.duckdb")
    assert caught.value.hint == f"there is {tmp_path / 'x.jsonl'}"


def test_a_pipe_is_read_once_and_kept(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    lines = b'{"ev":"reset"}\n' * 3
    writer = threading.Thread(target=pipe.write_bytes, args=(lines,))
    writer.start()
    assert whole(pipe) == 3
    writer.join()


def test_a_cut_archive_is_told(tmp_path: Path, case_text: bytes) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(case_text)[:-200])
    with pytest.raises(TraceError, match="is cut or damaged") as caught:
        whole(path)
    assert "zcat" in caught.value.hint
    with pytest.raises(TraceError):
        import_traces([str(path)], tmp_path / "t.duckdb")
    assert os.listdir(tmp_path) == [path.name]


@pytest.fixture
def case_text(cases) -> bytes:
    text: bytes = cases["B01"].bad.read_bytes() * 20
    return text


def test_hostile_lines_are_events_that_say_so(tmp_path: Path) -> None:
    lines = [
        b'{"ev":"reset"}',
        b"x" * (MAX_LINE_BYTES + 10),
        b'{"ev":"reset","x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        b'{"ev":"reset","x":NaN}',
        b'{"ev":"alloc","blocks":"7"}',
        b'{"ev":"alloc","blocks":[1e3]}',
        b'{"ev":"alloc","blocks":[99999999999999999999]}',
        b'{"ev":"reset","ev":"alloc"}',
        b"\xff\xfe\0garbage",
        b'{"ev":"reset"',
        b'{"ev":"reset"}',
    ]
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(lines))
    import_traces([str(path)], tmp_path / "t.duckdb")
    for file in (path, tmp_path / "t.duckdb"):
        assert whole(file) == len(lines)
        with open_trace(file) as trace:
            good = [e.pos for e in trace.events() if e.problem is None]
            assert good == [1, len(lines)]
            assert trace.meta["problems"] == trace.kinds[MALFORMED] == len(lines) - 2


def test_import_says_of_a_database_what_opening_says(tmp_path: Path, made: str) -> None:
    foreign = altered(str(tmp_path / "f.duckdb"), "CREATE TABLE t (x INTEGER)")
    cut = tmp_path / "c.duckdb"
    cut.write_bytes(Path(made).read_bytes()[:20_000])
    for path, what in ((foreign, "but not a trace"), (str(cut), "cannot be read")):
        with pytest.raises(TraceError, match=what):
            import_traces([path], tmp_path / "o.duckdb")
    with pytest.raises(HkvError, match="is a DuckDB trace already"):
        import_traces([made], tmp_path / "o.duckdb")


def test_a_foreign_database_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.duckdb")
    altered(path, "CREATE TABLE t (x INTEGER)")
    with pytest.raises(TraceError, match="is a DuckDB file, but not a trace"):
        open_trace(path)
    altered(path, "CREATE TABLE meta (key VARCHAR, value VARCHAR)")
    with pytest.raises(TraceError, match="is a DuckDB file, but not a trace"):
        open_trace(path)


def test_a_newer_schema_names_the_version_that_is_needed(made: str) -> None:
    newer = SCHEMA_VERSION + 1
    altered(made, f"UPDATE meta SET value = '{newer}' WHERE key = 'schema_version'")
    altered(made, "UPDATE meta SET value = '7.8.9' WHERE key = 'hkvtool_version'")
    with pytest.raises(TraceError, match=r"was written by hkvtool 7\.8\.9") as caught:
        open_trace(made)
    assert "hkvtool>=7.8.9" in caught.value.hint


def test_an_older_schema_is_not_called_altered(made: str) -> None:
    older = SCHEMA_VERSION - 1
    altered(made, f"UPDATE meta SET value = '{older}' WHERE key = 'schema_version'")
    with open_trace(made) as trace:
        assert trace.events
    altered(made, "ALTER TABLE keyframes DROP whole")
    with pytest.raises(TraceError, match=rf"by an older hkvtool .*trace schema {older}") as caught:
        open_trace(made)
    assert "import or ingest it again" in caught.value.hint


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("ALTER TABLE events DROP problem", "column events.problem is missing"),
        ("ALTER TABLE names ALTER id TYPE VARCHAR", "column names.id is VARCHAR, not INTEGER"),
        ("UPDATE events SET pos = 1 WHERE pos = 5", "not in order of pos"),
        ("UPDATE events SET pos = pos + 1", "`first_pos` says 1, and the events say 2"),
        ("UPDATE events SET blocks = [NULL]", "nothing in one of its places"),
        ("UPDATE events SET step = NULL", "makes no sense: .*step"),
        ("UPDATE events SET rest = '{\"blocks\": 3}' WHERE pos = 9", "makes no sense"),
        ("UPDATE names SET is_int = true", "a name of .* makes no sense"),
        ("UPDATE kinds SET count = count + 1 WHERE name = 'alloc'", "the kinds add up to"),
        ("DELETE FROM kinds", "the kinds add up to 0 events"),
        ("UPDATE events SET ev = 200 WHERE pos = 3", "makes no sense"),
        ("UPDATE events SET rest = '{' WHERE pos = 1", "makes no sense"),
        ("UPDATE events SET req = 999 WHERE pos = 9", "makes no sense"),
        ("DELETE FROM names WHERE id = 0", "are missing|makes no sense"),
        ("UPDATE meta SET value = 'x' WHERE key = 'events'", "meta `events` is no integer"),
        ("UPDATE meta SET value = '{' WHERE key = 'lanes'", "meta `lanes` is no json"),
        ("UPDATE meta SET value = '[1]' WHERE key = 'evidence'", "meta `evidence` is not what"),
        ("DELETE FROM meta WHERE key = 'requests'", "meta `requests` is missing"),
        ("INSERT INTO meta VALUES ('first_ts', '5')", "`first_ts` says 5, and the events say noth"),
        ("UPDATE meta SET value = NULL WHERE key = 'schema_version'", "not a trace"),
    ],
)
def test_an_altered_trace_is_told(made: str, statement: str, what: str) -> None:
    altered(made, statement)
    with pytest.raises(TraceError, match=what):
        whole(made)


@pytest.mark.parametrize(
    "key", [fact.key for fact in META if fact.kind != "text" and fact.key != "schema_version"]
)
def test_an_altered_fact_is_told_or_harmless(
    key: str, made: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing a reader sizes or draws something by is believed."""
    counted = {"events", "first_pos", "last_pos", "first_ts", "last_ts"}
    values = ["NULL", "'-1'", "'999999999999999999'", "'99999999999999999999999'", "'{}'",
              "'[1]'", "'null'", "'\"x\"'", """'{"a": []}'""", """'[{"host": 5}]'"""]  # fmt: skip
    with duckdb.connect(made) as con:
        con.execute("DELETE FROM meta WHERE key = ?", [key])
    for value in values:
        altered(made, f"INSERT INTO meta VALUES ('{key}', {value})")
        codes = {main([command, made]) for command in ("info", "events")}
        assert codes == ({3} if key in counted and value != "NULL" else codes & {0, 3}), value
        altered(made, f"DELETE FROM meta WHERE key = '{key}'")
    assert "bug in hkvtool" not in capsys.readouterr().err


def test_a_chunk_that_is_said_to_be_huge_takes_no_memory(made: str) -> None:
    size = 2**31 - 1
    altered(made, f"INSERT INTO keyframes VALUES (1, true, 'h', 0, {size}, '\\x08'::BLOB)")
    with open_trace(made) as trace:
        frame = trace.keyframe(5)
        assert frame is not None
        with pytest.raises(TraceError, match="bytes in one chunk"):
            list(frame[1])


def test_a_database_cut_anywhere_is_told(made: str) -> None:
    """Every cut that takes something away is an error; none is anything worse."""
    content = Path(made).read_bytes()
    cut = Path(made).with_name("cut.duckdb")
    told = 0
    for size in range(1, len(content), len(content) // 40):
        cut.write_bytes(content[:size])
        try:
            whole(cut)
        except TraceError:
            told += 1
    assert told > 30


def test_a_database_of_a_later_duckdb_is_told(made: str) -> None:
    content = bytearray(Path(made).read_bytes())
    content[12:20] = (9999).to_bytes(8, "little")
    Path(made).write_bytes(content)
    with pytest.raises(TraceError):
        open_trace(made)


def test_a_locked_file_names_who_holds_it(made: str) -> None:
    code = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('up', flush=True); input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, made], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"up\n"
        with pytest.raises(TraceError, match="open for writing in another process") as caught:
            open_trace(made)
        assert str(holder.pid) in caught.value.where
    finally:
        holder.communicate(b"\n")
    assert whole(made) > 0
