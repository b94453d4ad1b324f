"""Folders for a time, which are gone when their process has ended, whichever way it ended.

A process that is killed cleans up nothing. So each folder has a file in it that its process holds
a lock on: the next process that needs a folder takes away those whose lock nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache

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


@cache
def _sweep_once(place: str) -> None:
    with suppress(OSError):
        sweep(place)


def sweep(place: str) -> None:
    """Take away the folders of this user whose processes have ended."""
    with os.scandir(place) as entries:
        names = [e.name for e in entries if _OURS.fullmatch(e.name)]
    for name in names:
        with suppress(OSError):
            _take_away(os.path.join(place, name))


def _take_away(path: str) -> None:
    """Remove a folder that is ours, was made here, and that nobody holds; never where a link
    leads."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _private(os.fstat(folder), stat.S_IFDIR):
            return
        lock = os.open(LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            if not _private(os.fstat(lock), stat.S_IFREG):
                return
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.lstat(path), os.fstat(folder)):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)
    finally:
        os.close(folder)


def _private(facts: os.stat_result, kind: int) -> bool:
    """Whether this is of that kind, and of this user alone."""
    return (
        stat.S_IFMT(facts.st_mode) == kind
        and facts.st_uid == os.geteuid()
        and not facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
