"""What blocks hold goes along where their places or their memory change."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import confirm
from hkvtool.replay.whole import replay

_HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step", "layout", "graph", "map"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64},
    {
        "ev": "group", "group": "g", "form": "compressed", "pool": "gpu", "block_tokens": 16,
        "layout": {"row_bytes": 64, "page_bytes": 1024, "stride_bytes": 1024},
    },
    {"ev": "alloc", "req": "a", "group": "g", "blocks": [1, 2]},
    {"ev": "write", "req": "a", "group": "g", "blocks": [1, 2], "tokens": [0, 32]},
]  # fmt: skip
_READ = {"ev": "use", "req": "a", "group": "g", "blocks": [1, 2], "tokens": [0, 32]}


def _events(*rest: dict[str, Any]) -> list[Event]:
    return [Event.of(i, e) for i, e in enumerate([*_HEAD, *rest], 1)]


def _wrong(*rest: dict[str, Any]) -> dict[int, int]:
    events = _events(*rest)
    return replay(Setting(events, survey(events))).account.wrong_at


@pytest.mark.parametrize(
    "moved",
    [
        {},
        {"reason": "realloc", "pointers": {"kv": 8192}},
        {"reason": "resize", "layout": {"page_bytes": 1024, "stride_bytes": 2048}},
        {"group": "g", "reason": "wake", "layout": {"base": 1 << 20}},
    ],
)
@pytest.mark.parametrize("times", [1, 3])
def test_memory_that_moves_keeps_what_blocks_hold(moved: dict[str, Any], times: int) -> None:
    event = {"ev": "rebase", "pool": "gpu", **moved}
    assert _wrong(*[event] * times, _READ) == {}
    more = {"ev": "write", "req": "a", "group": "g", "blocks": [2], "tokens": [31, 32]}
    assert _wrong(event, more, event, _READ) == {}


def test_memory_that_slept_has_forgotten() -> None:
    sleep = {"ev": "rebase", "pool": "gpu", "reason": "sleep"}
    wake = {"ev": "rebase", "pool": "gpu", "reason": "wake"}
    assert _wrong(sleep, wake, _READ) == {8: 32}


def test_blocks_that_change_places_take_along_what_they_hold() -> None:
    swap = {"ev": "remap", "pool": "gpu", "map": {"1": 2, "2": 1}}
    assert _wrong(swap, _READ) == {}
    away = {"ev": "remap", "pool": "gpu", "map": {"1": 5}}
    assert _wrong(away, _READ) == {}
    assert _wrong(away, {**_READ, "index": [1, 2]}) == {7: 16}


def test_a_step_that_works_on_memory_that_moved_is_confirmed() -> None:
    events = _events(
        {"ev": "dispatch", "step": 1, "reqs": ["a"]},
        {"ev": "rebase", "pool": "gpu", "reason": "realloc", "pointers": {"kv": 8192}},
        {**_READ, "step": 1},
        {"ev": "retire", "step": 1},
    )
    report = check(iter(events))
    (finding,) = report.findings
    result = confirm(Setting(events, survey(events), runs=2), report, finding)
    assert (finding.code, result.verdict) == ("HKV804", "confirmed")
    assert result.fault is not None and "when it was dispatched" in result.fault.plan.words
