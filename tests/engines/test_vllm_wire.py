"""vLLM's own publisher of KV events, heard through a way that loses, doubles, reorders and ends.

The scheduler and the cache manager are the engine's; their events go through its ZmqEventPublisher,
a proxy, and the listener. What the wire adds up to is compared with the engine's pool, and the
trace of both, hooks and wire, is checked.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from vllm.distributed.kv_events import KVEventBatch, ZmqEventPublisher

from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, random_load
from engines.wire import (
    PATIENT,
    Heard,
    Published,
    Reordering,
    doubling,
    listening,
    losing,
    straight,
    wait_until,
)

pytest.importorskip("msgpack")

STEPS = 120


def publisher(folder: Path) -> Published:
    return Published(folder, ZmqEventPublisher, KVEventBatch)


def heard_by(
    folder: Path,
    published: Published,
    names: Any,
    way: Any,
    *,
    replay: bool = False,
    **options: Any,
) -> Any:
    """A listener behind a way of its own."""
    chosen = way() if way is Reordering else way
    asked = published.replay if replay else None
    return listening(folder, published.endpoint, asked, names, chosen, **options)


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
    published = publisher(tmp_path)
    with heard_by(
        tmp_path, published, hooks.keyed, way, replay=True, patience=PATIENT
    ) as heard:  # fmt: skip
        scheduler = drive(tmp_path, published, 3)
        published.flush(heard)
    published.shutdown()
    assert heard.lost == 0 and heard.restarts == 0
    assert heard.applied - heard.empty == published.count
    pool = pool_of(scheduler, hooks.keyed)
    assert len({group for group, _ in pool}) == 3 and wire_of(heard) == pool
    report = findings(together(hooks, scheduler, folded.events, heard))
    assert {f["code"] for f in report["findings"]} & {"HKV901", "HKV902", "HKV903"} == set()
    assert not {"HKV901", "HKV902"} & {e["code"] for e in report["not_evaluable"]}


def test_without_a_replay_the_loss_is_told(tmp_path: Path, recorded: Any, findings: Any) -> None:
    _, hooks = recorded
    published = publisher(tmp_path)
    with heard_by(tmp_path, published, hooks.keyed, losing, patience=0.2) as heard:
        drive(tmp_path, published, 3)
        published.flush(heard)
    published.shutdown()
    assert heard.lost > 0
    report = findings([heard.stream.begin(["x"]), *heard.lines])
    assert {f["code"] for f in report["findings"]} == {"HKV903"}


@pytest.mark.parametrize("way", [losing, doubling, Reordering])
def test_a_consumer_that_takes_what_comes_is_found(
    tmp_path: Path, recorded: Any, findings: Any, way: Any
) -> None:
    _, hooks = recorded
    published = publisher(tmp_path)
    with heard_by(tmp_path, published, hooks.keyed, way, as_received=True) as heard:
        drive(tmp_path, published, 3)
        published.flush(heard)
    published.shutdown()
    report = findings([heard.stream.begin(["x"]), *heard.lines])
    assert {f["code"] for f in report["findings"]} == {"HKV901"}


@pytest.mark.parametrize("replay", [True, False])
def test_an_engine_that_is_started_anew_is_followed(
    tmp_path: Path, recorded: Any, findings: Any, replay: bool
) -> None:
    _, hooks = recorded
    published = publisher(tmp_path)
    with heard_by(
        tmp_path, published, hooks.keyed, straight, replay=replay, patience=PATIENT
    ) as heard:  # fmt: skip
        drive(tmp_path, published, 3)
        published.flush(heard)
        published.shutdown()
        published.start()
        heard.reach()
        scheduler = drive(tmp_path, published, 4)
        published.flush(heard)
    published.shutdown()
    assert heard.restarts == 1 and heard.lost == 0
    assert heard.applied - heard.empty == published.count
    assert wire_of(heard) == pool_of(scheduler, hooks.keyed)
    assert findings([heard.stream.begin(["x"]), *heard.lines])["findings"] == []


def test_who_comes_late_asks_for_what_was_before(tmp_path: Path, recorded: Any) -> None:
    _, hooks = recorded
    published = publisher(tmp_path)
    scheduler = drive(tmp_path, published, 3)
    published.sent()
    with heard_by(tmp_path, published, hooks.keyed, straight, replay=True) as heard:
        wait_until(lambda: heard.applied >= published.count)
    published.shutdown()
    assert heard.applied == published.count
    assert wire_of(heard) == pool_of(scheduler, hooks.keyed)


def test_what_the_way_lost_last_is_asked_for(tmp_path: Path, recorded: Any) -> None:
    _, hooks = recorded
    published = publisher(tmp_path)

    def nothing(frames: Any, rnd: random.Random) -> list[Any]:
        return []

    with heard_by(
        tmp_path, published, hooks.keyed, nothing, replay=True, patience=0.5
    ) as heard:  # fmt: skip
        scheduler = drive(tmp_path, published, 3)
        wait_until(lambda: heard.applied >= published.count)
    published.shutdown()
    assert heard.applied == published.count
    assert wire_of(heard) == pool_of(scheduler, hooks.keyed)
