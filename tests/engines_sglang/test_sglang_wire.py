"""SGLang's own publisher of KV events behind its real cache, heard through a way that loses,
doubles, reorders and ends.

The tree, the host tier, the events, their encoding and the socket are SGLang's. What the wire adds
up to is compared with what the hooks told of the very same tree, on the device and on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from engines.wire import (
    PATIENT,
    Heard,
    Published,
    Reordering,
    doubling,
    listening,
    losing,
    straight,
)
from sglang.srt.disaggregation.kv_events import KVEventBatch, ZmqEventPublisher
from sglang.srt.managers.scheduler_components.kv_events_publisher import SchedulerKvEventsPublisher
from sglang.srt.mem_cache.utils import get_storage_hash_str, hash_str_to_int64

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_host_load import HostLoad
from engines_sglang.sglang_state import Folded
from hkvtool.analyzers import check
from hkvtool.importers.kv_events import hash_bytes
from hkvtool.model.event import Event
from hkvtool.recorder.sglang import cache_hooks
from hkvtool.recorder.sglang.attach import attach
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.vllm.privacy import Keyed

NAMES = Keyed()

Held = set[tuple[str, int]]


def publish(published: Published, engine: Engine) -> None:
    """What has happened in a cache, as its scheduler hands it on."""
    SchedulerKvEventsPublisher.publish_kv_events(
        SimpleNamespace(  # type: ignore[arg-type]
            enable_kv_cache_events=True, tree_cache=engine.cache, kv_event_publisher=published
        )
    )


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Published]:
    made = Published(tmp_path, ZmqEventPublisher, KVEventBatch)
    yield made
    made.shutdown()


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    """Hooks that name a page by what SGLang calls it on the wire."""
    seen: dict[bytes, str] = {}
    inner = cache_hooks.hashes

    def hashes(key: Any, page: int, count: int) -> list[bytes]:
        digests = inner(key, page, count)
        names = get_storage_hash_str(key[: count * page], page_size=page) if count else []
        seen.update(zip(digests, names, strict=True))
        return digests

    def keyed(digest: bytes) -> str:
        return str(NAMES.hash(hash_bytes(hash_str_to_int64(seen[digest]))))

    monkeypatch.setattr(cache_hooks, "hashes", hashes)
    attached = attach(Folded(), keyed=keyed)
    yield attached
    attached.remove()
    assert not attached.failed


def drive(core: str, seed: int, publisher: Published, steps: int = 120) -> Engine:
    """Random load on a cache with memory of the host below it, that publishes."""
    shape: dict[str, Any] = {"slots": 160, "swa_slots": 96, "host": 1.5}
    load = HostLoad(Engine(core, publishes=True, **shape), seed)
    for _ in range(steps):
        load.step()
        publish(publisher, load.engine)
    load.poll(land=True)
    publish(publisher, load.engine)
    return load.engine


def told_of(hooks: Hooks) -> Held:
    """What the tree has on full attention, by medium: the wire tells of no other group."""
    state = hooks.caches[-1]
    assert state.full is not None and state.tier is not None
    held = {("gpu", int(name)) for name in state.full.page_of}
    return held | {("cpu", int(name)) for name in state.tier.pools["kv"].page_of}


def wire_of(heard: Heard) -> Held:
    return {
        (medium, name)
        for (_, _, medium), place in heard.stream.lines.held.items()
        for name in place.hashes
    }


def codes(heard: Heard) -> set[str]:
    lines = [heard.stream.begin(["x"]), *heard.lines]
    return {f.code for f in check(Event.of(i, d) for i, d in enumerate(lines, 1)).findings}


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("way", [straight, losing, doubling, Reordering])
def test_the_wire_adds_up_to_the_tree(
    tmp_path: Path, publisher: Published, hooks: Hooks, way: Any, core: str
) -> None:
    chosen = way() if way is Reordering else way
    with listening(
        tmp_path, publisher.endpoint, publisher.replay, NAMES, chosen, patience=PATIENT
    ) as heard:
        drive(core, 3, publisher)
        publisher.flush(heard)
        assert heard.applied - heard.empty == publisher.count > 40
        held = told_of(hooks)
        assert wire_of(heard) == held
    assert heard.lost == 0 and heard.restarts == 0 and codes(heard) == set()
    assert {medium for medium, _ in held} == {"gpu", "cpu"} and len(held) > 40


def test_an_engine_that_is_started_anew_is_followed(
    tmp_path: Path, publisher: Published, hooks: Hooks
) -> None:
    with listening(
        tmp_path, publisher.endpoint, publisher.replay, NAMES, straight, patience=PATIENT
    ) as heard:
        drive("rust", 3, publisher)
        publisher.flush(heard)
        publisher.shutdown()
        publisher.start()
        drive("rust", 4, publisher)
        publisher.flush(heard)
        assert heard.restarts == 1 and heard.lost == 0
        assert heard.applied - heard.empty == publisher.count
        assert wire_of(heard) == told_of(hooks)


@pytest.mark.parametrize("way", [losing, doubling, Reordering])
def test_a_consumer_that_takes_what_comes_is_found(
    tmp_path: Path, publisher: Published, way: Any
) -> None:
    chosen = way() if way is Reordering else way
    rng = Random(7)
    with listening(
        tmp_path, publisher.endpoint, None, NAMES, chosen, as_received=True
    ) as heard:  # fmt: skip
        engine = Engine("rust", publishes=True)
        for number in range(60):
            engine.prefill([number, *(rng.randrange(9) for _ in range(15))])
            publish(publisher, engine)
        publisher.flush(heard)
    assert codes(heard) == {"HKV901"}


def test_a_window_that_goes_sends_nothing(publisher: Published) -> None:
    """What the protocol does not allow: the wire shows a prefix that nobody can resume."""
    engine = Engine("rust", publishes=True)
    head = list(range(1, 25))
    left, right = [*head, *range(100, 116)], [*head, *range(200, 216)]
    for tokens in (head, left, right):
        engine.prefill(tokens)
    engine.match(left)
    engine.match(right)
    publish(publisher, engine)
    before = publisher.count
    assert engine.evict(swa=24).swa_num_tokens_evicted == 24
    publish(publisher, engine)
    found = engine.match([*head, 300, 301, 302, 303])
    assert (found.full_kv_hit_length, found.device_prefix_len) == (24, 0)
    assert publisher.count == before
