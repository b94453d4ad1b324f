"""The scheduler and cache manager of whichever vllm release is on the path, without a model.

Only what differs between releases is asked for by signature; everything that is decided is
decided by the release's own code.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import (
    CacheConfig,
    DeviceConfig,
    KVTransferConfig,
    ModelConfig,
    SchedulerConfig,
    VllmConfig,
)
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface as specs
from vllm.v1.core import kv_cache_utils, single_type_kv_cache_manager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 8192,
    "torch_dtype": "float32",
}  # fmt: skip
STAND_IN = "Remote"
"""The connector of this folder; any other is the release's own."""
Sink = Callable[[Mapping[str, Any]], Any]


def full(block: int, layer: str = "full") -> Any:
    """A cache group of full attention."""
    spec = specs.FullAttentionSpec(
        block_size=block, num_kv_heads=2, head_size=32, dtype=torch.float32
    )
    return specs.KVCacheGroupSpec([layer], spec)


def sliding(block: int, window: int, layer: str = "sliding") -> Any:
    """A cache group of attention over a sliding window."""
    spec = specs.SlidingWindowSpec(
        block_size=block, num_kv_heads=2, head_size=32, dtype=torch.float32, sliding_window=window
    )
    return specs.KVCacheGroupSpec([layer], spec)


def recurrent(block: int, layer: str = "recurrent") -> Any:
    """A cache group of linear attention whose state is kept at block ends."""
    spec = specs.MambaSpec(
        block_size=block, shapes=((3, 64), (2, 16, 16)), dtypes=(torch.float32,) * 2,
        mamba_cache_mode="align",
    )  # fmt: skip
    return specs.KVCacheGroupSpec([layer], spec)


@dataclasses.dataclass
class Plan:
    """What a bug needs of the engine."""

    groups: Sequence[Any]
    blocks: int
    block: int = 16
    budget: int = 256
    seqs: int = 8
    length: int = 4096
    overlapped: bool = False
    """A step is planned while the last one is in flight."""
    connector: str = ""
    connector_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scheduling: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further keys of the scheduler's config."""
    cache: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Further keys of the cache's config."""
    drafts: int = 0
    """Tokens that are speculated in each step."""


class Engine:
    """The scheduler of a release, and the steps that a worker would do for it."""

    def __init__(self, plan: Plan, sink: Sink, folder: Path) -> None:
        self.plan = plan
        self.sink = sink
        self.scheduler = _scheduler(plan, folder)
        if plan.drafts:
            # As a drafter's config would have it; the drafter itself is a model.
            self.scheduler.num_spec_tokens = self.scheduler.num_lookahead_tokens = plan.drafts
        self.connector = getattr(self.scheduler, "connector", None)
        self.flight: deque[tuple[Any, Any]] = deque()

    def request(self, name: str, tokens: Sequence[int], output: int = 4, **more: Any) -> Any:
        """A request joins the queue."""
        if not hasattr(kv_cache_utils, "NONE_HASH"):
            kv_cache_utils.init_none_hash(sha256)
        known = inspect.signature(kv_cache_utils.get_request_block_hasher).parameters
        unit = getattr(self.scheduler, "hash_block_size", None) or self.plan.block
        size = unit if "hash_block_size" in known else self.plan.block
        params = SamplingParams(max_tokens=output, ignore_eos=True, detokenize=False)
        made = _call(
            Request, request_id=name, prompt_token_ids=list(tokens), sampling_params=params,
            pooling_params=None, eos_token_id=None,
            block_hasher=kv_cache_utils.get_request_block_hasher(size, sha256), **more,
        )  # fmt: skip
        self.scheduler.add_request(made)
        return made

    def abort(self, name: str) -> None:
        """The client of a request is gone."""
        self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    def plan_step(self) -> Any:
        """One step is planned; what its worker writes and reads follows from what it is told."""
        step = self.scheduler.schedule()
        tokens = [self._sampled(name) for name in step.num_scheduled_tokens]
        self.flight.append((step, tokens))
        return step

    def end_step(
        self, *, received: Sequence[str] = (), sent: Sequence[str] = (), worker_meta: Any = None
    ) -> None:
        """The oldest step in flight is over; transfers may have ended meanwhile."""
        step, tokens = self.flight.popleft()
        names = list(step.num_scheduled_tokens)
        transfers = None
        if self.connector is not None:
            transfers = _call(
                KVConnectorOutput, finished_sending=set(sent) or None,
                finished_recving=set(received) or None, kv_connector_worker_meta=worker_meta,
            )  # fmt: skip
            told = getattr(self.connector, "transferred", None)
            if told is not None:
                told(transfers)
        out = _call(
            ModelRunnerOutput, req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)},
            sampled_token_ids=tokens, logprobs=None, prompt_logprobs_dict={}, pooler_output=None,
            kv_connector_output=transfers,
        )  # fmt: skip
        self.scheduler.update_from_output(step, out)

    def step(self, **ended: Any) -> Any:
        """One step from beginning to end."""
        step = self.plan_step()
        self.end_step(**ended)
        return step

    def run(self, limit: int = 200) -> bool:
        """Steps until nothing is left to do; False when that does not come."""
        for _ in range(limit):
            s = self.scheduler
            if not (s.has_unfinished_requests() or s.has_finished_requests() or self.flight):
                return True
            self.step()
        return False

    def _sampled(self, name: str) -> list[int]:
        request = self.scheduler.requests[name]
        known = request.num_computed_tokens - getattr(request, "num_output_placeholders", 0)
        if self.plan.overlapped:
            known = request.num_computed_tokens
        return [] if known < request.num_prompt_tokens else [7]


