"""Two processes check what one does, sooner."""

from __future__ import annotations

import os

import pytest

from hkvtool.bench.fleet_workers import scaling


def test_one_process_and_two_come_to_the_same() -> None:
    one, two = scaling(4_000, 2)
    assert (one.workers, two.workers) == (1, 2)
    assert one.events == two.events > 2_000
    assert one.cpu > 0


@pytest.mark.soak
def test_a_second_process_costs_the_first_little() -> None:
    """HKV_FLEET_EVENTS=200000000 for a fleet's size; by CPU time, as other programs may run."""
    events = int(os.environ.get("HKV_FLEET_EVENTS", "20000000"))
    one, two = scaling(events, 8)
    print(f"\n{one}\n{two}\n{one.wall / two.wall:.2f} times as soon")
    assert two.cpu < 1.5 * one.cpu
