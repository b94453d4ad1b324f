"""vLLM's hooks pass what every adapter has to, under the engine's own scheduler."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, random_load
from hkvtool.conformance import AdapterConformance, Books, Moment
from hkvtool.conformance.drives import Told
from hkvtool.recorder.vllm.adapter import ADAPTER
from hkvtool.recorder.vllm.privacy import Keyed

STEPS = 60


class TestVllm(AdapterConformance):
    adapter = ADAPTER

    def name(self, told: Told, value: Any) -> str:
        return str(Keyed(told.keyed).hash(value))

    def drive(self) -> Iterator[Moment]:
        with tempfile.TemporaryDirectory() as folder:
            made = make_scheduler(Path(folder), gemma_like(), events=False)
            running = Drive(made.scheduler)
            for _ in random_load(running, random.Random(3), STEPS, longest=120, output=40):
                yield moment(made.scheduler)
            running.drain()
            yield moment(made.scheduler)


def moment(scheduler: Any) -> Moment:
    """Where each request is and in which blocks, and the pool's own books."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    at = {
        name: (request.num_computed_tokens, manager.get_block_ids(name))
        for name, request in scheduler.requests.items()
    }
    hashes: dict[int, list[bytes]] = {}
    for key, found in pool.cached_block_hash_to_block._cache.items():
        for block in found if isinstance(found, dict) else [found.block_id]:
            hashes.setdefault(block, []).append(bytes(key[:-4]))
    refs = {b.block_id: b.ref_cnt for b in pool.blocks if not b.is_null}
    return Moment(at, {"gpu": Books(refs, hashes)})
