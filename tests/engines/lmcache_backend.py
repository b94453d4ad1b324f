"""LMCache's local CPU backend at work, without a model: chunks are stored, looked up and evicted."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from random import Random
from typing import Any

os.environ.update(LMCACHE_LOG_LEVEL="CRITICAL", LMCACHE_TRACK_USAGE="false")

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

from hkvtool.conformance import Books, Moment
from hkvtool.conformance.books import differences as books_and_fold
from hkvtool.conformance.drives import Told

# When the monitor of pins looks, the tests say; a thread of it would come in between.
PinMonitor.start_monitoring = lambda self: None

PAGE, LAYERS = 4096, 2
CHUNK = torch.Size([2, 1, 16, 32])
LARGE = torch.Size([2, 2, 16, 32])
"""A chunk of one page, and of two."""


class Cache:
    """A backend of a few pages, and the chunks that its user holds."""

    def __init__(self, pages: int = 8) -> None:
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=16, local_cpu=True, max_local_cpu_size=0.001
        )
        PinMonitor.GetOrCreate(self.config)
        self.allocator = MixedMemoryAllocator(pages * PAGE)
        self.backend = LocalCPUBackend(self.config, memory_allocator=self.allocator)
        self.mine: list[Any] = []

    @staticmethod
    def key(number: int, layer: int | None = None) -> Any:
        whole = CacheEngineKey("model", 1, 0, number, torch.float32)
        return whole if layer is None else whole.split_layers(LAYERS)[layer]

    def store(self, number: int, shape: Any = CHUNK) -> bool:
        """Take a chunk, publish it, let go of it; what the engine's storing does."""
        obj = self.backend.allocate(shape, torch.float32, busy_loop=False)
        if obj is None:
            return False
        self.backend.submit_put_task(self.key(number), obj)
        obj.ref_count_down()
        return True

    def store_layers(self, number: int) -> bool:
        """The same layer by layer."""
        objs = self.backend.batched_allocate(CHUNK, torch.float32, LAYERS, busy_loop=False)
        if objs is None:
            return False
        for layer, obj in enumerate(objs):
            self.backend.submit_put_task(self.key(number, layer), obj)
            obj.ref_count_down()
        return True

    def fetch(self, number: int) -> bool:
        """Take a reference on a chunk, to read it."""
        obj = self.backend.get_blocking(self.key(number))
        if obj is not None:
            self.mine.append(obj)
        return obj is not None

    def let_go(self) -> None:
        if self.mine:
            self.mine.pop(0).ref_count_down()

    def books(self) -> Books:
        """What the engine's own objects say."""
        cached = self.backend.hot_cache
        live = {id(o): o for o in [*cached.values(), *self.mine] if o.is_valid()}.values()
        hashes: dict[int, list[int]] = {}
        for key, obj in cached.items():
            hashes.setdefault(obj.meta.address // PAGE, []).append(key.chunk_hash)
        return Books(
            {o.meta.address // PAGE: o.meta.ref_count for o in live},
            hashes,
            {o.meta.address // PAGE: o.meta.pin_count for o in live},
        )

    def close(self) -> None:
        while self.mine:
            self.let_go()
        self.backend.clear()
        self.backend.close()


def differences(told: Told, cache: Cache) -> Iterator[str]:
    """In what the fold of what was told is not the cache."""
    return books_and_fold(told.fold, "lmcache.cpu", cache.books(), told.keyed)


def drive(seed: int = 0, count: int = 120) -> Iterator[Moment]:
    """Random work on a cache that is always too small; the same of the same seed."""
    rnd, cache = Random(seed), Cache()
    pinned: list[int] = []
    try:
        for _ in range(count):
            yield Moment(_work(rnd, cache, pinned), {"lmcache.cpu": cache.books()})
    finally:
        while pinned:
            cache.backend.unpin(cache.key(pinned.pop()))
        cache.close()
        del cache
        gc.collect()


def _work(rnd: Random, cache: Cache, pinned: list[int]) -> object:
    kind, number = rnd.randrange(10), rnd.randrange(12)
    if kind < 3:
        return cache.store(number, rnd.choice((CHUNK, CHUNK, LARGE)))
    if kind == 3:
        return cache.store_layers(100 + number)
    if kind == 4 and len(pinned) < 3:
        if cache.backend.contains(cache.key(number), pin=True):
            pinned.append(number)
            return number
    elif kind == 5 and pinned:
        cache.backend.touch_cache()
        return cache.backend.unpin(cache.key(pinned.pop(0)))
    elif kind == 6 and len(cache.mine) < 2:
        return cache.fetch(number)
    elif kind == 7:
        cache.let_go()
    elif kind == 8 and number not in pinned:
        return cache.backend.remove(cache.key(number))
    return [key.chunk_hash for key in cache.backend.get_keys()]
