"""The views say what the events say."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from hkvtool.store import open_trace
from hkvtool.store.duck import DuckTrace
from hkvtool.store.history import history
from hkvtool.store.places import Places
from hkvtool.store.views import VIEWS


def ask(path: str, query: str) -> list[tuple[Any, ...]]:
    with open_trace(path) as trace:
        assert isinstance(trace, DuckTrace)
        found: list[tuple[Any, ...]] = trace.select(query).fetchall()
        return found


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_columns_are_those_documented(view, cases, imported) -> None:
    described = ask(imported(cases["A01"].bad), f"DESCRIBE {view.name}")
    assert [row[0] for row in described] == list(view.columns)
    assert all(view.columns.values())


def test_block_events_are_the_places_of_the_events(case, read_events, imported) -> None:
    for arm in case.arms:
        places = Places()
        expected = [
            (e.pos, e.ev, p.pool, p.group, p.block, p.role)
            for e in read_events(arm)
            for p in places.of(e)
        ]
        found = ask(imported(arm), 'SELECT pos, ev, pool, "group", block, role FROM block_events')
        assert sorted(found, key=repr) == sorted(expected, key=repr)
        assert [row[0] for row in found] == sorted(row[0] for row in found)


def test_generations_are_those_of_the_history(case, imported) -> None:
    path = imported(case.bad)
    found = defaultdict(set)
    query = "SELECT pool, block, pos, generation FROM block_events WHERE pool IS NOT NULL"
    for pool, block, pos, generation in ask(path, query):
        found[pool, block].add((pos, generation))
    with open_trace(case.bad) as trace:
        for (pool, block), moments in found.items():
            told = {(m.event.pos, m.generation) for m in history(trace, pool, block)}
            assert told == moments, (pool, block)


def test_a_state_says_which_generation_it_is(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "free", "pool": "gpu", "blocks": [1]},
                {"ev": "state", "pool": "gpu", "blocks": [2, 1], "gens": [0, 41]},
                {"ev": "alloc", "pool": "gpu", "blocks": [1, 2]},
                {"ev": "state", "pool": "gpu", "blocks": [1]},
                {"ev": "alloc", "pool": "gpu", "blocks": [1]},
            ]
        )
    )
    found = ask(path, "SELECT pos, generation FROM block_events WHERE block = 1")
    assert found == [(1, None), (2, 41), (3, 42), (4, 42), (5, 43)]


def test_event_log_puts_names_back(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "free", "blocks": [1], "group": "kv", "owner": "pin", "req": 7},
                {"ev": "copy", "src": [1], "dst": [2], "dst_group": "tail", "src_group": "swa"},
                {"ev": "use", "group": "kv", "blocks": [1], "step": 3, "part": 0, "pad": True},
                {"ev": "load_end", "handle": "h", "ok": False, "actor": "dma:0"},
                {"ev": "store_end", "handle": "h"},
                {"ev": "dispatch", "step": 3},
                {"ev": "alloc"},
            ]
        )
    )
    rows = ask(path, 'SELECT ev, actor, req, "group", group2, owner, part, pad, ok FROM event_log')
    assert rows == [
        ("free", "sched", "7", "kv", None, "pin", None, False, None),
        ("copy", "sched", None, None, "tail", None, None, False, None),
        ("use", "device", None, "kv", None, None, "0", True, None),
        ("load_end", "dma:0", None, None, None, None, None, False, False),
        ("store_end", "sched", None, None, None, None, None, False, True),
        ("dispatch", "sched", None, None, None, None, None, False, None),
        ("?", "sched", None, None, None, None, None, False, None),
    ]
    assert ask(path, "SELECT src_group, aux FROM event_log WHERE ev = 'copy'") == [("swa", None)]
    assert ask(path, "SELECT problem FROM event_log WHERE ev = '?'") == [
        ("alloc: key `blocks` is missing",)
    ]


def test_hits_go_group_by_group(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "lookup", "req": "r", "tokens": 70, "hit": {'a"b': 64, "swa": 32},
                 "blocks": {'a"b': [1, 2]}},
                {"ev": "resume", "req": "r", "at": 32, "route": {"swa": "reuse"},
                 "blocks": {'a"b': [], "swa": [3]}},
                {"ev": "resume", "req": "r", "at": 0},
            ]
        )
    )  # fmt: skip
    assert ask(path, 'SELECT pos, ev, asked, "group", hit, route, blocks FROM hits') == [
        (1, "lookup", 70, 'a"b', 64, None, [1, 2]),
        (1, "lookup", 70, "swa", 32, None, None),
        (2, "resume", 32, 'a"b', None, None, []),
        (2, "resume", 32, "swa", None, "reuse", [3]),
        (3, "resume", 0, None, None, None, None),
    ]


def test_transfers_find_their_own_end(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "load_begin", "handle": "a", "group": "kv", "blocks": [1], "from": "cpu"},
                {"ev": "store_begin", "handle": 5, "group": "kv", "blocks": [2], "bytes": 10},
                {"ev": "load_end", "handle": "a", "ok": False, "failed": [1]},
                {"ev": "load_begin", "handle": "a", "group": "kv", "blocks": [1], "ts": 9},
                {"ev": "load_begin", "handle": "a", "group": "kv", "blocks": [3]},
                {"ev": "load_end", "handle": "a", "ts": 12},
            ]
        )
    )
    query = "SELECT handle, direction, begin_pos, end_pos, ok, far_pool, bytes, failed, end_ts"
    assert ask(path, query + " FROM transfers") == [
        ("a", "load", 1, 3, False, "cpu", None, [1], None),
        ("5", "store", 2, None, None, None, 10, None, None),
        ("a", "load", 4, None, None, None, None, None, None),
        ("a", "load", 5, 6, True, None, None, None, 12),
    ]


def test_requests_say_how_they_ended(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "admit", "req": "a", "external": "chat-1", "tenant": "t"},
                {"ev": "refuse", "req": "b"},
                {"ev": "preempt", "req": "a"},
                {"ev": "abort", "req": "a"},
                {"ev": "admit", "req": "a"},
                {"ev": "finish", "req": "a"},
            ]
        )
    )
    assert ask(path, "SELECT * FROM requests") == [
        ("a", "chat-1", "t", 5, 1, 6, 1, 6, "finish", 0, 1),
        ("b", None, None, 1, 2, 2, None, None, None, 1, 0),
    ]


def test_hash_events_pair_hashes_with_blocks(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "publish", "group": "kv", "blocks": [4, 5], "hashes": ["x", 9], "req": "r"},
                {"ev": "unpublish", "hashes": ["x"]},
            ]
        )
    )
    assert ask(path, "SELECT * FROM hash_events") == [
        (1, "publish", "r", "kv", 4, "x"),
        (1, "publish", "r", "kv", 5, "9"),
        (2, "unpublish", None, None, None, "x"),
    ]


def test_declarations(jsonl, duckdb_of) -> None:
    path = duckdb_of(
        jsonl(
            [
                {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 9, "reserved": [0]},
                {"ev": "group", "group": "swa", "form": "swa", "pool": "gpu", "block_tokens": 16,
                 "window": 128, "participates": False, "x": "\ud800"},
            ]
        )
    )  # fmt: skip
    assert ask(path, "SELECT * FROM pools") == [(1, "gpu", "gpu", 9, [0], None)]
    assert ask(path, 'SELECT "group", form, ratio FROM groups') == []


def test_one_damaged_text_does_not_end_a_query(tmp_path) -> None:
    from hkvtool.model.event import Event
    from hkvtool.store.writer import TraceWriter

    path = str(tmp_path / "t.duckdb")
    half = {"ev": "lookup", "req": "r", "hit": {"\ud800": 1}}
    whole = {"ev": "lookup", "req": "s", "hit": {"kv": 1}}
    with TraceWriter(path) as writer:
        writer.write([Event.of(1, half), Event.of(2, whole)])
    assert ask(path, 'SELECT req, "group" FROM hits') == [("r", None), ("s", "kv")]
    assert ask(path, "SELECT count(*) FROM block_events") == [(0,)]
