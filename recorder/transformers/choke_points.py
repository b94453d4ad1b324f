"""Every place of the engine that is hooked, what it is known by, and what is lost without it."""

from __future__ import annotations

from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.transformers import cache_hooks as cache
from hkvtool.recorder.transformers import offload_hooks as aside
from hkvtool.recorder.transformers import step_hooks as steps

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


_none = nothing
_table = ("request_id",)

POINTS = (
    ChokePoint("declare", _CACHE, "__init__", ("config",), _none, cache.cache_made, ALL),
    ChokePoint("alloc", _FULL, "allocate_cache_to_request", _table,
               cache.table_length, cache.allocated, HOST),
    ChokePoint("free", _ALLOCATOR, "free_blocks", _table, cache.to_free, cache.freed, HOST),
    ChokePoint("fork", _ALLOCATOR, "fork_blocks", ("source_request_id", "dest_request_id"),
               _none, cache.forked, HOST),
    ChokePoint("match", _ALLOCATOR, "match_prefix_blocks", ("prompt_ids",),
               _none, cache.matched, HOST),
    ChokePoint("acquire", _ALLOCATOR, "acquire_prefix_blocks", ("request_id", "block_ids"),
               cache.table_length, cache.acquired, HOST),
    ChokePoint("search", _CACHE, "search_prefix_match", ("request_id", "prompt_ids"),
               cache.to_search, cache.searched, HOST),
    ChokePoint("refuse", _CACHE, "can_store_request_tokens", ("state", "request_len", "dry_run"),
               _none, cache.asked_for_room, ()),
    ChokePoint("publish", _ALLOCATOR, "mark_complete_blocks", _table,
               cache.to_complete, cache.completed, HOST),
    ChokePoint("copy", _ALLOCATOR, "copy_blocks", ("source_block_ids", "dest_block_ids"),
               _none, cache.copied, HOST),
    ChokePoint("evict", _LEDGER, "evict_cached_blocks", (), _none, cache.evicted, HOST),
    ChokePoint("reset", _LEDGER, "reset", (), _none, cache.ledger_reset, HOST),
    ChokePoint("finish", _SCHEDULER, "finish_request", _table,
               steps.to_finish, steps.finished, HOST),
    ChokePoint("cancel", _SCHEDULER, "clear_cancelled_requests", (), _none, steps.cancelled, HOST),
    ChokePoint("dispatch", _BATCH, "prepare_batch_tensors", ("requests_in_batch",),
               steps.to_prepare, steps.prepared, ("host", "step")),
    ChokePoint("retire", _PROCESSOR, "update_batch", (), steps.to_update, _none, STEP),
    ChokePoint("offload", _ASIDE, "offload_requests", (), aside.to_offload, aside.offloaded, HOST),
    ChokePoint("tier", _ASIDE, "__init__", ("cache",), _none, aside.manager_made, HOST),
    ChokePoint("store", _ASIDE, "_offload_to_cpu", ("victims", "victim_block_tables"),
               _none, aside.stored, HOST),
    ChokePoint("load", _ASIDE, "restore_scheduled_requests", ("requests_in_batch",),
               aside.to_restore, aside.restored, HOST),
    ChokePoint("drop", _ASIDE, "free_request_cpu_cache", ("state",),
               aside.to_drop, aside.dropped, HOST),
)  # fmt: skip
