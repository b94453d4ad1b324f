"""Hooks on HiCache's storage: what its threads write and read, and what the tree makes of it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hkvtool.recorder.attachment import Attachment
from hkvtool.recorder.choke_point import ChokePoint, nothing
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.host_tier import HostPool, HostTier
from hkvtool.recorder.sglang.storage_reads import Reads, namespace
from hkvtool.recorder.sglang.storage_tier import Part
from hkvtool.recorder.sglang.storage_writes import Writes

_CACHE = "sglang.srt.mem_cache.unified_radix_cache:UnifiedRadixCache"
_COPIES = "sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller:HybridCacheController"
_FILES = "sglang.srt.mem_cache.hicache_storage:HiCacheFile"
_EVICTOR = "sglang.srt.mem_cache.storage.file.lru_file_evictor:LRUFileEvictor"

_HOST = ("host",)


def _no_more(hooks: Attachment, *args: Any, **kwargs: Any) -> None:
    """There is nothing to tell behind it."""


def _writes(hooks: Hooks, owner: Any) -> Writes | None:
    tier = hooks.tier(owner)
    return None if tier is None else tier.writes


def _reads(hooks: Hooks, owner: Any) -> Reads | None:
    tier = hooks.tier(owner)
    return None if tier is None else tier.reads


def attached(hooks: Hooks, seen: None, result: Any, controller: Any, *a: Any, **kw: Any) -> None:
    """A storage was put below the host's memory."""
    tier = hooks.tier(controller)
    if tier is not None:
        tier.put_below()


def detached(hooks: Hooks, seen: None, result: Any, controller: Any, *a: Any, **kw: Any) -> None:
    """It was taken away."""
    tier = hooks.tier(controller)
    if tier is not None:
        tier.take_away()


# --- written -------------------------------------------------------------------------------


def to_back_up(hooks: Hooks, cache: Any, node_id: int, *args: Any, **kw: Any) -> None:
    """A node is to be written to the storage."""
    state, writes = hooks.cache(cache), _writes(hooks, cache.cache_controller)
    if state is not None and writes is not None:
        writes.space = namespace(state, *cache.tree_core.prefetch_anchor_info(node_id))


