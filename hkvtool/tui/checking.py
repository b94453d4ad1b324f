"""The check of a trace in another process, with its progress: it never blocks the screen.

A check keeps a core busy for its whole length; in a thread it would take turns with drawing. The
process is ``python -m hkvtool.tui.checking TRACE``: it writes lines of JSON, how many events it
has seen, and last the report, pickled; it ends when nobody reads any more.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from threading import Thread
from typing import IO

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.model.text import shown

AT_ONCE = 4_000
"""Shorter traces are checked on the spot: starting a process would take longer."""

BY_ITSELF = 300_000
"""Longer traces are checked when somebody asks for it."""

_TOLD_EVERY = 2048
_DONE, _ERROR, _REPORT = b"d", b"e", b"r"


class Checking:
    """A check under way."""

    def __init__(self, path: str) -> None:
        self.done = 0
        self.report: Report | None = None
        self.error: str | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hkvtool.tui.checking", os.path.abspath(path)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def over(self) -> bool:
        """Whether it has ended, and everything it said was read."""
        return not self._reader.is_alive()

    def cancel(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as pipe:
            for kind in iter(lambda: pipe.read(1), b""):
                size = int.from_bytes(pipe.read(8), "little")
                data = pipe.read(size)
                if kind == _DONE:
                    self.done = int(data)
                elif kind == _ERROR:
                    self.error = data.decode()
                elif len(data) == size:
                    self.report = pickle.loads(data)
        self._process.wait()
        if self.report is None and self.error is None:
            self.error = "the check ended without a word"


def main(path: str) -> None:
    """Check a trace and tell standard output."""
    from hkvtool.analyzers.long_check import check_trace
    from hkvtool.store import open_trace

    out = sys.stdout.buffer
    try:
        with open_trace(path) as trace:
            report = check_trace(
                trace, lambda done: _tell(out, _DONE, b"%d" % done), _told(trace.events(), out)
            )
        _tell(out, _REPORT, pickle.dumps(report))
    except HkvError as e:
        _tell(out, _ERROR, shown(e.line).encode())


def _told(events: Iterable[Event], out: IO[bytes]) -> Iterator[Event]:
    for count, event in enumerate(events):
        if count % _TOLD_EVERY == 0:
            _tell(out, _DONE, b"%d" % count)
        yield event


def _tell(out: IO[bytes], kind: bytes, data: bytes) -> None:
    out.write(kind + len(data).to_bytes(8, "little") + data)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
