"""Folders of processes that were killed, and so cleaned up nothing.

Each has files in it that its processes hold locks on: whoever needs such a folder next takes away
those whose locks nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress


def sweep(place: str, named: re.Pattern[str], locks: Sequence[str]) -> None:
    """Take away the folders of this user in `place`, of such names, that nobody holds. `locks` are
    the files that may be held, as paths inside a folder. Raises OSError where `place` is none."""
    with os.scandir(place) as entries:
        names = [e.name for e in entries if named.fullmatch(e.name)]
    for name in names:
        with suppress(OSError):
            _take_away(os.path.join(place, name), locks)


def _take_away(path: str, locks: Sequence[str]) -> None:
    """Remove a folder that is ours, was made here, and that nobody holds; never where a link
    leads. One with none of the locks is still being made, or somebody else's."""
    with ExitStack() as opened:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        opened.callback(os.close, folder)
        if not _private(os.fstat(folder), stat.S_IFDIR):
            return
        held = 0
        for name in locks:
            with suppress(FileNotFoundError):
                lock = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                opened.callback(os.close, lock)
                if not _private(os.fstat(lock), stat.S_IFREG):
                    return
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held += 1
        if held and os.path.samestat(os.lstat(path), os.fstat(folder)):
            shutil.rmtree(path, ignore_errors=True)


def _private(facts: os.stat_result, kind: int) -> bool:
    """Whether this is of that kind, and of this user alone."""
    return (
        stat.S_IFMT(facts.st_mode) == kind
        and facts.st_uid == os.geteuid()
        and not facts.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
