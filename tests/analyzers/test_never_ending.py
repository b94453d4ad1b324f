"""A load that never ends is the root of what its readers found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hkvtool.analyzers import check
from hkvtool.analyzers.screen import narrowed_down
from hkvtool.model.event import Event
from hkvtool.store import open_trace
from hkvtool.store.importing import import_traces

LINES: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8, "reserved": [0]},
    {"ev": "pool", "pool": "cpu", "medium": "cpu", "blocks": 8},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    {"ev": "admit", "req": "r1"},
    {"ev": "lookup", "req": "r1", "hit": {"kv": 16}, "tokens": 32},
    {"ev": "alloc", "group": "kv", "req": "r1", "blocks": [1, 2]},
    {"ev": "load_begin", "handle": "l1", "group": "kv", "blocks": [1], "req": "r1",
     "from": "cpu", "peer": [3], "tokens": [0, 16]},
    {"ev": "resume", "req": "r1", "at": 16, "blocks": {"kv": [1]}, "route": {"kv": "load"}},
    {"ev": "dispatch", "step": 1, "reqs": ["r1"]},
    {"ev": "write", "group": "kv", "req": "r1", "step": 1, "blocks": [2], "tokens": [16, 32]},
    {"ev": "use", "group": "kv", "req": "r1", "step": 1, "blocks": [1, 2], "tokens": [0, 32]},
    {"ev": "retire", "step": 1},
    {"ev": "free", "group": "kv", "req": "r1", "blocks": [2, 1]},
    {"ev": "finish", "req": "r1"},
]  # fmt: skip


def told(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    events = [Event.of(pos, line) for pos, line in enumerate(lines, 1)]
    found: list[dict[str, Any]] = check(events).as_json()["findings"]
    return found


def test_a_load_that_never_ends_leads_what_its_reader_found() -> None:
    read, load = told(LINES)
    assert (load["code"], load["events"], load.get("cause")) == ("HKV605", [8], None)
    assert (read["code"], read["cause"]) == ("HKV305", load["id"])
    assert load["caused"] == [read["id"]]


def test_a_read_of_a_load_that_ends_too_late_stands_by_itself() -> None:
    late = [*LINES[:-1], {"ev": "load_end", "handle": "l1"}, LINES[-1]]
    assert [(f["code"], f.get("cause")) for f in told(late)] == [("HKV305", None)]


def stopped(seconds: float) -> list[dict[str, Any]]:
    """A store is under way when its request ends, and the recording stops so much later."""
    store = {"ev": "store_begin", "handle": "s1", "group": "kv", "blocks": [1], "to": "cpu",
             "peer": [3]}  # fmt: skip
    free, finish = LINES[-2:]
    lines = [*LINES[:8], {"ev": "load_end", "handle": "l1"}, *LINES[8:13], store, free, finish,
             {"ev": "admit", "req": "r2"}, {"ev": "finish", "req": "r2"}]  # fmt: skip
    at = 0
    timed = []
    for line in lines:
        at += int(seconds * 1e9) if line.get("req") == "r2" and line["ev"] == "admit" else 1000
        timed.append({**line, "ts": at})
    return timed


def by_screen(lines: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    source = folder / "t.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    import_traces([str(source)], folder / "t.duckdb", force=True)
    with open_trace(str(folder / "t.duckdb")) as trace:
        found: list[dict[str, Any]] = narrowed_down(trace).as_json()["findings"]
    return found


def test_what_began_shortly_before_a_recording_stops_may_still_end(tmp_path: Path) -> None:
    for lines in (stopped(0.5), stopped(9.0)):
        assert told(lines) == [] == by_screen(lines, tmp_path)
    late = stopped(11.0)
    assert [f["code"] for f in told(late)] == ["HKV605"]
    assert by_screen(late, tmp_path) == told(late)
    # Without times the end of the trace is the end of everything.
    bare = [{k: v for k, v in line.items() if k != "ts"} for line in stopped(0.5)]
    assert [f["code"] for f in told(bare)] == ["HKV605"]
    assert by_screen(bare, tmp_path) == told(bare)
