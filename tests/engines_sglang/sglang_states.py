"""SGLang's cache for a model with recurrent layers, and a stand-in for these layers that computes.

The state of a sequence is a number that only its tokens lead to. It lies where SGLang's own pool has
it, and is cleared and copied by SGLang's own code, so that a state told to be that of some tokens
can be compared with what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from sglang.srt.configs.mamba_utils import (
    Mamba2CacheParams,
    Mamba2StateDType,
    Mamba2StateShape,
)
from sglang.srt.managers.scheduler_components.batch_result_processor import (
    SchedulerBatchResultProcessor,
)
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool, HybridReqToTokenPool
from sglang.srt.mem_cache.unified_cache.components.base import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

from engines_sglang.sglang_cache import Engine
from engines_sglang.sglang_request_load import RequestLoad
from engines_sglang.sglang_state import Folded, differences
from hkvtool.model.event import Event
from hkvtool.recorder.sglang.paths import hashes
from hkvtool.recorder.sglang.states import StatePool
from hkvtool.state.fold import Fold
from hkvtool.store.derive_reads import Deriving

STRATEGIES = ("no_buffer", "extra_buffer", "extra_buffer_lazy")

CHUNK = 4
"""Tokens between states that a prefill can leave for the tree."""

INTERVAL = 8
"""And between those that decoding leaves."""


class StateEngine(Engine):
    """A cache as the scheduler would make it for a hybrid model."""

    def __init__(
        self, core: str, strategy: str, *, page: int = 1, slots: int = 512, states: int = 24,
        per_path: int = -1, overlap: bool = True,
    ) -> None:  # fmt: skip
        self.page, self.window, self.strategy = page, None, strategy
        server = ServerArgs(
            model_path="dummy", page_size=page, mamba_radix_cache_strategy=strategy,
            mamba_track_interval=INTERVAL, mamba_max_states_per_path=per_path,
        )  # fmt: skip
        server._mamba_cache_chunk_size = max(CHUNK, page)
        set_global_server_args_for_scheduler(server)
        extra = strategy != "no_buffer"
        shape = Mamba2StateShape.create(
            tp_world_size=1, intermediate_size=16, n_groups=1, num_heads=2, head_dim=8,
            state_size=4, conv_kernel=4,
        )  # fmt: skip
        kinds = Mamba2StateDType(conv=torch.bfloat16, temporal=torch.float32)
        self.requests = HybridReqToTokenPool(
            size=8, mamba_size=states, mamba_spec_state_size=8, max_context_len=512, device="cpu",
            enable_memory_saver=False, mamba_layer_ids=[0, 2], enable_mamba_extra_buffer=extra,
            cache_params=Mamba2CacheParams(shape=shape, layers=[0, 2], dtype=kinds),
            enable_mamba_extra_buffer_lazy=strategy == "extra_buffer_lazy",
            enable_overlap_schedule=overlap,
        )  # fmt: skip
        pool = HybridLinearKVPool(
            size=slots, dtype=torch.bfloat16, page_size=page, head_num=1, head_dim=8,
            full_attention_layer_ids=[1], device="cpu", mamba_pool=self.requests.mamba_pool,
        )  # fmt: skip
        made: dict[str, Any] = {
            "size": slots, "dtype": torch.bfloat16, "device": "cpu", "kvcache": pool,
            "need_sort": False,
        }  # fmt: skip
        if page == 1:
            self.allocator = TokenToKVPoolAllocator(**made)
        else:
            self.allocator = PagedTokenToKVPoolAllocator(page_size=page, **made)
        params = CacheInitParams(
            req_to_token_pool=self.requests, token_to_kv_pool_allocator=self.allocator,
            page_size=page, disable=False, tree_core_backend=core, enable_mamba_extra_buffer=extra,
            tree_components=(ComponentType.FULL, ComponentType.MAMBA),
        )  # fmt: skip
        self.cache = UnifiedRadixCache(params)
        self.tokens_of: dict[float, tuple[int, ...]] = {0.0: ()}
        """What the number of a state stands for."""
        self.numbers: dict[tuple[int, ...], float] = {}
        self.processor = object.__new__(SchedulerBatchResultProcessor)
        for name in SchedulerBatchResultProcessor.__slots__:
            object.__setattr__(self.processor, name, None)
        object.__setattr__(self.processor, "tree_cache", self.cache)

    def evict_states(self, count: int) -> Any:
        return self.cache.evict(EvictParams(num_tokens=0, mamba_num=count))

    # --- the layers ------------------------------------------------------------------------

    def _number(self, tokens: list[int]) -> float:
        number = self.numbers.setdefault(tuple(tokens), float(len(self.numbers) + 1))
        self.tokens_of[number] = tuple(tokens)
        return number

    def number_in(self, slot: int) -> float:
        """What is in a slot, of the last layer."""
        return float(self.requests.mamba_pool.mamba_cache.temporal[1, slot, 0, 0, 0])

    def _fill(self, slot: int, tokens: list[int]) -> None:
        assert slot > 0
        self.requests.mamba_pool.mamba_cache.temporal[:, slot] = self._number(tokens)

    def compute(self, batch: Any) -> None:
        """Run the layers on a batch."""
        ModelRunner._maybe_execute_deferred_mamba_cow_and_clear(
            SimpleNamespace(req_to_token_pool=self.requests, is_draft_worker=False), batch
        )
        decodes = batch.forward_mode.is_decode()
        for i, req in enumerate(batch.reqs):
            tokens = [*req.origin_input_ids, *req.output_ids]
            if decodes:
                start, end = int(batch.seq_lens_cpu[i]) - 1, int(batch.seq_lens_cpu[i])
            else:
                start, end = batch.prefix_lens[i], batch.prefix_lens[i] + batch.extend_lens[i]
            own = int(req.kv.mamba_pool_idx)
            assert self.tokens_of[self.number_in(own)] == tuple(tokens[:start])
            self._fill(own, tokens[:end])
            if batch.mamba_track_mask is not None and bool(batch.mamba_track_mask[i]):
                at = end if decodes else req.kv.mamba_last_track_seqlen
                self._fill(int(batch.mamba_track_indices[i]), tokens[:at])

    def processed(self, batch: Any) -> None:
        """What SGLang makes of a batch's result, of the states of its requests."""
        if batch.forward_mode.is_decode() and self.strategy != "no_buffer":
            for i, req in enumerate(batch.reqs):
                self.processor._handle_finish_state_updated_req(req, batch, MagicMock(), i, None)


