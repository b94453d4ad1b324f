"""The measure of the ring: every way takes part, and stored events are really stored."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.bench import ring


def test_every_way_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "_ROUNDS", 3)
    found = ring.costs()
    assert [cost.event for cost in found] == list(ring.EVENTS)
    for cost in found:
        assert set(cost.ways) == {
            "plain call", "encode", "ring", "recording", "prepared", "JSON line"
        }  # fmt: skip
        assert all(0 < way.least <= way.median for way in cost.ways.values())
        assert cost.payload_bytes < min(cost.record_bytes, cost.json_bytes)


def test_ways_store_what_they_are_given(tmp_path: Any) -> None:
    event = ring.EVENTS["write, 1 block"]
    with ring._ways(tmp_path, event) as ways:
        assert ways["ring"](event) is True
        assert ways["recording"](event) is True
        assert ways["prepared"](event) is True
        ways["JSON line"](event)
    assert (tmp_path / "a.jsonl").read_text().count("\n") == 1
