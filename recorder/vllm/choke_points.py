"""Every place of the engine that is hooked, what it is known by, and what is lost without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hkvtool.recorder.vllm import fingerprints
from hkvtool.recorder.vllm import load_hooks as loads
from hkvtool.recorder.vllm import manager_hooks as manager
from hkvtool.recorder.vllm import pool_hooks as pool
from hkvtool.recorder.vllm import scheduler_hooks as scheduler
from hkvtool.recorder.vllm import transfer_hooks as transfers
from hkvtool.recorder.vllm import wire_hooks as wire
from hkvtool.recorder.vllm import worker_hooks as worker
from hkvtool.recorder.vllm.hooks import Hooks

_POOL = "vllm.v1.core.block_pool:BlockPool"
_QUEUE = "vllm.v1.core.kv_cache_utils:FreeKVCacheBlockQueue"
_MANAGER = "vllm.v1.core.kv_cache_manager:KVCacheManager"
_GROUPS = "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator"
_SINGLE = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"
_SCHEDULER = "vllm.v1.core.sched.scheduler:Scheduler"
_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_RUNNER2 = "vllm.v1.worker.gpu.model_runner:GPUModelRunner"
_RUNNER2_TRANSFERS = "vllm.v1.worker.gpu.kv_connector:KVConnector"
_CORE = "vllm.v1.engine.core:EngineCore"
_WORKER = "vllm.v1.worker.worker_base:WorkerBase"
_OFFLOAD = "vllm.distributed.kv_transfer.kv_connector.v1.offloading"
_OFFLOAD_WORKER = f"{_OFFLOAD}.worker:OffloadingConnectorWorker"
_OFFLOAD_SCHEDULER = f"{_OFFLOAD}.scheduler:OffloadingConnectorScheduler"
_EXECUTOR = "vllm.v1.executor.abstract:Executor"
_REQUEST = "vllm.v1.request:Request"

HOST, STEP = ("host",), ("step",)
ALL = ("host", "step")
NOTHING: tuple[str, ...] = ()


class ChokePoint(NamedTuple):
    """One function to wrap.

    `parameters` are those the hook relies on; `loses` is the evidence without it. A place that
    came with a later release, or does another's work in an earlier one, loses nothing.
    """

    name: str
    place: str
    function: str
    parameters: tuple[str, ...]
    make: Callable[[Hooks, Any], Callable[..., Any]]
    loses: tuple[str, ...]
    instead_of: str = ""
    """A choke point that this one stands in for where that one is missing."""
    subclasses: bool = False
    """Every class that defines the function itself is wrapped."""


POINTS = (
    ChokePoint("declare", _MANAGER, "__init__", ("kv_cache_config",), manager.manager_made, ALL),
    ChokePoint("alloc", _POOL, "get_new_blocks", ("num_blocks",), pool.get_new_blocks, HOST),
    ChokePoint("free", _POOL, "free_blocks", ("ordered_blocks",), pool.free_blocks, HOST),
    ChokePoint("free order", _QUEUE, "prepend_n", ("blocks",), pool.prepend_n, NOTHING),
    ChokePoint("touch", _POOL, "touch", ("blocks",), pool.touch, HOST),
    ChokePoint("unpin", _POOL, "unpin_blocks", ("blocks",), pool.unpin_blocks, NOTHING),
    ChokePoint(
        "unpublish", _POOL, "_remove_cached_block_hashes", ("block",), pool.remove_hashes, HOST
    ),
    ChokePoint(
        "evict", _POOL, "_maybe_evict_cached_block", ("block",), pool.evict, HOST, "unpublish"
    ),
    ChokePoint(
        "publish", _POOL, "_insert_block_hash",
        ("block_hash_with_group_id", "block", "num_tokens"), pool.insert_hash, HOST,
    ),
    ChokePoint(
        "publish full", _POOL, "cache_full_blocks",
        ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size"),
        pool.compare_hashes("publish full"), HOST,
    ),
    ChokePoint(
        "publish by blocks", _POOL, "cache_full_blocks",
        ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size"),
        pool.compare_hashes("publish by blocks"), HOST, "publish",
    ),
    ChokePoint(
        "publish partial", _POOL, "cache_partial_block", ("request", "block", "num_tokens"),
        pool.gather_hashes("publish partial"), NOTHING,
    ),
    ChokePoint(
        "move", _POOL, "move_block_hashes", ("src_block", "dst_block"), pool.move_hashes, NOTHING
    ),
    ChokePoint("reset", _POOL, "reset_prefix_cache", (), pool.reset, HOST),
    ChokePoint("lookup", _MANAGER, "get_computed_blocks", ("request",), manager.look_up, NOTHING),
    ChokePoint(
        "lookup for connector", _MANAGER, "get_computed_blocks_for_connector", ("request",),
        manager.look_up, NOTHING,
    ),
    ChokePoint(
        "group hit", _SINGLE, "find_longest_cache_hit", ("kv_cache_group_ids", "block_pool"),
        manager.group_hit("group hit"), NOTHING, subclasses=True,
    ),
    ChokePoint(
        "resume", _GROUPS, "allocate_new_computed_blocks", ("request_id", "new_computed_blocks"),
        manager.adopt_found, HOST,
    ),
    ChokePoint(
        "resume by save", _GROUPS, "save_new_computed_blocks",
        ("request_id", "new_computed_blocks"), manager.adopt_found, HOST, "resume",
    ),
    ChokePoint(
        "copy on write", _SINGLE, "_apply_cow",
        ("request_id", "block_idx", "source_block", "cow_block"), manager.copy_on_write, NOTHING,
    ),
    ChokePoint(
        "deferred free", _MANAGER, "pop_blocks_for_free", ("request",), manager.put_aside, NOTHING
    ),
    ChokePoint("dispatch", _SCHEDULER, "schedule", (), scheduler.schedule, STEP),
    ChokePoint(
        "retire", _SCHEDULER, "update_from_output", ("scheduler_output",), scheduler.update, STEP
    ),
    ChokePoint(
        "loads done", _SCHEDULER, "_update_from_kv_xfer_finished", ("kv_connector_output",),
        loads.loads_done, NOTHING,
    ),
    ChokePoint(
        "preempt", _SCHEDULER, "_preempt_request", ("request",), scheduler.preempt, NOTHING
    ),
    ChokePoint("finish", _SCHEDULER, "_free_request", ("request",), scheduler.free_request, HOST),
    ChokePoint(
        "copy release", _SCHEDULER, "_free_cow_retained_blocks", ("blocks", "fence_seq"),
        scheduler.release_copies, NOTHING,
    ),
    ChokePoint(
        "external id", _REQUEST, "from_engine_core_request", ("request",),
        scheduler.request_made, NOTHING,
    ),
    ChokePoint("kv events", _MANAGER, "take_events", (), wire.events_taken, NOTHING),
    ChokePoint("core made", _CORE, "__init__", ("vllm_config",), worker.process_made, NOTHING),
    ChokePoint(
        "scheduler made", _SCHEDULER, "__init__", ("vllm_config",), worker.process_made, NOTHING
    ),
    ChokePoint(
        "worker made", _WORKER, "__init__", ("vllm_config",), worker.process_made, NOTHING
    ),
    ChokePoint(
        "configs sent", _EXECUTOR, "initialize_from_config", ("kv_cache_configs",),
        worker.configs_sent, NOTHING,
    ),
    ChokePoint("sleep", _EXECUTOR, "sleep", (), worker.sleeps("sleep"), NOTHING),
    ChokePoint("wake", _EXECUTOR, "wake_up", (), worker.sleeps("wake"), NOTHING),
    ChokePoint(
        "caches made", _RUNNER, "initialize_kv_cache", ("kv_cache_config",), worker.caches_made,
        NOTHING,
    ),
    ChokePoint(
        "step begun", _RUNNER, "_update_states", ("scheduler_output",),
        worker.step_begun("step begun", marks=True), NOTHING,
    ),
    ChokePoint(
        "loads begun", _RUNNER, "maybe_get_kv_connector_output", (), worker.loads_begun, NOTHING
    ),
    ChokePoint(
        "caches made (V2)", _RUNNER2, "initialize_kv_cache", ("kv_cache_config",),
        worker.caches_made, NOTHING,
    ),
    ChokePoint(
        "step begun (V2)", _RUNNER2, "update_requests", ("scheduler_output",),
        worker.step_begun("step begun (V2)", marks=False), NOTHING,
    ),
    ChokePoint(
        "transfers begun (V2)", _RUNNER2_TRANSFERS, "pre_forward", ("scheduler_output",),
        worker.transfers_begun, NOTHING, subclasses=True,
    ),
    ChokePoint(
        "request added", _SCHEDULER, "add_request", ("request",), fingerprints.request_added,
        NOTHING,
    ),
    ChokePoint(
        "step run", _RUNNER, "execute_model", ("scheduler_output",),
        fingerprints.stepped("step run"), NOTHING,
    ),
    ChokePoint(
        "step run (V2)", _RUNNER2, "execute_model", ("scheduler_output",),
        fingerprints.stepped("step run (V2)"), NOTHING,
    ),
    ChokePoint(
        "offload worker", _OFFLOAD_WORKER, "_init_worker", (), transfers.worker_made, NOTHING
    ),
    ChokePoint(
        "offload jobs", _OFFLOAD_WORKER, "handle_preemptions", ("kv_connector_metadata",),
        transfers.jobs_seen, NOTHING,
    ),
    ChokePoint(
        "offload output", _OFFLOAD_SCHEDULER, "update_connector_output", ("connector_output",),
        transfers.outputs_taken, NOTHING,
    ),
)  # fmt: skip
"""In the order in which they are wrapped."""
