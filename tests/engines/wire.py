"""A way between a publisher of KV events and a listener that loses, doubles and reorders."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zmq

from hkvtool.importers.kv_batch import batch_time
from hkvtool.importers.listening import KvStream
from hkvtool.recorder.kv_listener import Bad, Listener, Source
from hkvtool.recorder.kv_sequence import Apply, Lost, Restart, Step

Frames = list[bytes]
HELLO = b"hello, hello"
LONGEST = 300.0
"""Seconds that what is on its way may take to come, however busy the machine is."""
PATIENT = 60.0
"""Of a listener that must not give a gap up only because the machine is busy."""
Way = Callable[[Frames, random.Random], list[Frames]]


def straight(frames: Frames, rnd: random.Random) -> list[Frames]:
    return [frames]


def losing(frames: Frames, rnd: random.Random) -> list[Frames]:
    return [] if rnd.random() < 0.25 else [frames]


def doubling(frames: Frames, rnd: random.Random) -> list[Frames]:
    return [frames] * rnd.choice((1, 2, 3))


class Reordering:
    """Now and then one is overtaken by the next."""

    def __init__(self) -> None:
        self.kept: Frames | None = None

    def __call__(self, frames: Frames, rnd: random.Random) -> list[Frames]:
        if self.kept is not None:
            kept, self.kept = self.kept, None
            return [frames, kept]
        # Not the first: what an account begins with is not known to be late.
        if rnd.random() < 0.3 and frames[1] != bytes(8):
            self.kept = frames
            return []
        return [frames]

    def rest(self) -> list[Frames]:
        return [] if self.kept is None else [self.kept]


def wait_until(come: Callable[[], bool], longest: float = LONGEST) -> None:
    """Wait for something, no longer than that."""
    until = time.monotonic() + longest
    while not come() and time.monotonic() < until:
        time.sleep(0.01)


class Published:
    """An engine's own publisher, and how many batches it was handed."""

    def __init__(self, folder: Path, publisher: Any, batch: Any) -> None:
        self.endpoint, self.replay = f"ipc://{folder}/pub", f"ipc://{folder}/replay"
        self._publisher, self._batch = publisher, batch
        self.count = 0
        self.start()

    def start(self) -> None:
        self.inner = self._publisher(0, endpoint=self.endpoint, replay_endpoint=self.replay)

    def publish(self, batch: Any) -> None:
        self.count += 1
        self.inner.publish(batch)

    def sent(self) -> None:
        """Wait until all of it is on the wire."""
        wait_until(lambda: len(self.inner._buffer) >= self.count)

    def flush(self, heard: Heard) -> None:
        """What is last on the wire shows no gap: send empty batches until two have come, since one
        may have overtaken what was before it."""
        before = heard.empty
        for _ in range(int(LONGEST / 0.2)):
            if heard.empty >= before + 2:
                return
            self.inner.publish(self._batch(ts=time.time(), events=[]))
            wait_until(lambda: heard.empty >= before + 2, 0.2)
        raise AssertionError(f"two empty batches did not come: {heard}")

    def shutdown(self) -> None:
        self.inner.shutdown()
        del self.inner


class Proxy:
    """Stands between a publisher and its subscribers."""

    def __init__(self, source: str, target: str, way: Way) -> None:
        self._context = zmq.Context()
        self._in = self._context.socket(zmq.SUB)
        self._in.setsockopt(zmq.SUBSCRIBE, b"")
        self._in.setsockopt(zmq.RCVHWM, 0)
        self._reached = self._in.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._in.connect(source)
        self._out = self._context.socket(zmq.PUB)
        self._out.setsockopt(zmq.SNDHWM, 0)
        self._out.bind(target)
        self.known = threading.Event()
        self._way, self._rnd, self._done = way, random.Random(5), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            if not self.known.is_set():
                self._out.send_multipart([HELLO])
            if self._in.poll(20):
                for frames in self._way(self._in.recv_multipart(), self._rnd):
                    self._out.send_multipart(frames)
        for frames in getattr(self._way, "rest", list)():
            self._out.send_multipart(frames)

    def reach(self) -> None:
        """Wait until the publisher, or one started anew, knows this subscriber."""
        assert self._reached.poll(LONGEST * 1000), "the publisher was not reached"
        self._reached.recv_multipart()
        # What subscribes follows at once, and nobody tells that it came.
        self._done.wait(0.5)

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        self._context.destroy(linger=200)


@dataclass
class Heard:
    """What a listener told, as lines of a trace."""

    stream: KvStream
    lines: list[dict[str, Any]] = field(default_factory=list)
    applied: int = 0
    empty: int = 0
    lost: int = 0
    restarts: int = 0
    greeted: threading.Event = field(default_factory=threading.Event)
    reach: Callable[[], None] = field(default=lambda: None)

    def take(self, source: Source, step: Step | Bad) -> None:
        if isinstance(step, Apply):
            told = list(self.stream.batch(source.name, step.number, step.payload))
            self.lines += told
            self.empty += not told
            self.applied += 1
        elif isinstance(step, Lost):
            self.lost += step.count
            self.lines.append(self.stream.lost(source.name, step.first, step.last))
        elif isinstance(step, Restart):
            self.restarts += 1
            self.lines.append(self.stream.restart(source.name))
        else:
            # What the proxy says until it is heard: a subscription takes its time to arrive.
            assert str(len(HELLO)) in step.problem
            self.greeted.set()


@contextmanager
def listening(
    folder: Path, endpoint: str, replay: str | None, names: Any, way: Way, **options: Any
) -> Iterator[Heard]:
    """A listener behind a proxy, until the end of the block."""
    heard = Heard(KvStream(names, as_received=options.get("as_received", False)))
    done = threading.Event()
    proxy = Proxy(endpoint, f"ipc://{folder}/way", way)
    replays = [] if replay is None else [replay]
    with Listener(
        [f"ipc://{folder}/way"], replays=replays, stamp=batch_time, **options
    ) as listener:
        thread = threading.Thread(target=listener.run, args=(heard.take, done.is_set))
        thread.start()
        try:
            assert heard.greeted.wait(LONGEST)
            proxy.known.set()
            proxy.reach()
            heard.reach = proxy.reach
            yield heard
        finally:
            done.set()
            thread.join()
            proxy.close()
        listener.end(heard.take)
