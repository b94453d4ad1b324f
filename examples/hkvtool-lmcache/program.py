"""LMCache's CPU backend without a model: chunks are stored, looked up and evicted, and one lookup
holds its chunk for longer than the monitor allows."""

from __future__ import annotations

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_allocators.mixed_memory_allocator import MixedMemoryAllocator
from lmcache.v1.pin_monitor import PinMonitor
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

CHUNK = torch.Size([2, 1, 16, 32])


def key(number: int) -> CacheEngineKey:
    return CacheEngineKey("model", 1, 0, number, torch.float32)


def main() -> None:
    config = LMCacheEngineConfig.from_defaults(chunk_size=16, local_cpu=True)
    monitor = PinMonitor.GetOrCreate(config)
    cache = LocalCPUBackend(config, memory_allocator=MixedMemoryAllocator(8 * 4096))
    for number in range(12):
        chunk = cache.allocate(CHUNK, torch.float32)
        cache.submit_put_task(key(number), chunk)
        chunk.ref_count_down()
    cache.contains(key(11), pin=True)
    # As if five minutes had gone by, in which the lookup's request was not scheduled.
    monitor._pin_timeout_sec = -1.0
    monitor._check_timeouts()
    cache.unpin(key(11))
    cache.clear()
    cache.close()
    monitor.stop_monitoring()


main()
