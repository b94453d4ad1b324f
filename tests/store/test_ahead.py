"""Reading ahead gives the same items, and ends when either side does."""

from __future__ import annotations

import threading
from collections.abc import Generator

import pytest

from hkvtool.store.ahead import ahead


def counting(count: int, seen: list[int], closed: list[bool]) -> Generator[int, None, None]:
    try:
        for i in range(count):
            seen.append(i)
            yield i
    finally:
        closed.append(True)


@pytest.fixture
def others() -> set[threading.Thread]:
    """Threads that somebody else left."""
    return set(threading.enumerate())


def readers(others: set[threading.Thread]) -> int:
    return sum(t.name == "hkvtool reading ahead" for t in set(threading.enumerate()) - others)


def test_the_items_come_in_order(others: set[threading.Thread]) -> None:
    seen: list[int] = []
    closed: list[bool] = []
    assert list(ahead(counting(50, seen, closed))) == list(range(50))
    assert closed and readers(others) == 0


def test_it_is_only_a_little_ahead() -> None:
    seen: list[int] = []
    items = ahead(counting(1000, seen, []))
    assert next(items) == 0
    assert len(seen) <= 5
    items.close()  # type: ignore[attr-defined]


def test_who_stops_asking_stops_the_making(others: set[threading.Thread]) -> None:
    seen: list[int] = []
    closed: list[bool] = []
    for i in ahead(counting(1000, seen, closed)):
        if i == 3:
            break
    assert closed and readers(others) == 0 and len(seen) < 20


def test_what_goes_wrong_is_raised_where_it_is_asked_for(others: set[threading.Thread]) -> None:
    def failing() -> Generator[int, None, None]:
        yield 1
        raise ValueError("cut")

    items = ahead(failing())
    assert next(items) == 1
    with pytest.raises(ValueError, match="cut"):
        next(items)
    assert readers(others) == 0


def test_an_interrupt_is_no_reason_to_hang() -> None:
    def interrupted() -> Generator[int, None, None]:
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(ahead(interrupted()))
