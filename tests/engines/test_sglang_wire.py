"""SGLang's own publisher of KV events, heard through a way that loses, doubles and reorders.

The publisher, its events and their encoding are SGLang's; which hashes are stored and removed is
made up, some of them negative, as its 64-bit hashes are signed.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

from engines.wire import Heard, Reordering, doubling, listening, losing, straight
from hkvtool.analyzers import check
from hkvtool.importers.kv_events import hash_bytes
from hkvtool.model.event import Event
from hkvtool.recorder.vllm.privacy import Keyed

kv_events = pytest.importorskip("sglang.srt.disaggregation.kv_events")

NAMES = Keyed()
MEDIA = {"GPU": "gpu", "CPU_PINNED": "cpu"}
Held = set[tuple[str, int]]


def load(publisher: Any, steps: int) -> Held:
    """Random stores and removals on two tiers; what is left in the end, by medium and name."""
    rnd = random.Random(7)
    held: set[tuple[str, int]] = set()
    for _ in range(steps):
        events: list[Any] = []
        medium = rnd.choice(sorted(MEDIA))
        fresh = [rnd.getrandbits(64) - (1 << 63) for _ in range(rnd.randint(1, 4))]
        events.append(
            kv_events.BlockStored(
                block_hashes=fresh,
                parent_block_hash=None,
                token_ids=[1] * 64 * len(fresh),
                block_size=64,
                lora_id=None,
                medium=medium,
            )
        )
        held |= {(medium, name) for name in fresh}
        gone = [place for place in sorted(held) if rnd.random() < 0.02]
        for where, name in gone:
            events.append(kv_events.BlockRemoved(block_hashes=[name], medium=where))
        held -= set(gone)
        publisher.publish(kv_events.KVEventBatch(ts=time.time(), events=events))
    return {(MEDIA[medium], NAMES.hash(hash_bytes(name))) for medium, name in held}


def wire_of(heard: Heard) -> Held:
    return {
        (medium, name)
        for (_, _, medium), place in heard.stream.lines.held.items()
        for name in place.hashes
    }


@pytest.fixture
def publisher(tmp_path: Path) -> Any:
    made = kv_events.ZmqEventPublisher(
        0, endpoint=f"ipc://{tmp_path}/pub", replay_endpoint=f"ipc://{tmp_path}/replay"
    )
    yield made
    made.shutdown()


def codes(heard: Heard) -> set[str]:
    lines = [heard.stream.begin(["x"]), *heard.lines]
    return {f.code for f in check(Event.of(i, d) for i, d in enumerate(lines, 1)).findings}


@pytest.mark.parametrize("way", [straight, losing, doubling, Reordering])
@pytest.mark.parametrize("as_received", [False, True])
def test_the_wire_adds_up(tmp_path: Path, publisher: Any, way: Any, as_received: bool) -> None:
    chosen = way() if way is Reordering else way
    replay = None if as_received else f"ipc://{tmp_path}/replay"
    with listening(
        tmp_path, f"ipc://{tmp_path}/pub", replay, NAMES, chosen, as_received=as_received
    ) as heard:
        held = load(publisher, 100)
        # The last one comes through in the end: what is lost last shows no gap.
        for _ in range(20):
            publisher.publish(kv_events.KVEventBatch(ts=time.time(), events=[]))
    if as_received:
        assert codes(heard) == (set() if way is straight else {"HKV901"})
        return
    assert heard.lost == 0 and codes(heard) == set()
    assert len(held) > 50 and wire_of(heard) == held
