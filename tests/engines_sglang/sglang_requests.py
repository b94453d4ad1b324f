"""SGLang's own requests and batches on its cache, up to where a model would run."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch
from sglang.srt.mem_cache.common import release_kv_cache
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from engines_sglang.sglang_cache import Engine

_MODEL = SimpleNamespace(is_encoder_decoder=False, is_multimodal=False, vocab_size=1 << 15)


def begin(engine: Engine, name: str, tokens: list[int], more: int = 0) -> Any:
    """Look a request up, lock what was found, and take slots for the rest, as its scheduler
    does; then for some tokens more, one by one."""
    req = Req(name, "", array("q", tokens), SamplingParams(max_new_tokens=4))
    req.init_next_round_input(engine.cache)
    req.extend_end = len(req.full_untruncated_fill_ids)
    req.lock = engine.cache.lock(req.last_node)
    batch = ScheduleBatch(
        reqs=[req], req_to_token_pool=engine.cache.req_to_token_pool, model_config=_MODEL,
        token_to_kv_pool_allocator=engine.allocator, tree_cache=engine.cache, device="cpu",
        spec_algorithm=SpeculativeAlgorithm.NONE,
    )  # fmt: skip
    batch.prepare_for_extend()
    for token in range(more):
        req.output_ids.append(5000 + token)
        batch.prepare_for_decode()
    return req


def end(engine: Engine, req: Any) -> None:
    """The request is over, and the tree keeps what it can."""
    req.output_ids.append(7)
    req.finished_reason = FINISH_LENGTH(1)
    release_kv_cache(req, engine.cache, checkpoint=True)
