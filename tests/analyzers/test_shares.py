"""What takes how long: each part without what it calls of the others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hkvtool.analyzers.shares import Shares


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_is_called_within_is_not_counted_twice(clock: Clock) -> None:
    shares = Shares(clock)
    inner = shares.timed("inner", clock.passes)

    def work() -> None:
        clock.passes(1)
        inner(2)
        inner(3)
        clock.passes(4)

    shares.timed("outer", work)()
    assert shares.seconds == {"inner": 5, "outer": 5}


def test_what_fails_is_counted_as_well(clock: Clock) -> None:
    shares = Shares(clock)

    def fails() -> None:
        clock.passes(2)
        raise LookupError

    with pytest.raises(LookupError):
        shares.timed("failing", fails)()
    assert shares.seconds == {"failing": 2}


def test_of_items_what_is_waited_for_them_is_counted(clock: Clock) -> None:
    shares = Shares(clock)

    def slow() -> Iterator[int]:
        for item in (1, 2):
            clock.passes(3)
            yield item

    items = []
    for item in shares.waited("waiting", slow()):
        clock.passes(100)
        items.append(item)
    assert items == [1, 2]
    assert shares.seconds == {"waiting": 6}
