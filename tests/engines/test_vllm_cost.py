"""`hkvtool bench record --engine` runs its loads on the real engine, and all of it is recorded."""

from __future__ import annotations

import sys

import pytest

from hkvtool.bench.vllm_costs import LOADS, _measured


@pytest.mark.parametrize("load", list(LOADS))
def test_a_load_is_measured(load: str) -> None:
    found = _measured(sys.executable, load, 1)
    assert found.steps > 30 and 2 < found.events_a_step < 40
    assert 30 < found.ring_bytes < 300
    assert found.arms["off"].us_a_step > 50 and found.arms["off"].more_us == 0
    assert found.arms["recording"].more_low <= found.arms["recording"].more_us