class StateLoad(RequestLoad):
    """Requests of such a model."""

    def kinds(self) -> dict[Any, float]:
        return {**super().kinds(), self.evict_states: 3}

    def room(self, tokens: int) -> bool:
        slots = self.engine.requests.mamba_allocator.available_size()
        return super().room(tokens) and slots + self.engine.cache.mamba_evictable_size() > 4

    def evict_states(self) -> None:
        self.engine.evict_states(self.rng.randrange(1, 4))


class Contents:
    """What is in each state by what was told, with what follows of each step."""

    def __init__(self, folded: Folded) -> None:
        self.folded, self.deriving, self.fold = folded, Deriving(), Fold()
        self.seen = 0

    def end(self, name: str, slot: int) -> int:
        """The position of the state in a slot."""
        for pos, data in enumerate(self.folded.events[self.seen :], self.seen + 1):
            for event in self.deriving.of(Event.of(pos, data)):
                problem = self.fold.apply(event)
                assert problem is None, (problem, event.data)
        self.seen = len(self.folded.events)
        group = self.fold.declared.groups[name]
        place = self.fold.component(self.fold.slot(group.pool, slot), group)
        return int(self.fold.st.hi[place])


def state_differences(
    folded: Folded, engine: StateEngine, pools: list[Any], contents: Contents
) -> Iterator[str]:
    """In what engine and fold differ: of pages and slots, and of what is in the tree's states."""
    yield from differences(folded, engine.cache, pools)
    [pool] = [p for p in pools if isinstance(p, StatePool)]
    for slot, name in pool.hash_of.items():
        tokens = engine.tokens_of[engine.number_in(slot)]
        [*_, digest] = hashes(engine.key(list(tokens)), engine.page, len(tokens) // engine.page)
        if pool.cache.hooks.keyed(digest) != name:
            yield f"state {slot} is of {len(tokens)} other tokens than its hash"
        end = contents.end(pool.name, slot)
        if not end == pool.place[slot] + 1 == len(tokens):
            yield f"state {slot} is of {len(tokens)} tokens, folded {end}"
