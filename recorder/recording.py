"""Recording a program: a folder, a ring for each of its threads, and one call for each event."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from types import TracebackType
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.events import DECLARATIONS
from hkvtool.model.recording import RING_SUFFIX, Stage, is_recording, stage_of
from hkvtool.model.ring_format import STAMPED, Policy
from hkvtool.recorder.emitters import Emitter, make_emitter
from hkvtool.recorder.engine_numbers import EngineNumbers
from hkvtool.recorder.folder import Folder, rings_of
from hkvtool.recorder.outcome import Off
from hkvtool.recorder.ring import MIN_BYTES, RING_BYTES, Ring
from hkvtool.recorder.settings import MAX_BYTES, Settings
from hkvtool.recorder.snapshot import snapshot

_ASIDE_BYTES = 1 << 18
"""For what a flight recorder must not overwrite: some 2,000 declarations."""


class Recording:
    """Takes events from any thread of this process and of those forked from it.

    `emit` and `emit_dict` never wait and never raise; what they cannot store they count. Several
    threads may call them. A context; `start` makes one.
    """

    def __init__(self, folder: str, settings: Settings, owned: Folder | None) -> None:
        # The program may go to another folder, and make its next ring from there.
        self.folder = folder = os.path.abspath(folder)
        self.keep_tokens = settings.keep_tokens
        """Whether token ids and text may be recorded."""
        self.off: list[Off] = []
        """Why some threads have no ring; their events are counted as dropped."""
        self._owned = owned
        self._paused = False
        self._triggers = settings.triggers
        self._snapshots: set[str] = set()
        self._rings_folder = rings_of(folder)
        self._policy = settings.policy
        self._plain = settings.policy == Policy.DROP
        self._ring_bytes, self._max_bytes = settings.ring_bytes, settings.max_bytes
        self._flags = STAMPED if settings.stamp else 0
        self._keyed = blake2b(key=settings.key, digest_size=8)
        self._engines = EngineNumbers(folder)
        self._mine = threading.local()
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process."""
        # Prepared emitters know it: it stays, and forgets.
        self._mine.__dict__.clear()
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
        settings = Settings(policy, ring_bytes, max_bytes, stamp)
        return Recording.begin(folder, settings, force=force)

    @staticmethod
    def begin(
        folder: str | os.PathLike[str], settings: Settings, *, force: bool = False
    ) -> Recording | Off:
        """The same, with all that can be said of it."""
        owned = Folder.make(folder, settings, force=force)
        if isinstance(owned, Off):
            return owned
        return Recording._with_room(Recording(os.fspath(folder), settings, owned))

    @staticmethod
    def join(folder: str | os.PathLike[str]) -> Recording | Off:
        """Take part in a recording that another process has begun, or say why not."""
        path = os.fspath(folder)
        try:
            if not is_recording(path) or stage_of(path) is not Stage.RECORDING:
                return Off(f"nobody records to {path}", path, "its recording has ended")
            settings = Settings.read(path)
        except (OSError, HkvError) as e:
            return Off.of(e, path)
        return Recording._with_room(Recording(path, settings, None))

    @staticmethod
    def _with_room(made: Recording) -> Recording | Off:
        """The room that is needed is asked for before the engine has done anything."""
        first = made._make_ring()
        if isinstance(first, Ring):
            made._idle.append(first)
            if made._aside_ring() is None:
                first = made._aside if isinstance(made._aside, Off) else first
        if isinstance(first, Off):
            made.close(complete=False)
            if made._owned is not None:
                made._owned.discard()
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

    def emitter(self, ev: str, keys: Sequence[str]) -> Emitter:
        """A function that records events of one shape, twice as fast as `emit`.

        It takes the values of `keys`, by position or by name, and returns whether the event was
        stored. A value of None is left out. Any thread may call it, and it outlives forks. Raises
        CodecError where the event has no such key.
        """
        return make_emitter(self._mine, self.emit_dict, ev, keys)

    @property
    def rolling(self) -> bool:
        """Whether what is old goes: a flight recorder. A hook set then tells the `state` of a few
        blocks at each step, all of them in turn, so that the middle can be read."""
        return self._policy == Policy.OVERWRITE

    def turns(self) -> float:
        """How often what the calling thread has recorded would fill its ring."""
        ring = getattr(self._mine, "ring", None)
        return 0.0 if ring is None else ring.written / ring.header.capacity

    @property
    def paused(self) -> bool:
        """Whether it is switched off for the time being."""
        return self._paused

    def pause(self) -> None:
        """Take no events until `go_on`; they are not counted either."""
        with self._mutex:
            self._paused = True
            for ring in self._rings:
                ring.pause()

    def go_on(self) -> None:
        """Take events again."""
        with self._mutex:
            self._paused = False
            for ring in self._rings:
                ring.go_on()

    def wants(self, reason: str) -> bool:
        """Whether a snapshot is to be taken for this reason."""
        return not self._triggers or any(code in reason.upper() for code in self._triggers)

    def snapshot(self, reason: str) -> str | None:
        """Copy the rings as they are now, once for each reason; where the copy is, or None. For
        guards and assertions; takes some milliseconds a ring, and never raises."""
        try:
            if self._closed or reason in self._snapshots or not self.wants(reason):
                return None
            self._snapshots.add(reason)
            return snapshot(self.folder, reason)
        except Exception:
            return None

    def emit_aside(self, data: Mapping[str, Any]) -> bool:
        """Record an event of a thread that has few, without a ring of its own for it."""
        try:
            with self._mutex:
                aside = self._aside_ring()
                return aside is not None and aside.emit(data)
        except Exception:
            return False

    def keyed(self, value: bytes | str | int) -> str:
        """What stands in the trace for a hash, a salt, a tenant or an adapter: sixteen digits that
        are the same for the same value, and lead back to it only with the recording's key."""
        if type(value) is not bytes:
            value = str(value).encode("utf-8", "surrogatepass")
        digest = self._keyed.copy()
        digest.update(value)
        return digest.hexdigest()

    def engine_number(self, kind: str, key: str) -> int:
        """Which of the engines of a kind that record to this folder the one is that all its
        processes, and no others, call `key`: 0 for the first. Pools that they name alike are to be
        told apart by it."""
        return self._engines.of(kind, key)

    def close(self, *, complete: bool = True) -> None:
        """End the recording. Only the process that began it says that it is complete; else it
        reads as that of a program that died."""
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            for ring in self._rings:
                ring.close()
            self._engines.close()
            if self._owned is not None:
                self._owned.end(complete=complete)

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
            os.path.join(self._rings_folder, name),
            capacity=capacity,
            policy=policy,
            name=threading.current_thread().name,
            thread=thread,
            part=part,
            first_seq=first_seq,
            flags=self._flags,
        )
        if isinstance(made, Ring):
            if self._paused:
                made.pause()
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
