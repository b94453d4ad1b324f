"""Statistics held to their definitions, by enumeration."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, isclose

import pytest

from hkvtool.probe.answers import Answer, difference
from hkvtool.probe.exact import detectable, fisher, holm, interval


def test_fisher_counts_the_arrangements() -> None:
    for trials, controls in product(range(1, 5), repeat=2):
        total = trials + controls
        for both in range(total + 1):
            ways = list(combinations(range(total), both))
            for hits in range(max(0, both - controls), min(trials, both) + 1):
                as_many = sum(sum(i < trials for i in way) >= hits for way in ways)
                assert isclose(fisher(hits, trials, both - hits, controls), as_many / len(ways))
    assert isclose(fisher(8, 8, 0, 8), 1 / comb(16, 8))
    assert fisher(3, 3, 0, 0) == 1.0, "without controls nothing is shown"


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]


def test_an_interval_covers_as_it_should() -> None:
    """Of every rate, at most one outcome in twenty has an interval that misses it."""
    n = 20
    bounds = [interval(k, n) for k in range(n + 1)]
    for rate in (0.01, 0.1, 0.3, 0.5, 0.77, 0.99):
        missed = sum(
            comb(n, k) * rate**k * (1 - rate) ** (n - k)
            for k, (low, high) in enumerate(bounds)
            if not low <= rate <= high
        )
        assert missed <= 0.05
    assert bounds[0][0] == 0 and isclose(bounds[0][1], 1 - 0.025 ** (1 / n), rel_tol=1e-9)


def test_what_would_have_been_seen() -> None:
    assert isclose(detectable(100), 0.02951, rel_tol=1e-3)
    assert isclose(1 - (1 - detectable(50)) ** 50, 0.95)
    assert detectable(10, 0.0) == 1.0 and detectable(100, 0.5) == 2 * detectable(100)


def test_equally_likely_tokens_are_no_difference() -> None:
    near = {"a": -0.6931, "b": -0.6932}
    far = {"a": -0.1, "b": -3.0}
    x = Answer(("a", "c"), (-0.6931, -1.0), (near, {"c": -1.0}))
    y = Answer(("b", "d"), (-0.6930, -1.0), ({"b": -0.6930, "a": -0.6933}, {"d": -1.0}))
    apart = difference(x, y)
    assert apart.token_at == 0 and apart.size < 0.001, "what follows another token is no matter"
    z = Answer(("b",), (-0.2,), ({"b": -0.2, "a": -2.0},))
    assert difference(Answer(("a",), (-0.1,), (far,)), z).size == pytest.approx(2.9)
    assert difference(Answer(("a",)), Answer(("b",))).size == float("inf")
    assert difference(x, x).size == 0 and difference(x, x).token_at is None
