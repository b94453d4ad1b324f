"""What a recorded process can be asked from outside: attach, detach, the kill switch, snapshots.

One thread that sleeps. It listens on a socket that only the user who owns the process may use, and
looks now and then whether the recording was switched off. Nothing is injected into a process: one
that has not loaded us cannot be asked.
"""

from __future__ import annotations

import json
import os
import select
import socket
import stat
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any

from hkvtool.model.errors import HkvError

if TYPE_CHECKING:
    from hkvtool.recorder.session import Session

SOCKETS = "HKV_SOCKETS"
"""Names the folder of the sockets, where none of the usual ones can be written to."""

_LOOK = 0.5
"""Seconds between two looks at the switch."""

_PATIENCE = 20.0
"""Seconds. A process that has begun to stop and is not heard of would have stopped unasked for."""

_LONGEST = 4096

_YOUNG = 60.0
"""Seconds."""

_CREDENTIALS = struct.Struct("3i")


def socket_folder(*, make: bool = False) -> str | None:
    """Where the sockets of this user are: a folder that nobody else may enter."""
    uid = os.geteuid()
    places = [os.environ.get(SOCKETS), os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm", "/tmp"]
    for place in places:
        if not place:
            continue
        folder = os.path.join(place, f"hkvtool-{uid}")
        with suppress(OSError):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
            found = os.lstat(folder)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == uid and not found.st_mode & 0o077:
                return folder
    return None


class Control:
    """The thread, of one process."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._path = ""

    def start(self) -> None:
        """Begin to listen, in this process. Whatever fails, the engine goes on without it."""
        with suppress(Exception):
            listener = self._listener()
            threading.Thread(
                target=self._run, args=(listener,), name="hkvtool-control", daemon=True
            ).start()

    def _listener(self) -> socket.socket | None:
        folder = socket_folder(make=True)
        if folder is None:
            return None
        self._path = os.path.join(folder, f"{os.getpid()}.sock")
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                # Of a process that had this number before.
                os.unlink(self._path)
            listener.bind(self._path)
            os.chmod(self._path, 0o600)
            listener.listen(4)
        except OSError:
            listener.close()
            return None
        return listener

    def _run(self, listener: socket.socket | None) -> None:
        with suppress(Exception):
            _sweep(os.path.dirname(self._path))
        ears = [listener] if listener else []
        while True:
            try:
                ready, _, _ = select.select(ears, [], [], _LOOK)
                for ear in ready:
                    connection, _ = ear.accept()
                    with connection:
                        self._answer(connection)
                self._session.look_at_switch()
            except Exception:
                # A thread that is only there to be asked must not be a reason to fail.
                threading.Event().wait(_LOOK)

    def _answer(self, connection: socket.socket) -> None:
        connection.settimeout(_PATIENCE)
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, uid, _ = _CREDENTIALS.unpack(raw)
        if uid not in (0, os.geteuid()):
            return
        data = connection.recv(_LONGEST)
        if not data:
            # Somebody looked whether this process is here.
            return
        try:
            asked = json.loads(data)
            answer = self._session.answer(asked)
        except (ValueError, TypeError, KeyError) as e:
            answer = {"ok": False, "what": f"that is no request: {type(e).__name__}: {e}"}
        connection.sendall(json.dumps(answer).encode())


def ask(pid: int, request: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process. Raises HkvError where there is none."""
    folder = socket_folder()
    path = os.path.join(folder or "", f"{pid}.sock")
    hint = "start it with HKV_ATTACH=1, and hkvtool installed beside its engine"
    if not os.path.exists(f"/proc/{pid}"):
        raise HkvError(f"there is no process {pid}")
    if folder is None or not os.path.exists(path):
        raise HkvError(f"process {pid} has not loaded hkvtool, or is another user's", hint=hint)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(connection.recv(_LONGEST))
    except ConnectionRefusedError:
        raise HkvError(
            f"process {pid} has not loaded hkvtool: nobody listens on its socket, which an earlier "
            "process of this number has left", where=path, hint=hint,
        ) from None  # fmt: skip
    except TimeoutError:
        raise HkvError(
            f"process {pid} does not answer within {_PATIENCE:g} s", where=path,
            hint="it may be stopped, or in a call that lets no other thread run: try again",
        ) from None  # fmt: skip
    except (OSError, ValueError) as e:
        said = (e.strerror if isinstance(e, OSError) else None) or "it closed the connection"
        raise HkvError(
            f"process {pid} cannot be asked: {said}", where=path,
            hint="try again; if it still runs, only its own user and root may ask it",
        ) from e  # fmt: skip
    return answer


def listening(pids: Iterable[int]) -> list[int]:
    """Those of some processes that can be asked."""
    folder = socket_folder()
    if folder is None:
        return []
    return [pid for pid in pids if _is_heard(os.path.join(folder, f"{pid}.sock"))]


def _is_heard(path: str) -> bool:
    """Whether anybody listens: a socket outlives a process that was killed, and another process
    may have its number by now."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_PATIENCE)
        try:
            connection.connect(path)
        except OSError:
            return False
    return True


def _sweep(folder: str) -> None:
    """Take away sockets that nobody listens on: processes that were killed have left them. One
    that was made just now may not be listened on yet."""
    for entry in os.scandir(folder) if folder else ():
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            facts = entry.stat(follow_symlinks=False)
            if not stat.S_ISSOCK(facts.st_mode) or time() - facts.st_mtime < _YOUNG:
                continue
            if os.path.exists(f"/proc/{entry.name.removesuffix('.sock')}"):
                continue
            # It may be of a process that another container has, and that is not to be waited for.
            connection.setblocking(False)
            try:
                connection.connect(entry.path)
            except ConnectionRefusedError:
                os.unlink(entry.path)


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found
