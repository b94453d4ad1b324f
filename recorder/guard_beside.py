"""The process beside an engine in which `HKV_GUARD=log` judges what is recorded.

`python -m hkvtool.recorder.guard_beside FOLDER DRAINS` is what the first process of an engine
starts; the others find its lock held. It writes to the engine's stderr, and ends with the
recording. The engine never waits for it, but at its own end, for a moment (`PATIENCE`).
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from time import monotonic, monotonic_ns, sleep

from hkvtool.model import left_behind
from hkvtool.model.errors import HkvError
from hkvtool.model.recording import COMPLETE, GUARD_LOCK, INCOMPLETE, remove_recording
from hkvtool.model.ring_format import Policy
from hkvtool.recorder.environment import ATTACH, GUARD, JOIN, RECORD
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.settings import Settings

PATIENCE = 5.0
"""Seconds that a program waits at its end for what it told last to be judged."""

_PRIVATE_BYTES = 8 << 20
"""Of a thread's ring that only the guard reads."""

_LOOK = 0.02

MEMORY = "/dev/shm"
"""Where what only the guard reads is, if it can be there."""

_PREFIX, _NAME = "hkvtool-guard-", "g.hkv"
_OURS = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
_LOCKS = tuple(os.path.join(_NAME, name) for name in (INCOMPLETE, COMPLETE, GUARD_LOCK))
"""The engine holds one of the first two, the guard that still judges the last; in this order, so
that nobody has the last for a moment when a guard that starts wants it."""


class Beside:
    """That process, as those it watches see it."""

    def __init__(self, folder: str) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        """It, for the one who started it."""
        self._place = os.path.join(folder, GUARD_LOCK)

    @staticmethod
    def start(folder: str, *, drains: bool = False) -> Beside | None:
        """Have a recording judged, unless somebody does already. None where that cannot be."""
        beside = Beside(folder)
        try:
            fd = os.open(beside._place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            if _held(fd):
                return beside
            kept = {k: v for k, v in os.environ.items() if k not in (RECORD, JOIN, ATTACH)}
            path = os.pathsep.join(filter(None, sys.path))
            beside.process = subprocess.Popen(
                [sys.executable, "-m", __name__, folder, "drains" * drains],
                # Python looks for modules in the working directory first: it must be nobody's.
                cwd=folder, env={**kept, GUARD: "off", "PYTHONPATH": path},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                # The lock goes with the descriptor.
                pass_fds=[fd], start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError):
            return None
        finally:
            os.close(fd)
        return beside

    def wait(self) -> None:
        """Until what was told so far is judged, if that is soon."""
        asked, until = monotonic_ns(), monotonic() + PATIENCE
        with suppress(OSError), open(self._place, "r+b", buffering=0) as file:
            fd = file.fileno()
            while monotonic() < until and int.from_bytes(os.pread(fd, 8, 0), "little") <= asked:
                if not _held(fd):
                    return
                sleep(_LOOK)


def private_recording() -> Recording | None:
    """A recording that only the guard reads; in memory where that can be."""
    settings = Settings(Policy.DROP, _PRIVATE_BYTES)
    for memory in (MEMORY, None):
        with suppress(OSError):
            place = memory or tempfile.gettempdir()
            left_behind.sweep(place, _OURS, _LOCKS)
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
            made = Recording.begin(os.path.join(folder, _NAME), settings)
            if not isinstance(made, Off):
                return made
            os.rmdir(os.path.dirname(made.where))
    return None


def discard(folder: str) -> None:
    """Leave nothing of a private recording."""
    with suppress(HkvError, OSError):
        remove_recording(folder)
        os.rmdir(os.path.dirname(folder))


def _held(fd: int) -> bool:
    """Whether another has the lock; else it is ours."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def main(folder: str, drains: str) -> None:
    """Judge a recording until it ends."""
    from hkvtool.recorder.guard_following import LOOK, Following

    # A terminal's Ctrl-C goes to everyone, and a service's end too: this ends when they have.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(format="%(message)s")
    log = logging.getLogger("hkvtool.guard")
    try:
        following = Following(folder, log.warning, drains=bool(drains))
        following.advance()
        while not following.over:
            sleep(LOOK)
            following.advance()
        following.close()
    except Exception as e:
        # A recording that was taken away is no trouble; whatever else it is, the engine goes on.
        if os.path.isdir(folder):
            log.warning("the guard turned itself off: %s: %s", type(e).__name__, e)
    if drains:
        discard(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
