"""Folders for a time, which are gone when their process has ended, whichever way it ended.

A process that is killed cleans up nothing. So each folder has a file in it that its process holds
a lock on: the next process that needs a folder takes away those whose lock nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from contextlib import suppress
from functools import cache
from typing import BinaryIO

from hkvtool.model import left_behind

PREFIX = "hkvtool-"

LOCK = ".lock"

_OURS = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")
"""Names as `tempfile` makes them."""


class Scratch(tempfile.TemporaryDirectory[str]):
    """A private temporary folder; a context, and gone with the object at the latest."""

    def __init__(self) -> None:
        _sweep_once(tempfile.gettempdir())
        super().__init__(prefix=PREFIX)
        # Under its name only once it is held: nobody is to find it free.
        early = os.path.join(self.name, f"{LOCK}-")
        self._lock = os.open(early, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with suppress(OSError):
            # Where a file system has no locks, nothing is ever taken away.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(early, os.path.join(self.name, LOCK))

    def cleanup(self) -> None:
        super().cleanup()
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


class Spool(Scratch):
    """What is put aside in a `file` to be read more than once, at `path`."""

    def __init__(self) -> None:
        super().__init__()
        self.path = os.path.join(self.name, "spool")
        self.file: BinaryIO = open(self.path, "wb")  # noqa: SIM115

    def cleanup(self) -> None:
        # What could not be written is still in the buffer, and closing would try once more.
        with suppress(OSError):
            self.file.close()
        super().cleanup()


@cache
def _sweep_once(place: str) -> None:
    with suppress(OSError):
        sweep(place)


def sweep(place: str) -> None:
    """Take away the folders of this user whose processes have ended."""
    left_behind.sweep(place, _OURS, (LOCK,))
