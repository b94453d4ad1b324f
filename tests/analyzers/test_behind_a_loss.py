"""Events lost at the start take no finding away but those that rest on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event

CASES = sorted((Path(__file__).parents[2] / "fixtures" / "cases").glob("*/bad.jsonl"))
DECLARED = {"trace", "pool", "group", "kernel", "limits", "evidence", "state", "capture"}
MAY_BE_LOST = {
    "A33": "the first blocks of a request that no event admits",
    "D02": "another capture of the graph",
    "F01": "a hash that was published",
    "F03": "a hash that was published",
    "F07": "a hash that was published",
    "S21": "whoever else holds the block",
}


def _errors(events: list[dict]) -> set[str]:
    found = check([Event.of(n, e) for n, e in enumerate(events, 1)]).findings
    return {f.code for f in found if str(f.severity) == "error" and not f.cause}


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_what_is_wrong_behind_a_loss_is_found(path: Path) -> None:
    events = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    first = next(n for n, e in enumerate(events) if e["ev"] not in DECLARED)
    lane = events[first].get("actor", "sched")
    lost = {"ev": "dropped", "count": 1, "actor": lane}
    missing = _errors(events) - _errors([*events[:first], lost, *events[first:]])
    assert bool(missing) == (path.parent.name in MAY_BE_LOST), missing


@pytest.mark.parametrize("case", ["F01", "F05", "F07"])
def test_a_consumer_is_not_said_to_jump_over_what_the_recorder_lost(case: str) -> None:
    lines = (CASES[0].parents[1] / case / "good.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    told = sorted({e["wseq"] for e in events if e["ev"] == "wire"})
    for lost in told[1:-1]:
        kept = [e for e in events if e.get("wseq") != lost]
        assert "HKV901" in _errors(kept)
        behind = {"ev": "dropped", "count": 1}
        assert "HKV901" not in _errors([e if e in kept else behind for e in events])
