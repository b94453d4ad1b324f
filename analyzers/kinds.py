"""Kinds of events as a table to look numbers up in: quicker than to compare with each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

_NUMBERS = 1 << 8
"""More than there are kinds of events."""


def table(kinds: Iterable[int]) -> Any:
    """By the number of a kind, whether it is one of some."""
    found = np.zeros(_NUMBERS, bool)
    found[list(kinds)] = True
    return found
