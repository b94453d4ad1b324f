"""vLLM's own publisher of KV events, heard through a way that loses, doubles, reorders and ends.

The scheduler and the cache manager are the engine's; their events go through its ZmqEventPublisher,
a proxy, and the listener. What the wire adds up to is compared with the engine's pool, and the
trace of both, hooks and wire, is checked.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import zmq
from vllm.distributed.kv_events import ZmqEventPublisher

from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, random_load
from hkvtool.importers.kv_batch import batch_time
from hkvtool.importers.listening import KvStream
from hkvtool.recorder.kv_listener import Bad, Listener, Source
from hkvtool.recorder.kv_sequence import Apply, Lost, Restart, Step

pytest.importorskip("msgpack")

STEPS = 120
Frames = list[bytes]
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


class Proxy:
    """Stands between a publisher and its subscribers."""

    def __init__(self, source: str, target: str, way: Way) -> None:
        self._context = zmq.Context()
        self._in = self._context.socket(zmq.SUB)
        self._in.setsockopt(zmq.SUBSCRIBE, b"")
        self._in.setsockopt(zmq.RCVHWM, 0)
        self._in.connect(source)
        self._out = self._context.socket(zmq.PUB)
        self._out.setsockopt(zmq.SNDHWM, 0)
        self._out.bind(target)
        self._way, self._rnd, self._done = way, random.Random(5), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.is_set():
            if self._in.poll(20):
                for frames in self._way(self._in.recv_multipart(), self._rnd):
                    self._out.send_multipart(frames)
        for frames in getattr(self._way, "rest", list)():
            self._out.send_multipart(frames)

    def close(self) -> None:
        self._done.set()
        self._thread.join()
        time.sleep(0.05)
        self._context.destroy(linger=200)


@dataclass
class Heard:
    """What a listener told, as lines of a trace."""

    stream: KvStream
    lines: list[dict[str, Any]] = field(default_factory=list)
    applied: int = 0
    lost: int = 0
    restarts: int = 0

    def take(self, source: Source, step: Step | Bad) -> None:
        if isinstance(step, Apply):
            self.applied += 1
            self.lines += self.stream.batch(source.name, step.number, step.payload)
        elif isinstance(step, Lost):
            self.lost += step.count
            self.lines.append(self.stream.lost(source.name, step.first, step.last))
        elif isinstance(step, Restart):
            self.restarts += 1
            self.lines.append(self.stream.restart(source.name))
        else:
            raise AssertionError(step)


class Published:
    """Counts what the engine hands to its publisher."""

    def __init__(self, folder: Path) -> None:
        self.endpoint, self.replay = f"ipc://{folder}/pub", f"ipc://{folder}/replay"
        self.count = 0
        self.start()

    def start(self) -> None:
        self.inner = ZmqEventPublisher(0, endpoint=self.endpoint, replay_endpoint=self.replay)

    def publish(self, batch: Any) -> None:
        self.count += 1
        self.inner.publish(batch)

    def shutdown(self) -> None:
        self.inner.shutdown()
        del self.inner


@contextmanager
def listening(
    folder: Path, published: Published, names: Any, way: Way, **options: Any
) -> Iterator[Heard]:
    """A listener behind a proxy, until the end of the block."""
    heard = Heard(KvStream(names, as_received=options.get("as_received", False)))
    done = threading.Event()
    proxy = Proxy(published.endpoint, f"ipc://{folder}/way", way)
    replays = [published.replay] if options.pop("replay", False) else []
    with Listener(
        [f"ipc://{folder}/way"], replays=replays, stamp=batch_time, **options
    ) as listener:
        thread = threading.Thread(target=listener.run, args=(heard.take, done.is_set))
        thread.start()
        # A subscription takes its time to arrive.
        time.sleep(0.5)
        try:
            yield heard
            settle(heard)
            proxy.close()
            settle(heard)
        finally:
            done.set()
            thread.join()
            proxy.close()
        listener.end(heard.take)


def settle(heard: Heard) -> None:
    """Wait until nothing more comes."""
    seen = -1
    while seen != heard.applied:
        seen = heard.applied
        time.sleep(0.6)


def drive(folder: Path, published: Published, seed: int) -> Any:
    """Random load on an engine that publishes; its scheduler once it is idle."""
    made = make_scheduler(folder, gemma_like(), events=True)
    made.scheduler.kv_event_publisher = published
    running = Drive(made.scheduler)
    for _ in random_load(running, random.Random(seed), STEPS, longest=120, output=60):
        pass
    running.drain()
    return made.scheduler


def pool_of(scheduler: Any, names: Any) -> Counter[tuple[str, int]]:
    """Hashes that can be hit, by group, copies counted."""
    pool: Counter[tuple[str, int]] = Counter()
    cached = scheduler.kv_cache_manager.block_pool.cached_block_hash_to_block._cache
    for key, found in cached.items():
        group = f"group{int.from_bytes(key[-4:], 'big')}"
        copies = len(found) if isinstance(found, dict) else 1
        pool[group, names.hash(bytes(key[:-4]))] += copies
    return pool


def wire_of(heard: Heard) -> Counter[tuple[str, int]]:
    """What the wire adds up to."""
    held: Counter[tuple[str, int]] = Counter()
    for (_, group, _), place in heard.stream.lines.held.items():
        for name, copies in place.hashes.items():
            held[group, name] += copies
    return held


def together(hooks: Any, scheduler: Any, recorded: list[Any], heard: Heard) -> list[dict[str, Any]]:
    """One trace of what the hooks saw and what the listener heard, groups by the hooks' names."""
    groups = hooks.pool(scheduler.kv_cache_manager.block_pool).groups
    renamed = [
        line | {"group": groups[int(line["group"].removeprefix("group"))]}
        if "group" in line
        else line
        for line in heard.lines
    ]
    return [*recorded, *renamed]


