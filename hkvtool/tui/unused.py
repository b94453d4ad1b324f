"""Names of files that a screen may write: never one that is there already."""

from __future__ import annotations

import os
from itertools import count


def unused(name: str, joint: str = "-") -> str:
    """The name, or with a number behind its stem where there is such a file: nobody who presses a
    key on a screen is asked whether that may be lost."""
    stem, end = os.path.splitext(name)
    tried = (name if n == 1 else f"{stem}{joint}{n}{end}" for n in count(1))
    return next(one for one in tried if not os.path.lexists(one))
