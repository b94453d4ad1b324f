"""SGLang's own prefix cache and allocators on a CPU: no model, no server, no GPU."""

from __future__ import annotations

import json
from array import array
from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.pool_host.base import host_memory_budget_scope
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

from engines_sglang import device

CORES = ("python", "rust")


class Engine:
    """A cache as the scheduler would make it, and what a scheduler does with it."""

    def __init__(
        self, core: str, *, page: int = 4, window: int | None = 8, slots: int = 512,
        swa_slots: int | None = None, host: float | None = None, policy: str = "write_through",
        publishes: bool = False, storage: str = "", prefetch: str = "wait_complete",
        files: int = 0,
    ) -> None:  # fmt: skip
        self.page, self.window = page, window
        arguments: dict[str, Any] = {}
        if host is not None:
            device.stand_in()
            arguments = {
                "enable_hierarchical_cache": True, "hicache_ratio": host,
                "hicache_write_policy": policy, "hicache_io_backend": "direct",
                "hicache_mem_layout": "layer_first",
            }  # fmt: skip
        if storage:
            arguments |= {
                "hicache_storage_backend": "file", "file_storage_path": storage,
                "hicache_storage_prefetch_policy": prefetch,
                "hicache_storage_backend_extra_config": json.dumps(
                    {"prefetch_threshold": page, "max_size": files * 32 * page}
                ),
            }  # fmt: skip
        server = ServerArgs(model_path="dummy", page_size=page, **arguments)
        set_global_server_args_for_scheduler(server)
        requests = ReqToTokenPool(
            size=8, max_context_len=512, device="cpu", enable_memory_saver=False
        )
        shape: dict[str, Any] = {"page_size": page, "dtype": torch.bfloat16}
        components: tuple[Any, ...] = (ComponentType.FULL,)
        if window is None:
            pool: Any = MHATokenToKVPool(
                size=slots, head_num=1, head_dim=8, layer_num=1, device="cpu",
                enable_memory_saver=False, **shape,
            )  # fmt: skip
            made = {"size": slots, "device": "cpu", "kvcache": pool, "need_sort": False}
            if page == 1:
                self.allocator: Any = TokenToKVPoolAllocator(dtype=torch.bfloat16, **made)
            else:
                self.allocator = PagedTokenToKVPoolAllocator(**made, **shape)
        else:
            small = slots if swa_slots is None else swa_slots
            pool = SWAKVPool(
                size=slots, size_swa=small, head_num=1, head_dim=8, device="cpu",
                swa_attention_layer_ids=[0], full_attention_layer_ids=[1], **shape,
            )  # fmt: skip
            self.allocator = SWATokenToKVPoolAllocator(
                size=slots, size_swa=small, device="cpu", kvcache=pool, need_sort=False, **shape
            )
            components = (ComponentType.FULL, ComponentType.SWA)
        params = CacheInitParams(
            req_to_token_pool=requests, token_to_kv_pool_allocator=self.allocator,
            page_size=page, disable=False, sliding_window_size=window,
            tree_components=components, tree_core_backend=core,
            enable_kv_cache_events=publishes,
        )  # fmt: skip
        self.cache = UnifiedRadixCache(params)
        if host is not None:
            # It wants many gigabytes to be free beyond what it takes.
            with host_memory_budget_scope(1 << 30):
                self.cache.init_hicache(server, params)
            self.cache.load_back_threshold = 1
            for entry in self.cache.cache_controller.mem_pool_host.entries:
                entry.host_pool.pin_memory = False

    # --- what a model does -----------------------------------------------------------------

    def compute(self, batch: Any) -> None:
        """Run a batch: attention leaves nothing that these tests look at."""

    def processed(self, batch: Any) -> None:
        """The result of a batch is read."""

    # --- what a scheduler does -------------------------------------------------------------

    def key(self, tokens: list[int]) -> Any:
        return RadixKey(array("q", tokens))

    def room(self) -> int:
        """Slots that can be taken now, in the pool that has fewer."""
        if self.window is None:
            return int(self.allocator.available_size())
        return int(min(self.allocator.full_available_size(), self.allocator.swa_available_size()))

    def match(self, tokens: list[int], req: Any = None) -> Any:
        return self.cache.match_prefix(MatchPrefixParams(key=self.key(tokens), req=req))

    def extend(self, prefix: Any, total: int) -> Any:
        """Slots for the tokens behind a prefix, as a prefill takes them."""
        start = len(prefix)
        if self.page == 1:
            return self.allocator.alloc(total - start)
        last = prefix[-1:] if start else torch.tensor([-1])
        lens = torch.tensor([start]), torch.tensor([total])
        return self.allocator.alloc_extend(lens[0], lens[0], lens[1], lens[1], last, total - start)

    def decode(self, total: int, last: Any) -> Any:
        """The slot of one more token."""
        if self.page == 1:
            return self.allocator.alloc(1)
        lens = torch.tensor([total])
        return self.allocator.alloc_decode(lens, lens, last)

    def insert(self, tokens: list[int], slots: Any, had: int = 0) -> Any:
        """Give whole pages of a sequence to the tree; `had` tokens of it are the tree's."""
        return self.cache.insert(
            InsertParams(key=self.key(tokens), value=slots, prev_prefix_len=had)
        )

    def prefill(self, tokens: list[int]) -> Any:
        """Compute a sequence that nothing is known of, and give it to the tree."""
        slots = self.extend(torch.empty(0, dtype=torch.int64), len(tokens))
        return None if slots is None else self.insert(tokens, slots)

    def evict(self, full: int = 0, swa: int = 0) -> Any:
        return self.cache.evict(EvictParams(num_tokens=full, swa_num_tokens=swa))