@pytest.mark.parametrize("way", [straight, losing, doubling, Reordering])
def test_the_wire_adds_up_to_the_pool(
    tmp_path: Path, recorded: Any, findings: Any, way: Any
) -> None:
    folded, hooks = recorded
    published = Published(tmp_path)
    chosen = way() if way is Reordering else way
    with listening(tmp_path, published, hooks.keyed, chosen, replay=True) as heard:
        scheduler = drive(tmp_path, published, 3)
    published.shutdown()
    assert heard.lost == 0 and heard.restarts == 0
    if way is not losing:
        assert heard.applied == published.count
    # What was lost last shows no gap; all before it came.
    if heard.applied == published.count:
        pool = pool_of(scheduler, hooks.keyed)
        assert len({group for group, _ in pool}) == 3 and wire_of(heard) == pool
        report = findings(together(hooks, scheduler, folded.events, heard))
        assert {f["code"] for f in report["findings"]} & {"HKV901", "HKV902", "HKV903"} == set()
        assert not {"HKV901", "HKV902"} & {e["code"] for e in report["not_evaluable"]}


def test_without_a_replay_the_loss_is_told(tmp_path: Path, recorded: Any, findings: Any) -> None:
    _, hooks = recorded
    published = Published(tmp_path)
    with listening(tmp_path, published, hooks.keyed, losing, patience=0.2) as heard:
        drive(tmp_path, published, 3)
    published.shutdown()
    assert heard.lost > 0
    report = findings([heard.stream.begin(["x"]), *heard.lines])
    assert {f["code"] for f in report["findings"]} == {"HKV903"}


@pytest.mark.parametrize("way", [losing, doubling, Reordering])
def test_a_consumer_that_takes_what_comes_is_found(
    tmp_path: Path, recorded: Any, findings: Any, way: Any
) -> None:
    _, hooks = recorded
    published = Published(tmp_path)
    chosen = way() if way is Reordering else way
    with listening(tmp_path, published, hooks.keyed, chosen, as_received=True) as heard:
        drive(tmp_path, published, 3)
    published.shutdown()
    report = findings([heard.stream.begin(["x"]), *heard.lines])
    assert {f["code"] for f in report["findings"]} == {"HKV901"}


@pytest.mark.parametrize("replay", [True, False])
def test_an_engine_that_is_started_anew_is_followed(
    tmp_path: Path, recorded: Any, findings: Any, replay: bool
) -> None:
    _, hooks = recorded
    published = Published(tmp_path)
    with listening(tmp_path, published, hooks.keyed, straight, replay=replay) as heard:
        drive(tmp_path, published, 3)
        settle(heard)
        published.shutdown()
        published.start()
        time.sleep(0.5)
        scheduler = drive(tmp_path, published, 4)
    published.shutdown()
    assert heard.restarts == 1 and heard.lost == 0 and heard.applied == published.count
    assert wire_of(heard) == pool_of(scheduler, hooks.keyed)
    assert findings([heard.stream.begin(["x"]), *heard.lines])["findings"] == []


def test_who_comes_late_asks_for_what_was_before(tmp_path: Path, recorded: Any) -> None:
    _, hooks = recorded
    published = Published(tmp_path)
    scheduler = drive(tmp_path, published, 3)
    with listening(tmp_path, published, hooks.keyed, straight, replay=True, patience=5.0) as heard:
        time.sleep(1.0)
    published.shutdown()
    assert heard.applied == published.count
    assert wire_of(heard) == pool_of(scheduler, hooks.keyed)
