"""Recording a program: a folder, a ring for each of its threads, and one call for each event."""

from __future__ import annotations

import fcntl
import json
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic_ns, time_ns
from types import TracebackType
from typing import Any

from hkvtool.model.events import DECLARATIONS
from hkvtool.model.recording import (
    COMPLETE,
    INCOMPLETE,
    RING_SUFFIX,
    Stage,
    is_recording,
    remove_recording,
    stage_of,
)
from hkvtool.model.ring_format import STAMPED, Policy
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.ring import MIN_BYTES, RING_BYTES, Ring

MAX_BYTES = 64 << 20
"""Default for all rings of a process together."""

_ASIDE_BYTES = 1 << 18
"""For what a flight recorder must not overwrite: some 2,000 declarations."""


class Recording:
    """Takes events from any thread of this process and of those forked from it.

    `emit` and `emit_dict` never wait and never raise; what they cannot store they count. Several
    threads may call them. A context; `start` makes one.
    """

    def __init__(
        self, folder: str, lock: int, policy: Policy, ring_bytes: int, max_bytes: int, flags: int
    ) -> None:
        self.folder = folder
        self.off: list[Off] = []
        """Why some threads have no ring; their events are counted as dropped."""
        self._lock_fd = lock
        self._policy = policy
        self._plain = policy == Policy.DROP
        self._ring_bytes, self._max_bytes = ring_bytes, max_bytes
        self._flags = flags
        self._owner = os.getpid()
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process."""
        self._mine = threading.local()
        # A signal handler may emit in the very thread that holds it.
        self._mutex = threading.RLock()
        self._rings: list[Ring] = []
        self._idle: list[Ring] = []
        self._bytes = 0
        self._threads = 0
        self._aside: Ring | Off | None = None
        self._closed = False

    @staticmethod
    def start(
        folder: str | os.PathLike[str],
        *,
        policy: Policy = Policy.DROP,
        ring_bytes: int = RING_BYTES,
        max_bytes: int = MAX_BYTES,
        stamp: bool = True,
        force: bool = False,
    ) -> Recording | Off:
        """Begin a recording in a new folder, or say why there is none.

        `ring_bytes` is the size of a thread's ring, `max_bytes` of all together (`Policy.GROW`
        has no such limit). With `stamp`, events get the time and the number on their lane; else
        they carry their own. `force` replaces a recording that has ended.
        """
        path = os.fspath(folder)
        try:
            off = _make_folder(path, force)
            if off is not None:
                return off
            lock = _mark(path)
        except OSError as e:
            return Off.of(e, path)
        flags = STAMPED if stamp else 0
        made = Recording(path, lock, policy, ring_bytes, max_bytes, flags)
        # The room that is needed is asked for before the engine has done anything.
        first = made._make_ring()
        if isinstance(first, Ring):
            made._idle.append(first)
            if made._aside_ring() is None:
                first = made._aside if isinstance(made._aside, Off) else first
        if isinstance(first, Off):
            made.close()
            with suppress(OSError):
                remove_recording(path)
            return first
        _follow_forks(made)
        return made

    def emit(self, ev: str, /, **keys: Any) -> bool:
        """Record one event of the calling thread; False where it was dropped."""
        return self.emit_dict({"ev": ev, **keys})

    def emit_dict(self, data: Mapping[str, Any]) -> bool:
        """Record one event, given as its object."""
        try:
            ring = self._mine.ring
        except AttributeError:
            ring = self._ring_of_thread()
        if ring is None or not self._plain:
            return self._emit_otherwise(ring, data)
        stored: bool = ring.emit(data)
        return stored

    def close(self, *, complete: bool = True) -> None:
        """End the recording. Only the process that began it says that it is complete; else it
        reads as that of a program that died."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            for ring in self._rings:
                ring.close()
            if complete and os.getpid() == self._owner:
                with suppress(OSError):
                    os.rename(
                        os.path.join(self.folder, INCOMPLETE), os.path.join(self.folder, COMPLETE)
                    )
            with suppress(OSError):
                os.close(self._lock_fd)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _emit_otherwise(self, ring: Ring | None, data: Mapping[str, Any]) -> bool:
        """An event of a thread without a ring, or under a policy that asks for more."""
        try:
            if ring is None:
                with self._mutex:
                    aside = self._aside_ring()
                    return aside is not None and aside.refuse(data, "no ring for its thread")
            if self._policy == Policy.OVERWRITE and data.get("ev") in DECLARATIONS:
                # What exists is said once, at the beginning, and must outlive everything.
                with self._mutex:
                    aside = self._aside_ring()
                    return aside is not None and aside.emit(data)
            if ring.emit(data):
                return True
            if not ring.full:
                return False
            return self._next_ring(ring).emit(data)
        except Exception:
            return False

    def _aside_ring(self) -> Ring | None:
        """The ring for what has no place in the others; used under the mutex."""
        if self._aside is None and not self._closed:
            size = MIN_BYTES if self._policy != Policy.OVERWRITE else _ASIDE_BYTES
            self._aside = self._make_ring(size, Policy.DROP)
        return self._aside if isinstance(self._aside, Ring) else None

    def _ring_of_thread(self) -> Ring | None:
        """The ring of a thread that emits for the first time."""
        ring: Ring | None = None
        try:
            with self._mutex:
                if self._idle:
                    ring = self._idle.pop()
                elif not self._closed:
                    made = self._make_ring()
                    if isinstance(made, Off):
                        self.off.append(made)
                    else:
                        ring = made
            if ring is not None:
                self._give_back_at_end(ring)
        except Exception as e:
            self.off.append(Off.of(e, self.folder))
        self._mine.ring = ring
        return ring

    def _give_back_at_end(self, ring: Ring) -> None:
        """Threads come and go; another may go on in the ring of one that has ended."""
        self._mine.end, self._mine.seat = end, seat = _End(), [ring]
        weakref.finalize(end, _give_back, self._idle, seat).atexit = False

    def _next_ring(self, full: Ring) -> Ring:
        """The ring that goes on where another is full; that one again if there is none."""
        header = full.header
        with self._mutex:
            made = self._make_ring(
                header.capacity, Policy.GROW, header.thread, header.part + 1, full.next_seq
            )
            if isinstance(made, Off):
                self.off.append(made)
                full.drop_when_full()
                return full
            full.close()
            self._rings.remove(full)
        self._mine.ring = self._mine.seat[0] = made
        return made

    def _make_ring(
        self,
        capacity: int | None = None,
        policy: Policy | None = None,
        thread: int | None = None,
        part: int = 0,
        first_seq: int = 0,
    ) -> Ring | Off:
        policy = self._policy if policy is None else policy
        of_thread = capacity is None and policy != Policy.GROW
        capacity = self._ring_bytes if capacity is None else capacity
        if of_thread and self._bytes + capacity > self._max_bytes:
            return Off(
                f"all rings of a process may take {self._max_bytes:,} bytes together",
                self.folder,
                "allow more, or smaller rings",
            )
        if thread is None:
            thread = self._threads
            self._threads += 1
        name = f"{os.getpid()}-{thread:04}-{part:06}{RING_SUFFIX}"
        made = Ring.create(
            os.path.join(self.folder, name),
            capacity=capacity,
            policy=policy,
            name=threading.current_thread().name,
            thread=thread,
            part=part,
            first_seq=first_seq,
            flags=self._flags,
        )
        if isinstance(made, Ring):
            self._rings.append(made)
            self._bytes += capacity * of_thread
        return made

    def _after_fork(self) -> None:
        """In a child: the rings so far are the parent's, who goes on in them."""
        for ring in self._rings:
            ring.abandon()
        closed = self._closed
        self._begin()
        self._closed = closed


