"""SGLang's cache for DeepSeek-V4, with its own pools of compressed histories, windows, rows that
route and open units, small and on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.deepseek_v4_memory_pool import DeepSeekV4TokenToKVPool
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_request_load import RequestLoad

PAGE = 256
"""SGLang takes no other for this model."""

RATIOS = [0, 4, 128, 4]
"""Of each layer; 0 is one that has a window only."""


class V4Engine(Engine):
    """A cache as the scheduler would make it for DeepSeek-V4."""

    def __init__(self, core: str, *, pages: int = 24, swa_pages: int = 12) -> None:
        self.page, self.window = PAGE, 128
        set_global_server_args_for_scheduler(ServerArgs(model_path="dummy", page_size=PAGE))
        requests = ReqToTokenPool(
            size=6, max_context_len=4096, device="cpu", enable_memory_saver=False
        )
        slots, small = pages * PAGE, swa_pages * PAGE
        self.pool = DeepSeekV4TokenToKVPool(
            max_num_reqs=6, swa_size=small, c4_size=slots // 4, c128_size=slots // 128,
            c4_state_pool_size=swa_pages * 8, c128_state_pool_size=6 * 128, page_size=PAGE,
            swa_page_size=PAGE, dtype=torch.float8_e4m3fn, c4_state_dtype=torch.float32,
            c128_state_dtype=torch.float32, qk_nope_head_dim=448, qk_rope_head_dim=64,
            indexer_head_dim=128, layer_num=len(RATIOS), device="cpu", enable_memory_saver=False,
            compression_ratios=RATIOS, sliding_window=128, start_layer=0, end_layer=len(RATIOS),
            full_size=slots,
        )  # fmt: skip
        self.allocator = SWATokenToKVPoolAllocator(
            size=slots, size_swa=small, page_size=PAGE, dtype=torch.float8_e4m3fn, device="cpu",
            kvcache=self.pool, need_sort=False,
        )  # fmt: skip
        self.cache = UnifiedRadixCache(CacheInitParams(
            req_to_token_pool=requests, token_to_kv_pool_allocator=self.allocator, page_size=PAGE,
            disable=False, sliding_window_size=128, tree_core_backend=core,
            tree_components=(ComponentType.FULL, ComponentType.SWA),
        ))  # fmt: skip


class V4Load(RequestLoad):
    """Requests of some pages each."""

    def __init__(self, engine: V4Engine, seed: int) -> None:
        super().__init__(engine, seed, most=5 * PAGE)

    def kinds(self) -> dict[Any, float]:
        return {**super().kinds(), self.evict_window: 3}

    def evict_window(self) -> None:
        count = self.rng.randrange(1, 4) * PAGE
        self.engine.cache.evict(EvictParams(num_tokens=0, swa_num_tokens=count))
