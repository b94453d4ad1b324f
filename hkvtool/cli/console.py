"""The console that every command writes tables and text to."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Columns where nobody said: wide enough that a row of a table stays one line for grep."""


def console(*, stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji, no guessing at highlights.

    It honours NO_COLOR, FORCE_COLOR and COLUMNS. Text out of a trace goes through
    `hkvtool.model.text.shown` first.
    """
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(
        file=stream, markup=False, emoji=False, highlight=False, width=width, soft_wrap=False
    )
