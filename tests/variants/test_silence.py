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


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (6186, "the store of the other component"),
        (6315, "the admission of a request, and the first blocks it took"),
        (20056, "the write of a block that was given out in the meantime, on another lane"),
        (20087, "the edge between a write and the store behind it"),
        (20268, "ends of transfers that counted against the cap"),
        (20430, "the write of a block that is published before its lane is seen again"),
        (22219, "what cleared a block of another form's bytes"),
        (24111, "the write of a generation that a late step still reads"),
        (32143, "a write between two fingerprints"),
        (32294, "a block that moved"),
    ],
)
def test_what_a_finding_needs_may_be_lost(seed: int, why: str) -> None:
    options = replace(random_options(Random(seed)), dropped=True)
    found = loud(report_on(correct_trace(seed, options)), _allowed(options))
    assert not found, (why, found[0].code, found[0].events, found[0].message)


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (6518, "bytes of another form are left where a load has failed"),
        (20184, "what a state says again is not what is on the wire as well"),
        (24193, "of two blocks with the same tokens either has the version that rows follow"),
    ],
)
def test_more_of_what_is_right(seed: int, why: str) -> None:
    options = random_options(Random(seed))
    found = loud(report_on(correct_trace(seed, options)), _allowed(options))
    assert not found, (why, found[0].code, found[0].events, found[0].message)
