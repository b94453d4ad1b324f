"""One reading interface: the same events and columns from JSON lines and from DuckDB."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from hkvtool.model.event import Event
from hkvtool.model.rows import Names, Row, encode
from hkvtool.state.batch import Batch, ListColumn
from hkvtool.state.codes import CONTROL
from hkvtool.store import Trace, open_trace
from hkvtool.store.columns import ABSENT, IN_BATCH, LISTS, Chunk

COLUMNS = [f.name for f in fields(Batch) if f.name not in ("n", "rest")]


@pytest.fixture(params=["jsonl", "duckdb"])
def opened(request: pytest.FixtureRequest, case, imported) -> Any:
    """A case opened as it stands, or imported first."""
    path = case.bad if request.param == "jsonl" else imported(case.bad)
    with open_trace(path) as trace:
        yield trace


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    """A batch back as rows."""
    rows = []
    for i in range(batch.n):
        row: dict[str, Any] = {name: int(getattr(batch, name)[i]) for name in IN_BATCH}
        for name in LISTS:
            column: ListColumn = getattr(batch, name)
            row[name] = column.values[column.offsets[i] : column.offsets[i + 1]].tolist()
        row["rest"] = batch.rest.get(i)
        rows.append(row)
    return rows


def named(row: dict[str, Any], names: Names) -> dict[str, Any]:
    """A row with names put back: numbers may differ between two readings, names may not."""
    domains = {"pool2": "pool", "actor": "actor"} | {
        d: d for d in ("req", "group", "pool", "handle", "part")
    }
    out = dict(row)
    for column, domain in domains.items():
        out[column] = None if row[column] < 0 else names.name(domain, row[column])
    domain = "req" if row["ev"] in (9, 10, 16, 17) else "group"
    out["group2"] = None if row["group2"] < 0 else names.name(domain, row["group2"])
    out["hashes"] = [names.name("hash", h) for h in row["hashes"]]
    return out


def expected(events: list[Event]) -> list[dict[str, Any]]:
    names = Names()
    out = []
    for event in events:
        row: Row = encode(event, names)
        values: dict[str, Any] = {name: getattr(row, name) for name in IN_BATCH}
        values |= {name: getattr(row, name) or [] for name in LISTS}
        values["rest"] = row.rest if row.ev in CONTROL else None
        out.append(named(values, names))
    return out


def test_batches_are_the_rows_of_the_events(opened: Trace, case, read_events) -> None:
    rows = [named(row, opened.names) for b in opened.batches(7) for row in rows_of(b)]
    assert rows == expected(read_events(case.bad))


def test_batch_columns_are_plain_read_only_int64(cases, imported) -> None:
    for path in (cases["A01"].bad, imported(cases["A01"].bad)):
        with open_trace(path) as trace:
            (batch,) = trace.batches()
        for name in COLUMNS:
            value = getattr(batch, name)
            arrays = [value.offsets, value.values] if isinstance(value, ListColumn) else [value]
            for array in arrays:
                assert array.dtype == np.int64 and array.flags.c_contiguous, name
                assert not array.flags.writeable, name


def test_batches_of_a_stretch(cases, imported) -> None:
    for path in (cases["A01"].bad, imported(cases["A01"].bad)):
        with open_trace(path) as trace:
            positions = [int(p) for b in trace.batches(since=5, until=9) for p in b.pos]
            assert positions == [5, 6, 7, 8, 9]
            assert list(trace.batches(since=10**9)) == []


def test_absent_values_have_the_numbers_that_rows_give_them() -> None:
    (row,) = [Row(1, 15)]
    batch = Chunk.of([row]).batch()
    assert {n: int(getattr(batch, n)[0]) for n in IN_BATCH} == {
        n: getattr(row, n) for n in IN_BATCH
    }
    assert set(ABSENT) == set(Row._field_defaults) - {"blocks", "blocks2", "hashes"} - {
        "rest", "problem",
    }  # fmt: skip


def conditions(events: list[Event]) -> list[dict[str, Any]]:
    """Questions to ask of a trace, from what is in it."""
    reqs = {e.req for e in events if e.req is not None and e.problem is None}
    kinds = {e.ev for e in events}
    pools = [str(e["pool"]) for e in events if e.ev == "pool" and e.problem is None]
    blocks = {b for e in events for b in _ints(e.get("blocks"))}
    asked: list[dict[str, Any]] = [{"req": r} for r in sorted(reqs)[:4]]
    asked += [{"kinds": {k}} for k in sorted(kinds)[:6]] + [{"kinds": {"?", "alloc", "no-such"}}]
    asked += [{"block": (p, b)} for p in pools[:3] for b in sorted(blocks)[:4]]
    asked += [{"since": 8, "until": 20}, {"since": 8, "kinds": kinds, "req": "r1"}, {"req": "'"}]
    asked += [{"block": (pools[0], b), "since": 12, "kinds": kinds} for b in sorted(blocks)[:2]]
    return asked


def _ints(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [b for blocks in value.values() for b in _ints(blocks)]
    return [b for b in value if isinstance(b, int)] if isinstance(value, list) else []


def test_both_forms_give_the_same_answers(case, read_events, imported) -> None:
    events = read_events(case.bad)
    with open_trace(case.bad) as lines, open_trace(imported(case.bad)) as rows:
        for condition in conditions(events):
            assert list(rows.events(**condition)) == list(lines.events(**condition)), condition


def test_each_condition_keeps_what_fits(jsonl, duckdb_of) -> None:
    path = jsonl(
        [
            {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 9},
            {"ev": "pool", "pool": "cpu", "medium": "cpu", "blocks": 9},
            {"ev": "group", "group": "kv", "form": "tail", "pool": "gpu", "block_tokens": 1},
            {"ev": "admit", "req": 7},
            {"ev": "alloc", "group": "kv", "blocks": [7], "req": "r1"},
            {"ev": "dispatch", "step": 1, "reqs": ["r1", 7]},
            {"ev": "store_begin", "handle": "h", "group": "kv", "blocks": [5], "to": "cpu",
             "peer": [7]},
            {"ev": "store_end", "handle": "h"},
            {"ev": "lookup", "req": "r2", "hit": {"kv": 0}, "blocks": {"kv": [6, 7]}},
            {"ev": "remap", "pool": "cpu", "map": {"7": 3}},
            {"ev": "copy", "group": "kv", "src": [1], "dst": [7]},
            {"ev": "alloc"},
        ]
    )  # fmt: skip
    for opened in (path, duckdb_of(path)):
        with open_trace(opened) as trace:

            def positions(trace: Trace = trace, **condition: Any) -> list[int]:
                return [event.pos for event in trace.events(**condition)]

            assert positions(req="r1") == [5, 6]
            assert positions(req="7") == positions(req=7) == [4, 6]
            assert positions(req="r\udcff1") == [], "bytes of a command line that are no UTF-8"
            assert positions(block=("gpu", 7)) == [5, 9, 11]
            assert positions(block=("cpu", 7)) == [7, 8, 10]
            assert positions(block=("cpu", 7), since=8, until=9) == [8]
            assert positions(block=("nowhere", 7)) == []
            assert positions(kinds={"alloc"}) == [5, 12]
            assert positions(kinds={"?"}) == [12]
            assert positions(since=11) == [11, 12]
            assert positions(until=0) == []


def test_names_of_a_large_domain_come_in_pages(jsonl, duckdb_of, monkeypatch) -> None:
    monkeypatch.setattr("hkvtool.store.stored_names.PAGE", 3)
    monkeypatch.setattr("hkvtool.store.stored_names._PAGES_KEPT", 2)
    reqs = [f"r{i}" for i in range(20)]
    with open_trace(duckdb_of(jsonl({"ev": "admit", "req": r} for r in reqs))) as trace:
        names = trace.names
        assert [names.name("req", i) for i in (0, 19, 4, 11, 0)] == ["r0", "r19", "r4", "r11", "r0"]
        assert names.name("req", np.int64(7)) == "r7"
        assert names.count("req") == len(names.values["req"]) == 20
        assert list(names.values["req"]) == reqs
        assert names.find("req", "r13") == 13 and names.find("req", "zz") == -1
        with pytest.raises(IndexError):
            names.name("req", 20)
        with pytest.raises(KeyError):
            names.count("no-such-domain")


def test_a_long_trace_of_lines_is_read_anew_each_time(jsonl, monkeypatch) -> None:
    monkeypatch.setattr("hkvtool.store.lines._KEPT_EVENTS", 2)
    path = jsonl({"ev": "admit", "req": f"r{i}"} for i in range(5))
    with open_trace(path) as trace:
        first = list(trace.events())
        assert trace.count == 5
        assert list(trace.events()) == first and len(first) == 5


def test_reading_half_a_trace_keeps_no_half(jsonl) -> None:
    with open_trace(jsonl({"ev": "admit", "req": f"r{i}"} for i in range(5))) as trace:
        next(trace.events())
        assert [e.pos for e in trace.events()] == [1, 2, 3, 4, 5]


def test_several_readings_at_once(cases, imported) -> None:
    with open_trace(imported(cases["A01"].bad)) as trace:
        one, other = trace.events(), trace.events()
        assert [next(one), next(other)] == [next(trace.events())] * 2
        assert list(one) == list(other)
        assert trace.names.count("group") >= 1