def to_hand_over(
    hooks: Hooks, controller: Any, host_indices: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """It goes into the queue."""
    writes = _writes(hooks, controller)
    if writes is not None:
        writes.hand_over(host_indices)


def to_write(hooks: Hooks, controller: Any, operation: Any, **kw: Any) -> Any:
    """The thread begins with it."""
    writes = _writes(hooks, controller)
    return None if writes is None else (writes, *writes.begin(operation))


def written(
    hooks: Hooks, seen: Any, result: None, controller: Any, operation: Any, **kw: Any
) -> None:  # fmt: skip
    """The thread is done with it."""
    if seen is not None and _writes(hooks, controller) is seen[0]:
        writes, parts, spaces = seen
        writes.end(operation, parts, spaces)


def landed(
    hooks: Hooks, seen: None, result: None, evictor: Any, suffixed_key: str, **kw: Any
) -> None:  # fmt: skip
    """A file is there, whole."""
    writes = _writes(hooks, evictor)
    if writes is not None:
        writes.landed.add(suffixed_key)


def to_delete(hooks: Hooks, evictor: Any, *args: Any, **kw: Any) -> str | None:
    """The file that makes room, if any does."""
    return next(iter(evictor._lru), None)


def deleted(
    hooks: Hooks, oldest: str | None, result: Any, evictor: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """It is gone."""
    writes = _writes(hooks, evictor)
    if writes is not None and oldest is not None and result[0] == "evicted":
        writes.landed.discard(oldest)
        writes.storage.deleted(oldest, writes.storage.writer, "evict")


def cleared(hooks: Hooks, seen: None, result: Any, backend: Any, *args: Any, **kw: Any) -> None:
    """All files are gone."""
    writes = _writes(hooks, backend)
    if writes is not None and result:
        writes.storage.clear()


# --- read ----------------------------------------------------------------------------------


def to_ask(
    hooks: Hooks, cache: Any, request: Any, last_host_node_id: int, new_input_tokens: Any,
    last_hash: Any = None, prefix_keys: Any = None, matched_prefix_tokens: Any = None,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """The storage is to be asked for what comes behind these tokens."""
    reads = _reads(hooks, cache.cache_controller)
    if reads is not None:
        reads.prefixes[request] = matched_prefix_tokens


def asked(
    hooks: Hooks, seen: None, result: Any, cache: Any, request: Any, *a: Any, **kw: Any
) -> None:
    """It is, or was not for some reason."""
    reads = _reads(hooks, cache.cache_controller)
    if reads is not None and request not in cache.ongoing_prefetch:
        reads.prefixes.pop(request, None)


def found(
    hooks: Hooks, seen: None, result: Any, controller: Any, operation: Any, **kw: Any
) -> None:  # fmt: skip
    """The thread that asks has its answer."""
    reads = _reads(hooks, controller)
    if reads is not None:
        reads.found(operation)


def room_made(
    hooks: Hooks, seen: None, made: bool, cache: Any, info: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """There are pages of the host for all that is to be read."""
    reads = _reads(hooks, cache.cache_controller)
    if reads is not None and made:
        reads.hand_over(info.operation)


def to_read(hooks: Hooks, controller: Any, operation: Any, **kw: Any) -> None:
    """The thread that reads begins with a request."""
    reads = _reads(hooks, controller)
    if reads is not None:
        reads.begin(operation)


def read(
    hooks: Hooks, seen: None, result: Any, controller: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """It is done with it."""
    reads = _reads(hooks, controller)
    if reads is not None:
        reads.end()


def to_read_batch(
    hooks: Hooks, controller: Any, operation: Any, batch_hashes: Any, batch_host_indices: Any,
    *args: Any, **kw: Any,
) -> list[Part]:  # fmt: skip
    """It begins with some pages."""
    reads = _reads(hooks, controller)
    if reads is None:
        return []
    return reads.begin_pages(batch_host_indices, batch_hashes)


def batch_read(
    hooks: Hooks, parts: list[Part], hits: int, controller: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """So many of them have come."""
    reads = _reads(hooks, controller)
    if reads is not None and parts:
        reads.end_pages(parts, [hits] * len(parts))


def to_read_others(hooks: Hooks, backend: Any, transfers: Any, *args: Any, **kw: Any) -> Any:
    """It begins with pages of other pools."""
    reads = _reads(hooks, backend)
    return None if reads is None else reads.begin_other(transfers)


def others_read(
    hooks: Hooks, parts: list[Part] | None, result: Any, backend: Any, *args: Any, **kw: Any
) -> None:  # fmt: skip
    """These of them have come."""
    reads = _reads(hooks, backend)
    if reads is not None and parts:
        hits = {str(getattr(name, "value", name)): ok for name, ok in result.items()}
        reads.end_pages(parts, [_leading(hits.get(p.pool.engine, ())) for p in parts])


def _leading(good: Any) -> int:
    """How many come before the first that did not."""
    return next((i for i, one in enumerate(good) if not one), len(good))


# --- the scheduler -------------------------------------------------------------------------


def to_hear(
    hooks: Hooks, cache: Any, n_storage_hit: int | None, n_ack_prefetch: int | None,
    n_backup: int | None, *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """The scheduler is about to read so much of what the threads have put into its queues."""
    controller = cache.cache_controller
    reads, writes = _reads(hooks, controller), _writes(hooks, controller)
    if reads is None or writes is None:
        return
    for operation in islice(list(controller.prefetch_hit_queue.queue), n_storage_hit):
        tokens = int(operation.storage_hit_count)
        if tokens:
            reads.storage.hits[operation.request_id] = int(operation.storage_start) + tokens
    for message in islice(list(controller.ack_prefetch_queue.queue), n_ack_prefetch):
        reads.heard(message)
    for job in islice(list(controller.ack_backup_queue.queue), n_backup):
        writes.heard(job)


def to_graft(hooks: Hooks, cache: Any, operation: Any, *args: Any, **kw: Any) -> None:
    """What was read is to become part of the tree."""
    reads = _reads(hooks, cache.cache_controller)
    if reads is not None:
        reads.result = operation


def grafted(
    hooks: Hooks, witness: Any, core: Any, result: Any, node_id: int, key: Any, host_value: Any,
    hash_value: Any,
) -> None:  # fmt: skip
    """The tree has pages of the host that came from the storage, behind those it had already."""
    tier = _tier_of(hooks, witness)
    if tier is None or tier.reads is None or result.host_insert_dropped:
        return
    pool = tier.pools["kv"]
    first = int(result.prefix_len) // pool.page
    pages = pool.pages(host_value)
    tier.reads.adopt(pool, pages[first:], list(range(first, len(pages))))


def committed(
    hooks: Hooks, witness: Any, core: Any, result: None, node_id: int, phase: Any,
    comp_xfers: Any, *, cache_actions: Any, insert_result: Any = None, **kw: Any,
) -> None:  # fmt: skip
    """The same of other pools: those pages that the engine does not give back at once."""
    tier = _tier_of(hooks, witness)
    if tier is None or tier.reads is None or phase.name != "PREFETCH" or insert_result is None:
        return
    for transfers in comp_xfers.values():
        for one in transfers:
            pool = tier.pools.get(str(getattr(one.name, "value", one.name)))
            if pool is None or one.indices_from_pool is not None or one.host_indices is None:
                continue
            pages, gone = pool.pages(one.host_indices), _given_back(pool, cache_actions)
            first = int(insert_result.total_len) // pool.page - len(pages)
            kept = [i for i, page in enumerate(pages) if page not in gone]
            tier.reads.adopt(pool, [pages[i] for i in kept], [first + i for i in kept])


def _given_back(pool: HostPool, actions: Any) -> set[int]:
    """Pages of the host that are free as soon as the engine does what it has decided."""
    kind = pool.cache.components[pool.kind]
    return {
        page
        for action in actions
        if getattr(action, "component_type", None) == kind
        for slots in getattr(action, "host_indices", ())
        for page in pool.pages(slots)
    }


def _tier_of(hooks: Hooks, witness: Any) -> HostTier | None:
    state = hooks.by_core(witness)
    return None if state is None else state.tier


STORAGE_POINTS = (
    ChokePoint("storage", _COPIES, "attach_storage_backend", ("storage_backend",),
               nothing, attached, _HOST),
    ChokePoint("storage gone", _COPIES, "detach_storage_backend", (), nothing, detached, _HOST),
    ChokePoint("backup", _CACHE, "write_backup_storage", ("node_id",),
               to_back_up, _no_more, _HOST),
    ChokePoint("backup handed over", _COPIES, "write_storage", ("host_indices",),
               to_hand_over, _no_more, _HOST),
    ChokePoint("file write", _COPIES, "_page_backup_or_log", ("operation",),
               to_write, written, _HOST),
    ChokePoint("file written", _EVICTOR, "commit", ("suffixed_key",), nothing, landed, _HOST),
    ChokePoint("file deleted", _EVICTOR, "_evict_one_lru_locked", (), to_delete, deleted, _HOST),
    ChokePoint("files cleared", _FILES, "clear", (), nothing, cleared, _HOST),
    ChokePoint("prefetch", _CACHE, "prefetch_from_storage", ("request", "matched_prefix_tokens"),
               to_ask, asked, _HOST),
    ChokePoint("prefetch answered", _COPIES, "_storage_hit_query", ("operation",),
               nothing, found, _HOST),
    ChokePoint("prefetch handed over", _CACHE, "_alloc_prefetch_aux_staging", ("info",),
               nothing, room_made, _HOST),
    ChokePoint("file reads", _COPIES, "_page_transfer", ("operation",), to_read, read, _HOST),
    ChokePoint("file read", _COPIES, "_page_transfer_kv_batch",
               ("operation", "batch_hashes", "batch_host_indices"),
               to_read_batch, batch_read, _HOST),
    ChokePoint("file read of a window", _FILES, "batch_get_v2", ("transfers",),
               to_read_others, others_read, _HOST),
    ChokePoint("storage heard", _CACHE, "_drain_storage_control_queues_impl",
               ("n_storage_hit", "n_ack_prefetch", "n_backup"), to_hear, _no_more, _HOST),
    ChokePoint("prefetch over", _CACHE, "_handle_prefetch_result", ("operation",),
               to_graft, _no_more, _HOST),
)  # fmt: skip
"""The functions that are wrapped for it."""
