"""vLLM's own scheduler and cache manager without a model: what a step returns is made up.

Runs in the engine's environment; the tests of the hooks drive it too.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVEventsConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.utils.hashing import sha256
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

BLOCK = 16
"""Tokens in a block."""

TINY: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 8192,
    "sliding_window": 64, "query_pre_attn_scalar": 32, "torch_dtype": "float32",
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "hidden_activation": "gelu_pytorch_tanh", "bos_token_id": 0, "eos_token_id": 1,
    "pad_token_id": 0, "rope_local_base_freq": 1e4, "rope_theta": 1e6,
}  # fmt: skip
"""A model's configuration: six layers, four of them over a sliding window."""


def attention(
    layers: Sequence[str], block: int = BLOCK, window: int | None = None
) -> KVCacheGroupSpec:
    """A group of attention layers, full or over a sliding window."""
    shape: dict[str, Any] = {
        "block_size": block,
        "num_kv_heads": 2,
        "head_size": 32,
        "dtype": torch.float32,
    }
    if window is None:
        return KVCacheGroupSpec(list(layers), FullAttentionSpec(**shape))
    return KVCacheGroupSpec(list(layers), SlidingWindowSpec(sliding_window=window, **shape))


def gemma_like() -> list[KVCacheGroupSpec]:
    return [
        attention(["l2", "l5"]),
        attention(["l0", "l3"], window=48),
        attention(["l1", "l4"], window=48),
    ]


@dataclass
class Made:
    """A scheduler and what a test asks of it."""

    scheduler: Any
    published: list[Any]


def make_scheduler(
    folder: Path,
    groups: Sequence[KVCacheGroupSpec],
    *,
    blocks: int = 40,
    block: int = BLOCK,
    budget: int = 128,
    seqs: int = 8,
    length: int = 512,
    overlapped: bool = False,
    events: bool = False,
    mamba: str | None = None,
    transfer: Any = None,
    tensors: Sequence[Any] = (),
) -> Made:
    """The engine's scheduler over these cache groups; `overlapped`: steps are planned ahead."""
    config_file = folder / "config.json"
    if not config_file.exists():
        config_file.write_text(json.dumps(TINY))
    model = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=length
    )
    plan = SchedulerConfig(
        max_num_seqs=seqs, max_num_batched_tokens=budget, max_model_len=length,
        is_encoder_decoder=False, enable_chunked_prefill=True, async_scheduling=overlapped,
    )  # fmt: skip
    cache = CacheConfig(
        block_size=block,
        enable_prefix_caching=True,
        **({"mamba_cache_mode": mamba} if mamba else {}),
    )
    wire = KVEventsConfig(enable_kv_cache_events=True, publisher="null") if events else None
    config = VllmConfig(
        model_config=model, scheduler_config=plan, cache_config=cache,
        device_config=DeviceConfig("cpu"), kv_transfer_config=transfer, kv_events_config=wire,
    )  # fmt: skip
    # What the CPU platform and a model without recurrent layers change is put back.
    config.scheduler_config.async_scheduling = overlapped
    cache.block_size, cache.num_gpu_blocks = block, blocks
    if mamba:
        cache.mamba_cache_mode = mamba
    register_all_kvcache_specs(config)
    kv = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=list(tensors), kv_cache_groups=list(groups)
    )
    plan_block, hash_block = kv_cache_utils.resolve_kv_cache_block_sizes(kv, config)
    made = (AsyncScheduler if overlapped else Scheduler)(
        vllm_config=config, kv_cache_config=kv, block_size=plan_block, hash_block_size=hash_block,
        structured_output_manager=StructuredOutputManager(config), log_stats=True,
    )  # fmt: skip
    published: list[Any] = []
    made.kv_event_publisher.publish = published.append
    return Made(made, published)


def make_request(scheduler: Any, name: str, tokens: Sequence[int], output: int) -> Any:
    """A request with this prompt that ends after so many tokens."""
    if not hasattr(kv_cache_utils, "NONE_HASH"):
        kv_cache_utils.init_none_hash(sha256)
    params = SamplingParams(max_tokens=output, ignore_eos=True, detokenize=False)
    return Request(
        request_id=name, prompt_token_ids=list(tokens), sampling_params=params, pooling_params=None,
        block_hasher=kv_cache_utils.get_request_block_hasher(scheduler.hash_block_size, sha256),
    )  # fmt: skip


def worker_output(scheduler: Any, step: Any) -> Any:
    """One token for each request whose prompt is through, as a model runner would return."""
    names = list(step.num_scheduled_tokens)
    tokens: list[list[int]] = []
    for name in names:
        tokens.append([] if scheduler.requests[name].is_prefill_chunk else [7])
    return ModelRunnerOutput(
        req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)}, sampled_token_ids=tokens
    )


class Drive:
    """Steps of a scheduler, one at a time; with overlapped steps one is always in flight."""

    def __init__(self, scheduler: Any, depth: int = 1) -> None:
        self.scheduler = scheduler
        self.depth = depth
        self.flight: deque[tuple[Any, Any]] = deque()
        self.steps = 0

    @property
    def busy(self) -> bool:
        s = self.scheduler
        return bool(s.has_unfinished_requests() or s.has_finished_requests() or self.flight)

    def step(self) -> None:
        planned = self.scheduler.schedule()
        self.flight.append((planned, worker_output(self.scheduler, planned)))
        self.steps += 1
        keep = self.depth - 1 if planned.total_num_scheduled_tokens else 0
        while len(self.flight) > keep:
            self.scheduler.update_from_output(*self.flight.popleft())

    def drain(self, limit: int = 10_000) -> None:
        for _ in range(limit):
            if not self.busy:
                return
            self.step()
        raise AssertionError("the engine does not come to an end")