def _call(made: Any, **given: Any) -> Any:
    """Call with those of the arguments that this release knows."""
    known = inspect.signature(made).parameters
    return made(**{key: value for key, value in given.items() if key in known})


def _tensor(plan: Plan, group: Any) -> Any:
    """Where the bytes of a group lie, which an offloading connector sizes its own pool by."""
    page = group.kv_cache_spec.page_size_bytes
    return _call(
        specs.KVCacheTensor, size=page * plan.blocks, shared_by=group.layer_names,
        layers=group.layer_names, layer_stride=page * plan.blocks, block_stride=page,
    )  # fmt: skip


def _scheduler(plan: Plan, folder: Path) -> Any:
    (folder / "config.json").write_text(json.dumps(MODEL))
    model = ModelConfig(
        model=str(folder), skip_tokenizer_init=True, dtype="float32", seed=0,
        max_model_len=plan.length,
    )  # fmt: skip
    scheduling = SchedulerConfig(
        max_num_seqs=plan.seqs, max_num_batched_tokens=plan.budget, max_model_len=plan.length,
        is_encoder_decoder=False, enable_chunked_prefill=True, async_scheduling=plan.overlapped,
        **{k: v for k, v in plan.scheduling.items() if k in SchedulerConfig.__dataclass_fields__},
    )  # fmt: skip
    cache = CacheConfig(
        block_size=plan.block, enable_prefix_caching=True,
        **{k: v for k, v in plan.cache.items() if k in CacheConfig.__dataclass_fields__},
    )  # fmt: skip
    transfer = None
    if plan.connector:
        mine = f"{__package__}.connector" if plan.connector == STAND_IN else None
        transfer = KVTransferConfig(
            kv_connector=plan.connector, kv_role="kv_both", kv_connector_module_path=mine,
            kv_connector_extra_config=dict(plan.connector_config),
        )  # fmt: skip
    config = VllmConfig(
        model_config=model, scheduler_config=scheduling, cache_config=cache,
        device_config=DeviceConfig("cpu"), kv_transfer_config=transfer,
    )  # fmt: skip
    # What the CPU platform and a model without recurrent layers change is put back.
    config.scheduler_config.async_scheduling = plan.overlapped
    cache.block_size, cache.num_gpu_blocks = plan.block, plan.blocks
    if any(isinstance(g.kv_cache_spec, specs.MambaSpec) for g in plan.groups):
        cache.mamba_cache_mode = "align"
    register = getattr(single_type_kv_cache_manager, "register_all_kvcache_specs", None)
    if register is not None:
        register(config)
    kv = specs.KVCacheConfig(
        num_blocks=plan.blocks, kv_cache_tensors=[_tensor(plan, g) for g in plan.groups],
        kv_cache_groups=list(plan.groups),
    )  # fmt: skip
    sizes: dict[str, Any] = {"block_size": plan.block}
    resolve = getattr(kv_cache_utils, "resolve_kv_cache_block_sizes", None)
    if resolve is not None:
        sizes["block_size"], sizes["hash_block_size"] = resolve(kv, config)
    made = AsyncScheduler if plan.overlapped else Scheduler
    return _call(
        made, vllm_config=config, kv_cache_config=kv, log_stats=True,
        structured_output_manager=StructuredOutputManager(config), **sizes,
    )  # fmt: skip
