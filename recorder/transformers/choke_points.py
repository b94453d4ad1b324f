"""Every place of the engine that is hooked, what it is known by, and what is lost without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hkvtool.recorder.transformers import cache_hooks as cache
from hkvtool.recorder.transformers import offload_hooks as aside
from hkvtool.recorder.transformers import step_hooks as steps
from hkvtool.recorder.transformers.hooks import Hooks

_ROOT = "transformers.generation.continuous_batching"
_CACHE = f"{_ROOT}.cache:PagedAttentionCache"
_ALLOCATOR = f"{_ROOT}.cache_allocators.cache_allocator:CacheAllocator"
_FULL = f"{_ROOT}.cache_allocators.full_attention:FullAttentionCacheAllocator"
_LEDGER = f"{_ROOT}.cache_allocators.cache_allocator:BlockLedger"
_SCHEDULER = f"{_ROOT}.scheduler:Scheduler"
_BATCH = f"{_ROOT}.input_outputs:ContinuousBatchingIOs"
_PROCESSOR = f"{_ROOT}.continuous_api:ContinuousBatchProcessor"
_ASIDE = f"{_ROOT}.offloading_manager:OffloadingManager"

HOST, STEP, ALL = ("host",), ("step",), ("host", "step", "layout")


class ChokePoint(NamedTuple):
    """One function to wrap; `parameters` are those the hook relies on, `loses` is the evidence
    that goes with it."""

    name: str
    place: str
    function: str
    parameters: tuple[str, ...]
    make: Callable[[Hooks, Any], Callable[..., Any]]
    loses: tuple[str, ...]


POINTS = (
    ChokePoint("declare", _CACHE, "__init__", ("config",), cache.cache_made, ALL),
    ChokePoint("alloc", _FULL, "allocate_cache_to_request", ("request_id",), cache.allocate, HOST),
    ChokePoint("free", _ALLOCATOR, "free_blocks", ("request_id",), cache.free, HOST),
    ChokePoint("fork", _ALLOCATOR, "fork_blocks",
               ("source_request_id", "dest_request_id"), cache.fork, HOST),
    ChokePoint("match", _ALLOCATOR, "match_prefix_blocks", ("prompt_ids",), cache.match, HOST),
    ChokePoint("acquire", _ALLOCATOR, "acquire_prefix_blocks",
               ("request_id", "block_ids"), cache.acquire, HOST),
    ChokePoint("search", _CACHE, "search_prefix_match",
               ("request_id", "prompt_ids"), cache.search, HOST),
    ChokePoint("refuse", _CACHE, "can_store_request_tokens",
               ("state", "request_len", "dry_run"), cache.store_tokens, ()),
    ChokePoint("publish", _ALLOCATOR, "mark_complete_blocks",
               ("request_id",), cache.complete, HOST),
    ChokePoint("copy", _ALLOCATOR, "copy_blocks",
               ("source_block_ids", "dest_block_ids"), cache.copy, HOST),
    ChokePoint("evict", _LEDGER, "evict_cached_blocks", (), cache.evict, HOST),
    ChokePoint("reset", _LEDGER, "reset", (), cache.reset_ledger, HOST),
    ChokePoint("finish", _SCHEDULER, "finish_request", ("request_id",), steps.finish, HOST),
    ChokePoint("cancel", _SCHEDULER, "clear_cancelled_requests", (), steps.cancel, HOST),
    ChokePoint("dispatch", _BATCH, "prepare_batch_tensors",
               ("requests_in_batch",), steps.prepare, ("host", "step")),
    ChokePoint("retire", _PROCESSOR, "update_batch", (), steps.update, STEP),
    ChokePoint("offload", _ASIDE, "offload_requests", (), aside.offload, HOST),
    ChokePoint("tier", _ASIDE, "__init__", ("cache",), aside.manager_made, ()),
    ChokePoint("store", _ASIDE, "_offload_to_cpu",
               ("victims", "victim_block_tables"), aside.to_host, HOST),
    ChokePoint("load", _ASIDE, "restore_scheduled_requests",
               ("requests_in_batch",), aside.restore, HOST),
    ChokePoint("drop", _ASIDE, "free_request_cpu_cache", ("state",), aside.drop, HOST),
)  # fmt: skip
