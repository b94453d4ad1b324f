"""Whatever a stream holds, a check of it ends with a report."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.rules import RULES
from tests.state.hostile import hostile

SEEDS = st.integers(0, 1 << 30)


def report(seed: int, size: int) -> None:
    events = [Event.of(pos, line) for pos, line in enumerate(hostile(seed, size), 1)]
    found = check(iter(events)).findings
    assert {finding.code for finding in found} <= set(RULES)
    assert all(0 < pos <= len(events) for finding in found for pos in finding.events)


@settings(max_examples=60)
@given(SEEDS)
@example(416)  # copies into a block that no pool has
def test_a_hostile_stream(seed: int) -> None:
    report(seed, 60)


@pytest.mark.soak
@given(SEEDS)
def test_many_hostile_streams(seed: int) -> None:
    report(seed, 200)
