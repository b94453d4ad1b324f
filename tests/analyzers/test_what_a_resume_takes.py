"""A lookup may find more than a request then goes on from. What it leaves may be handed out again,
and may come back to it later with the same content: that is no change under its hands."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event

Data = dict[str, Any]

BEGIN: list[Data] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8, "reserved": [0]},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 4},
    {"ev": "alloc", "group": "kv", "req": "r1", "blocks": [1, 2]},
    {"ev": "write", "group": "kv", "req": "r1", "blocks": [1, 2], "tokens": [0, 8]},
    {"ev": "publish", "group": "kv", "req": "r1", "blocks": [1, 2], "hashes": ["a", "b"],
     "tokens": [0, 8]},
    {"ev": "free", "group": "kv", "req": "r1", "blocks": [1, 2]},
    {"ev": "lookup", "req": "r2", "tokens": 12, "hit": {"kv": 8}, "blocks": {"kv": [1, 2]}},
]  # fmt: skip


def after(at: int, blocks: list[int], own: list[int]) -> list[Data]:
    """The request goes on at a token; the second block is handed out again and filled with the same
    tokens, and the request takes it in place of one of its own."""
    return [
        {"ev": "resume", "req": "r2", "at": at, "blocks": {"kv": blocks}},
        {"ev": "touch", "group": "kv", "req": "r2", "blocks": [1]},
        {"ev": "alloc", "group": "kv", "req": "r2", "blocks": own},
        {"ev": "write", "group": "kv", "req": "r2", "blocks": own, "tokens": [12 - 4 * len(own), 12]},
        {"ev": "unpublish", "group": "kv", "blocks": [2], "reason": "evict"},
        {"ev": "alloc", "group": "kv", "req": "r3", "blocks": [2], "tokens": [4, 8]},
        {"ev": "write", "group": "kv", "req": "r3", "blocks": [2], "tokens": [4, 8]},
        {"ev": "publish", "group": "kv", "req": "r3", "blocks": [2], "hashes": ["b"],
         "tokens": [4, 8]},
        {"ev": "free", "group": "kv", "req": "r3", "blocks": [2]},
        {"ev": "touch", "group": "kv", "req": "r2", "blocks": [2]},
        {"ev": "use", "group": "kv", "req": "r2", "blocks": [1, 2, own[-1]], "tokens": [0, 12]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("at", "blocks", "own", "found"), [(4, [1], [3, 4], False), (8, [1, 2], [4], True)]
)
def test_what_is_left_is_not_checked(
    at: int, blocks: list[int], own: list[int], found: bool
) -> None:
    events = [*BEGIN, *after(at, blocks, own)]
    report = check(Event.of(pos, data) for pos, data in enumerate(events, 1))
    assert ("HKV701" in {f.code for f in report.findings}) is found, report.findings
