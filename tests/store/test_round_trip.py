"""A trace turned into another format and back is the same trace."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import JSON, events, mutated

from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.jsonl import read_jsonl, write_jsonl
from hkvtool.store import open_trace
from hkvtool.store.exporting import export_jsonl
from hkvtool.store.importing import import_traces
from hkvtool.store.parquet import export_parquet
from hkvtool.store.writer import TraceWriter


def exported(path: str) -> list[Event]:
    stream = io.BytesIO()
    with open_trace(path) as trace:
        count = export_jsonl(trace, stream)
    stream.seek(0)
    found = list(read_jsonl(stream))
    assert len(found) == count
    return found


def stored(path: str) -> list[Event]:
    with open_trace(path) as trace:
        return list(trace.events())


def test_cases_lose_nothing(case, read_events, imported) -> None:
    for arm in case.arms:
        written = read_events(arm)
        path = imported(arm)
        assert stored(path) == written
        assert exported(path) == written


def test_cases_say_the_same_of_themselves_in_both_forms(case, imported) -> None:
    with open_trace(case.bad) as lines, open_trace(imported(case.bad)) as rows:
        assert rows.meta == lines.meta
        assert rows.kinds == lines.kinds
        assert rows.count == lines.count == sum(lines.kinds.values())


def test_the_malformed_case_keeps_its_line(cases, imported) -> None:
    path = imported(cases["S23"].bad)
    with open_trace(path) as trace:
        (event,) = trace.events(kinds={"?"})
        assert (event.pos, event.ev, event.problem) == (13, "evict", "unknown event 'evict'")
        assert trace.meta["problems"] == 1
    assert exported(path)[12] == event


def test_cases_lose_nothing_as_parquet(
    case, read_events, imported, duckdb_of, tmp_path: Path
) -> None:
    parquet = tmp_path / "trace.parquet"
    with open_trace(imported(case.bad)) as trace:
        assert export_parquet(trace, parquet) == trace.count
    assert stored(duckdb_of(parquet)) == read_events(case.bad)


LINES = [
    '{"ev":"reset","note":"first"}',
    "",
    "   ",
    "not json",
    '{"ev":"alloc","blocks":[],"x":{"y":[1.5,null,"\\u0000"]},"req":7}',
    '{"ev":"alloc","blocks":[1],"req":"7","handle":"h"}',
    '{"ev":"evict","blocks":[1]}',
    "[1,2]",
    '{"ev":"reset","ev":"reset"}',
    '{"ev":"free","blocks":[3],"owner":7,"front":[]}',
    '{"ev":"reset","n":123456789012345678901234567890}',
    '{"ev":"reset","req":"\\ud800"}',
    '{"ev":"publish","group":"kv","blocks":[1,2],"hashes":[5,"5"],"tokens":[0,0]}',
    '{"ev":"store_end","handle":1,"ok":true}',
    '{"ev":"write","group":"kv","blocks":[1],"tokens":[0,1],"pad":false,"note":"[red]\\u001b[31m"}',
]


@pytest.mark.parametrize("form", ["duckdb", "parquet"])
def test_odd_lines_keep_their_number_and_their_text(jsonl, duckdb_of, tmp_path, form) -> None:
    source = jsonl(LINES)
    with open(source, "rb") as stream:
        written = list(read_jsonl(stream))
    path = duckdb_of(source)
    if form == "parquet":
        with open_trace(path) as trace:
            export_parquet(trace, tmp_path / "t.parquet")
        path = duckdb_of(tmp_path / "t.parquet")
    assert stored(path) == written
    assert [event.pos for event in written][:3] == [1, 4, 5]
    assert exported(path) == written


def test_names_that_were_integers_stay_integers(jsonl, duckdb_of) -> None:
    reqs = [7, "7", -1, "", "x"]
    path = duckdb_of(jsonl({"ev": "admit", "req": req} for req in reqs))
    assert [event["req"] for event in stored(path)] == reqs


def test_a_lone_surrogate_made_in_process_is_kept(tmp_path: Path) -> None:
    data = {"ev": "admit", "req": "a\ud800\\", "reason": "\udcff", "x-\ud800": 1}
    with TraceWriter(tmp_path / "t.duckdb") as writer:
        writer.write([Event.of(1, data)])
    (event,) = stored(str(tmp_path / "t.duckdb"))
    assert event.data == data


def test_gzipped_lines_are_the_same(cases, read_events, tmp_path: Path, duckdb_of) -> None:
    case, zipped = cases["A01"], tmp_path / "trace.jsonl.gz"
    zipped.write_bytes(gzip.compress(case.bad.read_bytes()))
    assert stored(str(zipped)) == read_events(case.bad)
    assert stored(duckdb_of(zipped)) == read_events(case.bad)


def test_parts_of_one_recording_count_on(jsonl, duckdb_of) -> None:
    first = jsonl([{"ev": "admit", "req": "a"}, "", {"ev": "admit", "req": "b"}], "1.jsonl")
    second = jsonl(["", {"ev": "admit", "req": "a"}], "2.jsonl")
    path = duckdb_of(first, second)
    assert [(e.pos, e["req"]) for e in stored(path)] == [(1, "a"), (3, "b"), (5, "a")]
    with open_trace(path) as trace:
        assert trace.meta["sources"] == [
            {"file": "1.jsonl", "first": 1, "last": 3, "events": 2},
            {"file": "2.jsonl", "first": 4, "last": 5, "events": 1},
        ]
        assert trace.meta["requests"] == 2


FIRST = b'{"ev":"reset"}\n'


def _lines() -> st.SearchStrategy[bytes]:
    objects = st.one_of(events(), mutated(), st.dictionaries(st.text(max_size=3), JSON))
    texts = st.one_of(
        objects.map(lambda data: json.dumps(data, ensure_ascii=False)), st.text(max_size=20)
    )
    encoded = texts.map(lambda t: t.encode("utf-8", "surrogatepass"))
    return st.lists(st.one_of(encoded, st.binary(max_size=12)), max_size=60).map(b"\n".join)


@given(_lines())
@settings(max_examples=25)
def test_any_lines_lose_nothing(text: bytes) -> None:
    written = list(read_jsonl(io.BytesIO(FIRST + text)))
    with tempfile.TemporaryDirectory() as name:
        source, path, parquet = (str(Path(name, f"t.{end}")) for end in ("jsonl", "db", "parquet"))
        Path(source).write_bytes(FIRST + text)
        assert stored(source) == written
        import_traces([source], path)
        assert stored(path) == written
        with open_trace(path) as trace:
            export_parquet(trace, parquet)
        import_traces([parquet], path, force=True)
        assert stored(path) == written


def test_what_was_exported_reads_the_same_again() -> None:
    """Whatever a line was, writing it and reading it gives the same event or the same problem."""
    stream = io.BytesIO("\n".join(LINES).encode())
    written = list(read_jsonl(stream))
    again = io.BytesIO()
    write_jsonl(written, again)
    again.seek(0)
    found = list(read_jsonl(again))
    assert [(e.ev, e.data, e.problem, e.raw) for e in found] == [
        (e.ev, e.data, e.problem, e.raw) for e in written
    ]
    assert sum(e.ev == MALFORMED for e in found) == 4
