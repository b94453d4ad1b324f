"""Every place of the engine that is hooked, what it is known by, and what is lost without it."""

from __future__ import annotations

from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.sglang import cache_hooks as cache
from hkvtool.recorder.sglang import slot_hooks as slots

_ROOT = "sglang.srt.mem_cache"
_CACHE = f"{_ROOT}.unified_radix_cache:UnifiedRadixCache"
_PAGES = f"{_ROOT}.allocator.paged:PagedTokenToKVPoolAllocator"
_SLOTS = f"{_ROOT}.allocator.token:TokenToKVPoolAllocator"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"

HOST = ("host",)

POINTS = (
    ChokePoint("declare", _CACHE, "__init__", ("params",), cache.to_make, cache.made, HOST),
    ChokePoint("lookup", _CACHE, "match_prefix", ("params",), nothing, cache.matched, HOST),
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
    ChokePoint("end", _CACHE, "on_release", ("req",), nothing, cache.ended, ()),
    ChokePoint("resume", _BATCH, "prepare_for_extend", (), cache.to_go_on, cache.went_on, ()),
    ChokePoint("next token", _BATCH, "prepare_for_decode", (), cache.to_decode, cache.decoded, ()),
)  # fmt: skip
