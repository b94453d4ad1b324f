"""SGLang's own requests and batches on its cache, up to where a model would run."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import torch
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.mem_cache.base_prefix_cache import InitLoadBackParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from engines_sglang.sglang_cache import Engine

_MODEL = SimpleNamespace(
    is_encoder_decoder=False, is_multimodal=False, vocab_size=1 << 15,
    hf_text_config=SimpleNamespace(mamba_chunk_size=4),
)  # fmt: skip


def begin(engine: Engine, name: str, tokens: list[int], more: int = 0, *, wait: bool = True) -> Any:
    """Admit a request, then compute some tokens more, one by one."""
    req, batch = admit(engine, name, tokens, wait=wait)
    if more:
        req.output_ids.append(4999)
        checkpoint_kv_cache(req, engine.cache)
    for token in range(more):
        batch.prepare_for_decode()
        serve(engine, batch, wait=wait)
        req.output_ids.append(5000 + token)
    return req


def admit(engine: Engine, name: str, tokens: list[int], *, wait: bool = True) -> tuple[Any, Any]:
    """Plan a request and compute it: the request, and the batch that it is."""
    req, batch = plan(engine, name, tokens)
    serve(engine, batch, wait=wait)
    return req, batch


def plan(engine: Engine, name: str, tokens: list[int]) -> tuple[Any, Any]:
    """Look a request up, have what is on the host come back, lock what was found, and take slots
    for the rest, as its scheduler does: the request, and the batch that it is."""
    req = Req(name, "", array("q", tokens), SamplingParams(max_new_tokens=4))
    req.init_next_round_input(engine.cache)
    if req.needs_host_load_back():
        _load_back(engine, req)
    req.extend_end = len(req.full_untruncated_fill_ids)
    req.lock = engine.cache.lock(req.last_node)
    batch = ScheduleBatch(
        reqs=[req], req_to_token_pool=engine.cache.req_to_token_pool, model_config=_MODEL,
        token_to_kv_pool_allocator=engine.allocator, tree_cache=engine.cache, device="cpu",
        spec_algorithm=SpeculativeAlgorithm.NONE,
    )  # fmt: skip
    if engine.cache.cache_controller is not None:
        batch.hicache_consumer_index = engine.cache.ready_to_load_host_cache()
    batch.prepare_for_extend()
    return req, batch


class Worker:
    """Does of a model's work what the cache sees of it, once the loads are waited for."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        controller = engine.cache.cache_controller
        self.hicache_layer_transfer_counter = controller and controller.layer_done_counter
        self.waits = True

    def forward_batch_generation(self, batch: Any, **kwargs: Any) -> Any:
        if self.waits:
            TpModelWorker.set_hicache_consumer(self, batch.hicache_consumer_index)
        self.engine.compute(batch)
        return GenerationBatchResult()


def serve(engine: Engine, batch: Any, *, wait: bool = True) -> None:
    """Run a batch and read what it came to, by SGLang's scheduler but for its sockets and model."""
    worker = Worker(engine)
    worker.waits = wait
    scheduler = MagicMock(
        model_worker=worker, tree_cache=engine.cache, is_generation=True, enable_overlap=False,
        enable_pdmux=False, spec_algorithm=SpeculativeAlgorithm.NONE, forward_ct=0,
        processed_tokens_counter=0, scripted_scheduler_hook=None, forward_sleep_time=None,
        enable_unified_cache_external_linker=False,
    )  # fmt: skip
    scheduler.future_map.output_tokens_buf = torch.zeros(1 << 10, dtype=torch.int64)
    result = Scheduler.run_batch(scheduler, batch)
    Scheduler.process_batch_result(scheduler, batch, result)
    engine.processed(batch)


def _load_back(engine: Engine, req: Any) -> None:
    """As its `PrefillAdder` does it, once it has decided to admit the request."""
    promised = InitLoadBackParams(
        best_match_node=req.best_match_node, host_hit_length=req.host_hit_length, req=req
    )
    req.host_loaded_length, req.last_node = engine.cache.init_load_back(promised)
    req.prefix_len += req.host_loaded_length
    req.kv.cache_protected_len = req.prefix_len


def end(engine: Engine, req: Any) -> None:
    """The request is over, and the tree keeps what it can."""
    req.output_ids.append(7)
    req.finished_reason = FINISH_LENGTH(1)
    release_kv_cache(req, engine.cache, checkpoint=True)


def preempt(engine: Engine, req: Any) -> None:
    """The request makes room for others."""
    release_kv_cache(req, engine.cache, checkpoint=False)
