"""Progress told from one process to another, where no terminal is between them."""

from __future__ import annotations

ASKED = "HKV_PROGRESS"
"""Environment variable that asks a command for lines about its progress on standard error."""

PREFIX = "\x1e"
"""What each of those lines begins with."""
