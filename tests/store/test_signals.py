"""Ctrl-C while DuckDB is loaded or at work."""

from __future__ import annotations

import os
import signal
from threading import Event, Thread

import pytest

from hkvtool.store.signals import heard, held_back


def test_a_signal_waits_until_it_can_be_raised() -> None:
    reached = []
    with pytest.raises(KeyboardInterrupt):
        with held_back():
            signal.raise_signal(signal.SIGINT)
            reached.append("loaded")
        reached.append("went on")
    assert reached == ["loaded"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_ends_the_work() -> None:
    begun, stopped = Event(), Event()
    times = []

    def work() -> None:
        begun.set()
        assert stopped.wait(60)

    def stop() -> None:
        # The first time it does not hear.
        times.append(None)
        if len(times) > 1:
            stopped.set()

    def interrupt() -> None:
        assert begun.wait(60)
        os.kill(os.getpid(), signal.SIGINT)

    other = Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        heard(work, stop)
    other.join()
    assert stopped.is_set() and len(times) > 1


def test_what_came_of_the_work() -> None:
    def fails() -> None:
        raise ValueError("by itself")

    assert heard(lambda: 7, fails) == 7
    with pytest.raises(ValueError, match="by itself"):
        heard(fails, lambda: None)
