"""Ctrl-C and SIGTERM around DuckDB, which loses what they raise while it asks Python for something,
and ends the process where that happens as it is loaded.

What is short makes them wait (`held_back`); what may take long is done in a thread (`heard`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK = 0.05
"""Seconds between two looks at whether a signal has come, and between two requests to stop."""


def duckdb_loaded() -> Any:
    """DuckDB. A signal that comes while it is loaded has to wait."""
    with held_back():
        import duckdb
    return duckdb


def heard(work: Callable[[], T], stop: Callable[[], None]) -> T:
    """The result of `work`, done in a thread, since only in the main one signals raise anything;
    where one does, `stop` ends the work."""
    found: list[T] = []
    failed: list[BaseException] = []
    # A join that is interrupted takes the thread for one that has ended (until Python 3.12).
    over = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        except BaseException as e:
            failed.append(e)
        finally:
            over.set()

    thread = threading.Thread(target=run, name="hkvtool query", daemon=True)
    try:
        thread.start()
        # Another thread may have got the signal: the main one then has to wake by itself.
        while not over.wait(_LOOK):
            pass
    finally:
        while thread.ident is not None and not over.wait(_LOOK):
            stop()
    if failed:
        raise failed[0]
    return found[0]


@contextmanager
def held_back() -> Iterator[None]:
    """Signals that raise something do so when this is over."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    raising = {n: handler for n, handler in before.items() if callable(handler)}
    try:
        for number in raising:
            signal.signal(number, lambda number, frame: came.append(number))
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
        for one in came:
            signal.raise_signal(one)
