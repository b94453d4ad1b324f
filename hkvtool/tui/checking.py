"""The check of a trace in another process, with its progress: it never blocks the screen.

A check keeps a core busy for its whole length; in a thread it would take turns with drawing.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Report

AT_ONCE = 4_000
"""Shorter traces are checked on the spot: starting a process would take longer."""

BY_ITSELF = 300_000
"""Longer traces are checked when somebody asks for it."""

_TOLD_EVERY = 2048


class Checking:
    """A check under way."""

    def __init__(self, path: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe(duplex=False)
        self._process = context.Process(target=_run, args=(path, there), daemon=True)
        self._process.start()
        there.close()
        self.done = 0
        self.report: Report | None = None
        self.error: str | None = None

    def poll(self) -> bool:
        """Take what has come; whether it is over."""
        try:
            while self._here.poll():
                kind, value = self._here.recv()
                if kind == "done":
                    self.done = value
                elif kind == "report":
                    self.report = value
                else:
                    self.error = str(value)
        except (EOFError, OSError):
            if self.report is None and self.error is None:
                self.error = "the check ended without a word"
        over = self.report is not None or self.error is not None
        if over:
            self._process.join()
        return over

    def cancel(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.join()
        self._here.close()


def _run(path: str, pipe: Connection[Any, Any]) -> None:
    from hkvtool.analyzers import check
    from hkvtool.store import open_trace

    try:
        with open_trace(path) as trace:
            report = check(_told(trace.events(), pipe))
        pipe.send(("report", report))
    except HkvError as e:
        pipe.send(("error", e.what))
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        pass


def _told(events: Any, pipe: Any) -> Any:
    for count, event in enumerate(events):
        if count % _TOLD_EVERY == 0:
            pipe.send(("done", count))
        yield event
