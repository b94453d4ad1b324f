"""What is left of a trace shows the same finding, and nothing of it is spare."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.model.rules import Severity
from hkvtool.replay.deletion import delete, longest
from hkvtool.replay.edits import switches, trimmed
from hkvtool.replay.minimize import Failure, Minimal, judged, minimize


@pytest.mark.parametrize("most", [0, 1, 3, 4, 5, 17, 1000])
def test_the_longest_run_is_found(most: int) -> None:
    for true_up_to in {0, 1, most // 2, most - 1, most}:
        if true_up_to >= 0:
            assert longest(lambda n, up=true_up_to: n <= up, most) == min(true_up_to, most)  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(20))
def test_deletion_keeps_what_is_needed_and_asks_seldom(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 7, 100, 5000])
    needed = set(chance.sample(range(size), min(size, chance.randint(1, 8))))
    asked = 0

    def enough(kept: list[int]) -> bool:
        nonlocal asked
        asked += 1
        return needed <= set(kept)

    assert delete(range(size), enough) == sorted(needed)
    assert asked < 60 + 40 * len(needed)


def test_events_lose_blocks_with_what_stands_beside_them() -> None:
    event = {
        "ev": "publish", "group": "kv", "blocks": [4, 5, 6, 7], "hashes": ["a", "b", "c", "d"],
        "tokens": [32, 90],
    }  # fmt: skip
    assert trimmed(event, frozenset({5, 6}), 16) == {
        "ev": "publish", "group": "kv", "blocks": [5, 6], "hashes": ["b", "c"], "tokens": [48, 80],
    }  # fmt: skip
    assert trimmed(event, frozenset({9}), 16) is None
    assert trimmed(event, frozenset({4, 7}), 16) is None


def same(small: Minimal, whole: list[Event]) -> None:
    """The result stands on its own, and no event of it can go."""
    again = judged(small.events)
    roots = [f for f in again.findings if not f.cause]
    events = [Event.of(pos, data) for pos, data in enumerate(small.events, 1)]
    assert any(small.failure.covers(Failure.of(f, events)) for f in roots)
    known = {f.code for f in check(whole).findings}
    assert small.complete and len(small.events) <= len(whole) + 1
    for index in range(1, len(small.events)):
        rest = [*small.events[:index], *small.events[index + 1 :]]
        left = [Event.of(pos, data) for pos, data in enumerate(rest, 1)]
        findings = judged(rest).findings
        still = any(small.failure.covers(Failure.of(f, left)) for f in findings if not f.cause)
        codes = {f.code for f in findings if f.severity is Severity.ERROR}
        assert not still or codes - known, f"{small.events[index]} is spare"


def minimized(path: Any, read_events: Callable[..., list[Event]]) -> tuple[Minimal, list[Event]]:
    whole = read_events(path)
    report = check(whole)
    wanted = min((f for f in report.findings if not f.cause), key=lambda f: -f.severity.rank)
    return minimize(whole, report, wanted), whole


@pytest.mark.parametrize("name", ["A01", "B03", "C05", "D06", "E01", "S09"])
def test_cases_shrink_to_an_explanation(
    name: str, cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    small, whole = minimized(cases[name].bad, read_events)
    same(small, whole)
    assert small.happenings <= 12 and small.checks <= 400
    assert switches(small.events) == small.switches <= 3
    assert all("seq" not in data for data in small.events if data["ev"] not in DECLARATIONS)


@pytest.mark.soak
def test_every_case_shrinks(case: Any, read_events: Callable[..., list[Event]]) -> None:
    small, whole = minimized(case.bad, read_events)
    same(small, whole)
    assert small.checks <= 400


def test_a_budget_ends_with_the_smallest_so_far(
    cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    whole = read_events(cases["B03"].bad)
    report = check(whole)
    wanted = next(f for f in report.findings if not f.cause)
    small = minimize(whole, report, wanted, budget=3)
    assert not small.complete and small.checks == 3
    assert any(f.code == wanted.code for f in judged(small.events).findings)
