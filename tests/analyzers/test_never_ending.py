"""A load that never ends is the root of what its readers found."""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event

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
