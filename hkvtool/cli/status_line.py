"""The line at the bottom of the screen that says how a recording goes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from hkvtool.cli.amounts import shown_bytes

if TYPE_CHECKING:
    from hkvtool.recorder.sealing import Status

_DAY = 86400.0

_EVERY, _EVERY_ELSEWHERE = 1.0, 60.0
"""Seconds between two lines, on a terminal and where there is none."""

EXPECTED_EVENTS, EXPECTED_BYTES = 2000, 15
"""Events a second of one busy engine, and bytes that one takes in a segment: what is expected of a
recording before anything of it is known."""


def expected_a_day() -> float:
    """Bytes that a busy engine would record in a day."""
    return EXPECTED_EVENTS * EXPECTED_BYTES * _DAY


class StatusLine:
    """Tells `Status`es. On a terminal the last row is kept for it, so that the program's own lines
    scroll above."""

    def __init__(self) -> None:
        self._began = self._last = monotonic()
        self._events = 0
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._rows = 0

    def tell(self, status: Status | None) -> None:
        """Show it, if it is time to."""
        now = monotonic()
        passed = now - self._last
        if status is None or passed < (_EVERY if self._terminal else _EVERY_ELSEWHERE):
            return
        rate = (status.events - self._events) / passed
        self._last, self._events = now, status.events
        self._show(line(status, rate, now - self._began))

    @contextmanager
    def shown(self) -> Iterator[StatusLine]:
        """Keep the last row of the screen meanwhile."""
        try:
            yield self
        finally:
            self.end()

    def end(self) -> None:
        """Give the last row of the screen back."""
        if self._rows:
            self._write(f"\x1b7\x1b[r\x1b[{self._rows};1H\x1b[K\x1b8")
            self._rows = 0

    def _show(self, text: str) -> None:
        if not self._terminal:
            print(f"hkvtool: {text}", file=sys.stderr, flush=True)
            return
        columns, rows = shutil.get_terminal_size()
        if rows != self._rows:
            # A line feed first, so that the row that is taken away is not one just written.
            self._write(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A")
            self._rows = rows
        self._write(f"\x1b7\x1b[{rows};1H\x1b[7m{text[:columns]:<{columns}}\x1b[0m\x1b8")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def line(status: Status, rate: float, seconds: float) -> str:
    """One status in one line."""
    if status.passed and not status.events:
        rings = f"{status.passed} rings" if status.passed > 1 else "1 ring"
        return f"flight recorder: {rings}, the latest is kept"
    parts = [f"recording: {status.events:,} events, {rate:,.0f}/s"]
    if status.dropped:
        parts.append(f"{status.dropped:,} dropped")
    parts.append(f"{shown_bytes(status.bytes)} sealed")
    if seconds > 60 and status.bytes:
        parts.append(f"{shown_bytes(status.bytes / seconds * _DAY)}/day")
    if status.asked:
        parts.append(
            f"matched {100 * status.matched / status.asked:.0f} %, "
            f"resumed {100 * status.resumed / status.asked:.0f} %"
        )
    if status.trouble:
        parts.append(status.trouble)
    return ", ".join(parts)
