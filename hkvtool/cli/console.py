"""The console that every command writes tables and text to."""

from __future__ import annotations

import os
import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_NO_WIDTH, _DIGITS = 80, 9

PIPE_WIDTH = 200
"""Columns where nobody said: wide enough that a row of a table stays one line for grep."""


def at_a_terminal() -> bool:
    """Whether there is a keyboard to read from and a screen to write to."""
    # Python has None for a stream that was closed before it started.
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji, no guessing at highlights.

    It honours NO_COLOR, FORCE_COLOR and COLUMNS. Text out of a trace goes through
    `hkvtool.model.text.shown` first.
    """
    from rich.console import Console

    class Boundary(Console):
        """A reader that has gone is told at the boundary: here it would be the code of findings."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    # Some terminals of build servers say that they have no columns at all.
    width = get_terminal_size((0, 0)).columns if stream.isatty() or _columns() else PIPE_WIDTH
    return Boundary(
        file=stream, markup=False, emoji=False, highlight=False, soft_wrap=False,
        width=width or _NO_WIDTH,
    )  # fmt: skip


def _columns() -> bool:
    """Whether COLUMNS says how many there are."""
    said = os.environ.get("COLUMNS", "")
    return said.isdecimal() and int(said[:_DIGITS]) > 0