class _End:
    """Goes away with its thread."""


def _give_back(idle: list[Ring], seat: list[Ring]) -> None:
    """The ring in which a thread that has ended wrote last can be another's."""
    idle.append(seat[0])


def _make_folder(path: str, force: bool) -> Off | None:
    """Make the folder, which must be new: two recorders in one would lose both."""
    try:
        os.mkdir(path, 0o700)
        return None
    except FileExistsError:
        if not os.path.isdir(path) or not is_recording(path):
            return Off(
                f"{path} exists already, and is no recording", path, "record to another folder"
            )
        if stage_of(path) is Stage.RECORDING:
            return Off(
                f"{path} is being recorded by another program{_recorder(path)}", path,
                "record to another folder, or end that program",
            )  # fmt: skip
        if not force:
            return Off(f"{path} exists already", path, "--force replaces it; or name another")
        remove_recording(path)
        os.mkdir(path, 0o700)
        return None


def _mark(path: str) -> int:
    """Lock the marker of a new recording; its descriptor holds the lock while the program lives."""
    place = os.path.join(path, INCOMPLETE)
    fd = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):
            # Without locks (some network file systems) a reader cannot tell running from dead.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        about = {"pid": os.getpid(), "monotonic": monotonic_ns(), "wall": time_ns()}
        os.write(fd, json.dumps(about).encode())
    except OSError:
        os.close(fd)
        with suppress(OSError):
            remove_recording(path)
        raise
    return fd


def _recorder(path: str) -> str:
    try:
        with open(os.path.join(path, INCOMPLETE), "rb") as file:
            return f" (PID {int(json.loads(file.read(4096))['pid'])})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _follow_forks(recording: Recording) -> None:
    known = weakref.ref(recording)

    def in_child() -> None:
        found = known()
        if found is not None:
            found._after_fork()

    os.register_at_fork(after_in_child=in_child)


@contextmanager
def sink(
    folder: str | os.PathLike[str], *, force: bool = False
) -> Iterator[Callable[[Mapping[str, Any]], Any]]:
    """Something that records what it is called with, for programs that tell a `hkv/1` event after
    the other with its own time, and can wait for a file to be made. What raises leaves a recording
    that was cut, not a complete one. Raises HkvError."""
    made = Recording.start(folder, policy=Policy.GROW, stamp=False, force=force)
    if isinstance(made, Off):
        raise made.error()
    complete = False
    try:
        yield made.emit_dict
        if made.off:
            raise made.off[0].error()
        complete = True
    finally:
        made.close(complete=complete)
