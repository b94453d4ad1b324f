"""Which evidence a trace is judged by, where a recorder paused or stopped."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event

HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 9},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 4},
    {"ev": "alloc", "req": "a", "group": "kv", "blocks": [1]},
]
NOTHING: dict[str, Any] = {"ev": "evidence", "evidence": []}
AGAIN: dict[str, Any] = {"ev": "evidence", "evidence": ["host", "step"]}
STATE: dict[str, Any] = {
    "ev": "state", "pool": "gpu", "blocks": [1], "refs": [1], "owners": ["a"], "groups": ["kv"],
}  # fmt: skip
TWICE: list[dict[str, Any]] = [{"ev": "free", "req": "a", "group": "kv", "blocks": [1]}] * 2

STEP: dict[str, Any] = {"ev": "dispatch", "step": 1, "reqs": ["a"]}
READ: dict[str, Any] = {"ev": "buffer", "name": "block_table", "op": "read", "step": 1}


@pytest.mark.parametrize(
    ("more", "sees", "found"),
    [
        ([NOTHING], True, []),
        ([*TWICE, NOTHING], True, ["HKV704"]),
        ([NOTHING, *TWICE], False, []),
        ([NOTHING, HEAD[0], *HEAD[1:3], STATE, AGAIN, *TWICE], True, ["HKV704"]),
        ([NOTHING, HEAD[0], *HEAD[1:3], STATE, *TWICE], False, []),
        # A worker tells of the step that was under way when the scheduler's process ended.
        ([STEP, NOTHING, READ], True, []),
    ],
    ids=[
        "ends",
        "found before the end",
        "goes on blind",
        "pauses",
        "paused and says nothing",
        "a step was under way",
    ],
)
def test_a_recorder_that_sees_no_more(
    more: list[dict[str, Any]], sees: bool, found: list[str]
) -> None:
    report = check(Event.of(i, dict(e)) for i, e in enumerate([*HEAD, *more], 1))
    assert ("HKV704" not in report.not_evaluable) == sees
    assert [f.code for f in report.findings] == found
