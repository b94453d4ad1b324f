"""The measure of a whole recording: it is a real one, and all of it is counted."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.bench import recording


def test_a_decode_loop_is_recorded_sealed_and_ingested(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(recording, "_STEPS", 60)
    monkeypatch.setattr(recording, "_CALLS", 900)
    cost = recording.record_cost(tmp_path)
    assert cost.events > 60 * recording._REQUESTS and cost.dropped == 0
    assert cost.events_a_step == cost.events / 60
    assert 0 < cost.sealed_bytes < cost.ring_bytes < 200
    assert cost.seal_ns > 0 and cost.ingest_ns > 0
    assert list(tmp_path.iterdir()) == []
