"""Every place of the engine that is hooked, what it is known by, and what is lost without it."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.sglang import cache_hooks as cache
from hkvtool.recorder.sglang import host_hooks as host
from hkvtool.recorder.sglang import rows
from hkvtool.recorder.sglang import slot_hooks as slots
from hkvtool.recorder.sglang import state_hooks as states
from hkvtool.recorder.sglang import step_hooks as steps
from hkvtool.recorder.sglang.storage_hooks import STORAGE_POINTS

_ROOT = "sglang.srt.mem_cache"
_CACHE = f"{_ROOT}.unified_radix_cache:UnifiedRadixCache"
_PAGES = f"{_ROOT}.allocator.paged:PagedTokenToKVPoolAllocator"
_SLOTS = f"{_ROOT}.allocator.token:TokenToKVPoolAllocator"
_HOST = f"{_ROOT}.pool_host.base:HostKVCache"
_COPIES = f"{_ROOT}.hybrid_cache.hybrid_cache_controller:HybridCacheController"
_LAYERS = "sglang.srt.managers.cache_controller:LayerDoneCounter"
_STATES = f"{_ROOT}.allocator.mamba:MambaSlotAllocator"
_ROWS = f"{_ROOT}.memory_pool:ReqToTokenPool"
_REQUESTS = f"{_ROOT}.memory_pool:HybridReqToTokenPool"
_RECURRENT = f"{_ROOT}.unified_cache.components.mamba:MambaComponent"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"

_SCHEDULER = "sglang.srt.managers.scheduler:Scheduler"

HOST = ("host",)
STEP = ("step",)


def no_more(hooks: Attachment, *args: Any, **kwargs: Any) -> None:
    """There is nothing to tell behind it."""


POINTS = (
    ChokePoint("declare", _CACHE, "__init__", ("params",), cache.to_make, cache.made, HOST),
    ChokePoint("lookup", _CACHE, "match_prefix", ("params",),
               cache.to_match, cache.matched, HOST),
    ChokePoint("insert", _CACHE, "insert", ("params",), nothing, cache.inserted, HOST),
    ChokePoint("alloc", _PAGES, "alloc", ("need_size",), nothing, slots.allocated, HOST),
    ChokePoint("extend", _PAGES, "alloc_extend", ("extend_num_tokens",),
               nothing, slots.allocated, HOST),
    ChokePoint("decode", _PAGES, "alloc_decode", ("seq_lens",), nothing, slots.allocated, HOST),
    ChokePoint("release", _PAGES, "_release_page_ids", ("page_ids",),
               nothing, slots.released, HOST),
    ChokePoint("clear", _PAGES, "clear", (), nothing, slots.cleared, HOST),
    ChokePoint("slot alloc", _SLOTS, "alloc", ("need_size",), nothing, slots.allocated, HOST),
    ChokePoint("slot free", _SLOTS, "free", ("free_index",), slots.to_free, slots.freed, HOST),
    ChokePoint("slot clear", _SLOTS, "clear", (), nothing, slots.cleared, HOST),
    ChokePoint("row owner", _ROWS, "alloc", ("reqs",), rows.to_bind, rows.bound, HOST),
    ChokePoint("row alloc", _ROWS, "alloc_rows", ("need_size",), nothing, rows.taken, HOST),
    ChokePoint("row free", _ROWS, "free_rows", ("indices",), nothing, rows.freed, HOST),
    ChokePoint("row clear", _ROWS, "clear", (), nothing, slots.cleared, HOST),
    ChokePoint("row empty", f"{_ROOT}.deepseek_v4_memory_pool:DeepSeekV4TokenToKVPool",
               "clear_request_scoped_state", ("req_pool_idx",), nothing, rows.emptied, HOST),
    ChokePoint("state alloc", _STATES, "alloc", ("need_size",), nothing, states.allocated, HOST),
    ChokePoint("state free", _STATES, "free", ("free_index",), nothing, states.freed, HOST),
    ChokePoint("state clear", _STATES, "clear", (), nothing, slots.cleared, HOST),
    ChokePoint("state owner", _REQUESTS, "alloc", ("reqs",), states.to_admit, states.taken, HOST),
    ChokePoint("snapshot slot", _REQUESTS, "set_mamba_ping_pong_slot", ("req", "idx", "value"),
               states.to_follow, no_more, HOST),
    ChokePoint("snapshot", _RECURRENT, "prepare_for_caching_req", ("req",),
               states.to_snapshot, states.taken, HOST),
    ChokePoint("state back", _RECURRENT, "_alloc_request_state_slot", ("req",),
               states.to_bring, states.taken, HOST),
    ChokePoint("state copy", f"{_ROOT}.memory_pool:MambaPool", "copy_from",
               ("src_indices", "dst_indices"), states.to_copy, no_more, STEP),
    ChokePoint("mix", _BATCH, "mix_with_running", ("running_batch",),
               states.to_mix, no_more, STEP),
    ChokePoint("host tier", _CACHE, "init_hicache", ("params",), nothing, host.made, HOST),
    ChokePoint("host alloc", _HOST, "alloc", ("need_size",), nothing, host.host_allocated, HOST),
    ChokePoint("host free", _HOST, "free", ("indices",), nothing, host.host_freed, HOST),
    ChokePoint("host clear", _HOST, "clear", (), nothing, host.host_cleared, HOST),
    ChokePoint("write", _COPIES, "write", ("device_indices", "extra_pools"),
               nothing, host.written, HOST),
    ChokePoint("store", _COPIES, "start_writing", (), host.to_store, no_more, HOST),
    ChokePoint("store end", _CACHE, "_finish_write_through_ack", ("ack_id",),
               host.to_acknowledge, no_more, HOST),
    ChokePoint("load", _COPIES, "start_loading", (), host.to_load, host.load_begun, HOST),
    ChokePoint("load waited", _LAYERS, "set_consumer", ("index",), nothing, host.consumed, HOST),
    ChokePoint("end", _CACHE, "on_release", ("req",), nothing, cache.ended, ()),
    ChokePoint("resume", _BATCH, "prepare_for_extend", (), steps.to_go_on, steps.went_on, STEP),
    ChokePoint("next token", _BATCH, "prepare_for_decode", (),
               steps.to_decode, steps.decoded, STEP),
    ChokePoint("checkpoint", _CACHE, "checkpoint_into_tree", ("req",),
               nothing, steps.checked_in, STEP),
    ChokePoint("run", _SCHEDULER, "run_batch", ("batch",), steps.to_run, steps.ran, STEP),
    ChokePoint("retire", _SCHEDULER, "process_batch_result", ("batch", "result"),
               steps.to_process, no_more, STEP),
    ChokePoint("refuse", "sglang.srt.managers.schedule_policy:PrefillAdder", "add_one_req",
               ("req",), nothing, steps.refused, ()),
    *STORAGE_POINTS,
)  # fmt: skip
