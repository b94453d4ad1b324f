"""Deleting as much as possible of a list while something stays true of the rest.

Right to left, in runs found by doubling and halving: for k needed items among n it asks about
k·log2(n) times (MacIver & Donaldson, "Test-case reduction via test-case generation", ECOOP 2020),
where ddmin (Zeller & Hildebrandt, TSE 2002) asks up to n² times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def longest(holds: Callable[[int], bool], most: int) -> int:
    """The largest n up to `most` for which `holds`, found as if it held of all smaller ones."""
    low = 0
    for n in range(1, min(4, most) + 1):
        if not holds(n):
            return low
        low = n
    high = low * 2
    while high < most and holds(high):
        low, high = high, high * 2
    if high >= most:
        if most > low and holds(most):
            return most
        high = most
    while low + 1 < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def delete(items: Sequence[T], enough: Callable[[list[T]], bool]) -> list[T]:
    """A sublist that is still `enough`, and from which no single item was seen to be spare.

    `items` itself must be enough.
    """
    kept = list(items)
    # Most of a long list is spare: halves, quarters, eighths first.
    size = len(kept) // 2
    while size > 4:
        end = len(kept)
        while end > 0:
            rest = kept[: max(0, end - size)] + kept[end:]
            if enough(rest):
                kept = rest
            end -= size
        size //= 4
    end = len(kept)
    while end > 0:
        cut = _longest_cut(kept, end, enough)
        kept = kept[: end - cut] + kept[end:]
        end -= max(cut, 1)
    return kept


def _longest_cut(kept: list[T], end: int, enough: Callable[[list[T]], bool]) -> int:
    return longest(lambda n: enough(kept[: end - n] + kept[end:]), end)
