"""The folder of a recording: made once, by one owner, and marked complete at the end."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import socket
from contextlib import suppress
from time import monotonic_ns, time_ns

from hkvtool.model.errors import HkvError
from hkvtool.model.recording import (
    BEGUN,
    COMPLETE,
    INCOMPLETE,
    RINGS_LINK,
    Stage,
    is_recording,
    remove_recording,
    stage_of,
)
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.settings import Settings, SettingsError


class Folder:
    """A recording's folder in the hands of its owner, who holds the lock of its marker."""

    def __init__(self, path: str, lock: int, settings: Settings) -> None:
        self.path = path
        self.settings = settings
        self._lock = lock
        self._owner = os.getpid()

    @staticmethod
    def make(
        folder: str | os.PathLike[str], settings: Settings, *, force: bool = False
    ) -> Folder | Off:
        """A new one, or why there is none. `force` replaces a recording that has ended."""
        path = os.path.abspath(folder)
        aside = f"{path}{BEGUN}{os.getpid()}"
        lock = -1
        try:
            off = _refused(path, force)
            if off is not None:
                return off
            os.mkdir(aside, 0o700)
            lock = _mark(aside)
            settings.write(aside)
            if settings.rings:
                _link_rings(aside, settings.rings, os.path.basename(path))
            # Whoever finds it under its name finds all of it.
            os.rename(aside, path)
        except (OSError, HkvError) as e:
            with suppress(OSError):
                if lock >= 0:
                    os.close(lock)
                remove_recording(aside)
            if isinstance(e, OSError) and e.errno in (errno.ENOTEMPTY, errno.EEXIST):
                # Another process was faster.
                return _refused(path, force) or Off.of(e, path)
            return Off.of(e, path)
        return Folder(path, lock, settings)

    @property
    def descriptors(self) -> list[int]:
        """What a process must inherit so that the recording goes on should its owner die."""
        return [self._lock]

    def end(self, *, complete: bool = True) -> None:
        """Only the process that made it says that it is complete; else it reads as that of a
        program that died."""
        if self._lock < 0:
            return
        mine = os.getpid() == self._owner
        if mine:
            self.settings.forget_key(self.path)
        if complete and mine:
            with suppress(OSError):
                os.rename(os.path.join(self.path, INCOMPLETE), os.path.join(self.path, COMPLETE))
        with suppress(OSError):
            os.close(self._lock)
        self._lock = -1

    def discard(self) -> None:
        """Leave nothing of it."""
        self.end(complete=False)
        with suppress(OSError):
            remove_recording(self.path)


def rings_of(folder: str) -> str:
    """Where the rings of a recording go."""
    link = os.path.join(folder, RINGS_LINK)
    return link if os.path.isdir(link) else folder


def set_aside(path: str) -> None:
    """Have a recording that has ended make room for the next: NAME.hkv becomes NAME-1.hkv, or the
    next number that is free. One process does so; for the others nothing happens. Raises OSError.
    """
    for marker in (COMPLETE, INCOMPLETE):
        place = os.path.join(path, marker)
        with suppress(FileNotFoundError), open(place, "rb") as file:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            if not os.path.samestat(os.stat(place), os.fstat(file.fileno())):
                return
            with suppress(SettingsError, OSError):
                Settings.read(path).forget_key(path)
            stem, suffix = os.path.splitext(path)
            number = 1
            while os.path.lexists(f"{stem}-{number}{suffix}"):
                number += 1
            os.rename(path, f"{stem}-{number}{suffix}")
            return


def _refused(path: str, force: bool) -> Off | None:
    """Why there can be no new recording, if so: two recorders in one folder would lose both."""
    if not os.path.lexists(path):
        return None
    if not os.path.isdir(path) or not is_recording(path):
        return Off(f"{path} exists already, and is no recording", path, "record to another folder")
    if stage_of(path) is Stage.RECORDING:
        return Off(
            f"{path} is being recorded by another program{_recorder(path)}", path,
            "record to another folder, or end that program",
        )  # fmt: skip
    if not force:
        return Off(f"{path} exists already", path, _kept(path))
    remove_recording(path)
    return None


def _kept(path: str) -> str:
    """What to do about one that has ended: what a killed program left may be all there is of it."""
    what = "--force replaces it; or name another"
    if os.path.exists(os.path.join(path, COMPLETE)):
        return what
    made = shlex.join(["hkvtool", "ingest", path])
    return f"a killed recorder left it: `{made}` makes a trace of it; {what}"


def _mark(path: str) -> int:
    """Lock the marker of a new recording; its descriptor holds the lock while the program lives."""
    place = os.path.join(path, INCOMPLETE)
    fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):
            # Without locks (some network file systems) a reader cannot tell running from dead.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = {
            "pid": os.getpid(), "monotonic": monotonic_ns(), "wall": time_ns(),
            "host": socket.gethostname(),
        }  # fmt: skip
        os.write(fd, json.dumps(about).encode())
    except OSError:
        os.close(fd)
        raise
    return fd


def _link_rings(path: str, elsewhere: str, name: str) -> None:
    """A folder of its own for the rings, on another file system."""
    place = os.path.join(elsewhere, f"{name}-{os.getpid()}-{monotonic_ns():x}")
    try:
        os.mkdir(place, 0o700)
    except OSError as e:
        raise OSError(e.errno, f"{e.strerror}, for the rings in {elsewhere}") from e
    os.symlink(place, os.path.join(path, RINGS_LINK))


def _recorder(path: str) -> str:
    try:
        with open(os.path.join(path, INCOMPLETE), "rb") as file:
            return f" (PID {int(json.loads(file.read(4096))['pid'])})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
