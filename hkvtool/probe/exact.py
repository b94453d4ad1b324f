"""Exact statistics of small counts, so that nothing rests on an approximation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb

CONFIDENCE = 0.95


def fisher(hits: int, trials: int, control_hits: int, control_trials: int) -> float:
    """Fisher's exact test, one-sided: how likely so many of the hits, or more, fall among the
    trials if they are of one kind with the controls."""
    if not trials or not control_trials:
        return 1.0
    total, both = trials + control_trials, hits + control_hits
    ways = sum(
        comb(trials, k) * comb(control_trials, both - k)
        for k in range(hits, min(trials, both) + 1)
        if both - k <= control_trials
    )
    return min(1.0, ways / comb(total, both))


def holm(values: Sequence[float]) -> list[float]:
    """p-values corrected for how many were asked for (Holm's step-down), in the same order."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted = [0.0] * len(values)
    most = 0.0
    for rank, at in enumerate(order):
        most = max(most, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = most
    return adjusted


def interval(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Clopper-Pearson interval of a rate."""
    if not trials:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    low = 0.0 if not hits else _root(lambda p: 1 - _at_most(hits - 1, trials, p) - tail)
    high = 1.0 if hits == trials else _root(lambda p: tail - _at_most(hits, trials, p))
    return low, high


def detectable(trials: int, seen: float = 1.0, confidence: float = CONFIDENCE) -> float:
    """The least rate of faults of which one shows in so many trials with that confidence, where a
    fault is `seen` with that probability when it happens; 1 where none would do."""
    if not trials or seen <= 0:
        return 1.0
    rate: float = (1 - (1 - confidence) ** (1 / trials)) / seen
    return min(1.0, rate)


def _at_most(hits: int, trials: int, rate: float) -> float:
    """The chance of at most so many hits."""
    return float(
        sum(comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(hits + 1))
    )


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises over [0, 1] is zero."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2
