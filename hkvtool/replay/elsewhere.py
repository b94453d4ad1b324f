"""Verdicts on schedules that are worked out somewhere else, ahead of the search that asks for them.

A search says which orders come next whatever comes of them, so others may run them meanwhile. It
takes the verdicts in its own order and ends where it would have ended: who ran a schedule changes
nothing of what is found.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, Protocol

from hkvtool.replay.certify import Frontier, certify
from hkvtool.replay.samplers import sample
from hkvtool.replay.schedules import Failure, Runner, spell
from hkvtool.replay.window import Window

Verdict = tuple[str, bool]
"""A schedule as text, and whether it fails."""

PORTION = 64
"""Schedules that are handed out together: a tenth of a second of work, and little to lose."""


Verdicts = Generator[Verdict, None, None]


class Elsewhere(Protocol):
    """Whoever runs portions: each is what `run_portion` is asked, and the answers come in order.
    Those that nobody takes any more are given up when the generator is closed."""

    def portions(self, asked: Iterator[Any]) -> Generator[list[Verdict], None, None]: ...


def run_portion(window: Window, asked: Any) -> list[Verdict]:
    """What a portion comes to: orders as they are, or the samples of a seed from one number up to
    another."""
    runner = Runner(window)
    if isinstance(asked, list):
        orders: Iterator[Sequence[int]] = iter(asked)
    else:
        seed, first, end = asked
        orders = (sample(window, seed, number)[1] for number in range(first, end))
    return [(spell(window, order), runner.run(order) is not None) for order in orders]


def inequivalent(window: Window, at: Frontier, budget: int) -> Iterator[list[int]]:
    """The orders that a certificate will ask for from a place on, if none of them fails."""
    # A copy now: the certificate goes on from the same place, and does not wait.
    return _from(window, at.copy(), budget)


def _from(window: Window, at: Frontier, budget: int) -> Iterator[list[int]]:
    ahead = _Ahead(window)
    most = at.orders + at.blocked + budget
    while at.frames and at.orders + at.blocked < most:
        certify(window, ahead, min(PORTION, most - at.orders - at.blocked), at=at)
        found, ahead.orders = ahead.orders, []
        yield from found


class _Ahead(Runner):
    """Notes the orders that it should run."""

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self.orders: list[list[int]] = []

    def run(self, order: Sequence[int]) -> Failure | None:
        self.orders.append(list(order))
        return None


def of_orders(elsewhere: Elsewhere, orders: Iterator[list[int]]) -> Verdicts:
    """The verdicts on orders, one after the other."""

    def asked() -> Iterator[list[list[int]]]:
        while portion := list(islice(orders, PORTION)):
            yield portion

    return _flat(elsewhere.portions(asked()))


def of_samples(elsewhere: Elsewhere, seed: int, first: int, end: int) -> Verdicts:
    """The verdicts on samples, one after the other."""
    starts = range(first, end, PORTION)
    return _flat(elsewhere.portions((seed, n, min(end, n + PORTION)) for n in starts))


def _flat(portions: Generator[list[Verdict], None, None]) -> Verdicts:
    with closing(portions):
        for portion in portions:
            yield from portion
