"""Nothing is found where nothing is wrong: correct engines of every kind."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from .correct import SWITCHES, Options, correct_trace, random_options
from .handover import handover_trace
from .options import FAMILIES
from .verdict import ALWAYS_WARNING, loud, report_on


def _allowed(options: Options) -> set[str]:
    """A recorder that lost events says so, and the checker repeats it."""
    return ALWAYS_WARNING | ({"HKV903"} if options.dropped else set())


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_silent(name: str) -> None:
    for family in FAMILIES:
        options = replace(Options(family=family), **SWITCHES[name])
        if options.valid():
            found = loud(report_on(correct_trace(11, options)), _allowed(options))
            assert not found, (options, found[0].code, found[0].events, found[0].message)


@pytest.mark.parametrize("seed", range(30))
def test_everything_at_once_is_silent(seed: int) -> None:
    options = random_options(Random(seed))
    found = loud(report_on(correct_trace(seed, options)), _allowed(options))
    assert not found, (options, found[0].code, found[0].events, found[0].message)


@pytest.mark.parametrize(("streams", "lease"), [(True, False), (True, True), (False, False)])
def test_a_hand_over_is_silent(streams: bool, lease: bool) -> None:
    for seed in range(10):
        assert not loud(report_on(handover_trace(seed, streams, lease))), seed


@pytest.mark.parametrize("seed", [5143])
def test_a_step_that_outlives_the_table_it_was_handed_out_with_is_silent(seed: int) -> None:
    # Preempted and resumed on other blocks while a step still reads the old ones; later a load
    # fills a gap between blocks that are there.
    options = random_options(Random(seed))
    assert options.preempt and options.late_device and not options.dropped
    assert not loud(report_on(correct_trace(seed, options)))


def test_what_cleared_a_null_block_may_be_lost() -> None:
    options = random_options(Random(5811))
    assert options.dropped
    assert not loud(report_on(correct_trace(5811, options)), _allowed(options))


def test_a_load_whose_request_is_gone_leaves_bytes_that_are_cleared() -> None:
    assert not loud(report_on(correct_trace(5918, random_options(Random(5918)))))
