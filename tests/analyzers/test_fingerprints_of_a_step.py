"""A fingerprint of a step is of what the step left, be the block another's by now."""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event


def _events(step: int | None, handed_on: bool) -> list[Event]:
    """Block 3 is written by step 1 and read behind it, which its trace shows late."""
    first = {"ev": "fingerprint", "group": "kv", "blocks": [3], "values": [77], "at": "publish"}
    if step is not None:
        first["step"] = step
    to_another: list[dict[str, Any]] = [
        {"ev": "free", "pool": "gpu", "blocks": [3], "req": "r1"},
        {"ev": "alloc", "group": "kv", "blocks": [3], "req": "r2", "start": 0},
        {"ev": "dispatch", "step": 2, "reqs": ["r2"]},
        {"ev": "write", "group": "kv", "blocks": [3], "tokens": [0, 16], "step": 2},
    ]
    told: list[dict[str, Any]] = [
        {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step", "bytes"]},
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "tail", "pool": "gpu", "block_tokens": 16},
        {"ev": "alloc", "group": "kv", "blocks": [3], "req": "r1", "start": 0},
        {"ev": "dispatch", "step": 1, "reqs": ["r1"]},
        {"ev": "write", "group": "kv", "blocks": [3], "tokens": [0, 16], "step": 1},
        *(to_another if handed_on else []),
        first,
        {"ev": "retire", "step": 1},
        {"ev": "fingerprint", "group": "kv", "blocks": [3], "values": [88], "at": "resume"},
    ]
    return [Event.of(i, e) for i, e in enumerate(told, 1)]


def _codes(events: list[Event]) -> list[str]:
    return [f.code for f in check(events).findings if f.code in ("HKV905", "HKV906")]


def test_what_was_read_before_another_had_the_block_is_not_taken_for_its_bytes() -> None:
    assert _codes(_events(1, handed_on=True)) == []


def test_bytes_that_changed_while_the_block_was_held_are_found() -> None:
    assert _codes(_events(1, handed_on=False)) == ["HKV906"]
    assert _codes(_events(None, handed_on=True)) == ["HKV906"], "both are of one moment"
