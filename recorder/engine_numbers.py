"""Which of the engines that record to one folder this is.

Data-parallel ranks, the two servers of one script, tensor-parallel schedulers: each counts its
blocks from 0, and under one name they would be taken for one engine. Who comes first is 0; so is
who comes when all processes of that one have ended: an engine that was started anew.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
from contextlib import suppress
from hashlib import blake2b

from hkvtool.model.recording import ENGINES_PREFIX

_MOST = 4096
_SLOT_BYTES = 16
_PATIENCE_S = 10.0
"""Choosing takes others some microseconds, on a busy machine seconds; for one that was stopped an
engine does not wait. Who goes on without a number is taken for another engine."""


class EngineNumbers:
    """The numbers that this process and those forked from it hold, until they end or `close`.

    A file has a slot for each number with what its engine is called, and a lock on the byte of
    that number for every process of it: whom a process id names, a container cannot tell.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._held: dict[tuple[str, str], tuple[int, int]] = {}
        self._mutex = threading.Lock()

    def of(self, kind: str, key: str) -> int:
        """The number, among those of its kind, of the engine that all its processes, and no
        others, call `key`; 0 where files cannot be locked. Raises nothing."""
        with self._mutex:
            held = self._held.get((kind, key))
            if held is None:
                try:
                    held = self._take(kind, key)
                except (OSError, AttributeError):
                    # AttributeError: a system without locks of an open file.
                    held = 0, -1
                self._held[kind, key] = held
            return held[0]

    def close(self) -> None:
        """Hold no number any more."""
        with self._mutex:
            for _, fd in self._held.values():
                with suppress(OSError):
                    os.close(fd)
            self._held.clear()

    def _take(self, kind: str, key: str) -> tuple[int, int]:
        place = os.path.join(self._folder, f"{ENGINES_PREFIX}{kind}")
        name = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_SLOT_BYTES).digest()
        fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _alone(fd)
            number = _choose(fd, name)
            os.pwrite(fd, name, number * _SLOT_BYTES)
            _lock(fd, number, fcntl.F_RDLCK)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BaseException:
            os.close(fd)
            raise
        return number, fd


def _alone(fd: int) -> None:
    """Nobody else chooses meanwhile. Raises OSError where that takes too long."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.002)


def _choose(fd: int, name: bytes) -> int:
    """The number that has this name; else the least that nobody holds. Raises OSError."""
    free = None
    for number in range(_MOST):
        slot = os.pread(fd, _SLOT_BYTES, number * _SLOT_BYTES)
        if slot == name:
            return number
        if free is None and (not slot or _nobody_holds(fd, number)):
            free = number
        if not slot:
            break
    if free is None:
        raise OSError(f"more than {_MOST} engines record to one folder")
    return free


def _nobody_holds(fd: int, number: int) -> bool:
    try:
        _lock(fd, number, fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):
        return False
    _lock(fd, number, fcntl.F_UNLCK)
    return True


def _lock(fd: int, number: int, kind: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, number, 1, 0))
