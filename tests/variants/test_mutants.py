"""The share of harmful mutants that is caught does not fall; the judges are silent on what is whole.

The table of `docs/checking.md` is `python -m variants.mutants --traces 120 --each 3`.
"""

from __future__ import annotations

from random import Random

import pytest

from . import mutants
from .correct import correct_run
from .memory import Memory
from .mutants import OPERATORS, study, table
from .options import random_options
from .races_judge import race
from .verdict import report_on


def test_the_judges_have_nothing_to_say_of_clean_traces() -> None:
    for number in range(12):
        options = mutants._whole(random_options(Random(f"mutants {number}")))
        events, requests = correct_run(number, options)
        assert next(iter(Memory(requests).run(events, options.late_device)), None) is None, number
        if options.streams and not options.layerwise:
            assert race(events) is None, number


def test_the_race_judge_sees_an_edge_that_is_gone() -> None:
    found = 0
    for number in range(40):
        rng = Random(f"edges {number}")
        options = mutants._whole(random_options(rng))
        if not options.streams or options.layerwise:
            continue
        events, _ = correct_run(number, options)
        mutant = OPERATORS["delete an edge"](events, rng)
        if mutant is not None and race(events) is None:
            found += race(mutant[1]) is not None
        if found >= 2:
            return
    assert found >= 2


def test_most_harmful_mutants_are_caught() -> None:
    found = study(8, 1, seed=100)
    harmful = sum(t.harmful for t in found.values())
    caught = sum(t.caught for t in found.values())
    assert harmful >= 15 and caught >= 0.7 * harmful, "\n".join(table(found))
    for sure in ("change a layout key", "change a KV version"):
        assert found[sure].missed == []


@pytest.mark.parametrize(
    ("number", "operator"),
    [
        (514, "change the request"),  # HKV704: what it writes was published early
        (558, "change a block of an access"),  # HKV708: behind the end of what is published whole
    ],
)
def test_a_write_into_another_requests_block(number: int, operator: str) -> None:
    rng = Random(f"mutants {number}")
    options = mutants._whole(random_options(rng))
    events, requests = correct_run(number, options)
    harmful = 0
    for name, operate in OPERATORS.items():
        for mutant in [operate(events, rng) for _ in range(3)]:
            if name == operator and mutant and mutants.harm(name, mutant, requests, options, False):
                harmful += 1
                found = report_on(mutant[1]).findings
                assert any(str(f.severity) == "error" for f in found), mutant[0]
    assert harmful


@pytest.mark.soak
def test_the_study_at_length() -> None:
    found = study(300, 3, seed=1000)
    harmful = sum(t.harmful for t in found.values())
    caught = sum(t.caught for t in found.values())
    print("\n".join(table(found)))
    assert harmful > 1500 and caught >= 0.85 * harmful
