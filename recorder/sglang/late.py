"""Beginning in the middle: caches that are there already are described as they stand.

The tree core is put behind a witness, as it would have been when it was made. What is on its way
between the device, the host and a storage is told from its next beginning on: until then a page is
taken for what the tree takes it for.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hkvtool.recorder.heap import instances
from hkvtool.recorder.patches import family
from hkvtool.recorder.sglang import declare
from hkvtool.recorder.sglang.cache_state import CacheState, Lock, PoolState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.host_tier import HostPool
from hkvtool.recorder.sglang.late_tree import adopt, host_pools, used
from hkvtool.recorder.sglang.locks import OWNER
from hkvtool.recorder.sglang.paths import full_pages, window_pages
from hkvtool.recorder.sglang.tree_core import Witness, put_in_front

_AT_ONCE = 8192
"""Blocks in one event: a ring takes none that is half as large as itself."""

_UNKNOWN = "before the recording"
"""Who holds what no request does."""

_CACHE = "sglang.srt.mem_cache.unified_radix_cache"
_SCHEDULER = "sglang.srt.managers.scheduler"
_REQUESTS = "sglang.srt.managers.schedule_batch"


@dataclass(frozen=True)
class Running:
    """What this process has of an engine that was there before the hooks."""

    caches: list[Any]
    requests: list[Any]


def running() -> Running:
    """What the schedulers of this process have made so far."""
    cache = getattr(sys.modules.get(_CACHE), "UnifiedRadixCache", None)
    request = getattr(sys.modules.get(_REQUESTS), "Req", None)
    scheduler = getattr(sys.modules.get(_SCHEDULER), "Scheduler", None)
    if cache is None or request is None or scheduler is None:
        return Running([], [])
    found = instances((*family(scheduler), request))
    served = [getattr(o, "tree_cache", None) for o in found if isinstance(o, scheduler)]
    return Running(
        [o for o in served if type(o) is cache], [o for o in found if type(o) is request]
    )


def take_over(hooks: Hooks, found: Running) -> None:
    """Declare caches that came before the hooks, with `state` events of each pool."""
    for cache in found.caches:
        why = _not_followed(cache)
        if why:
            hooks.begin()
            hooks.note(f"not seen: {why}")
            continue
        requests = [r for r in found.requests if r.kv is not None and r.kv.holds_kv]
        _describe(hooks, cache, requests)


def _not_followed(cache: Any) -> str:
    """Why a cache cannot be described, if it cannot."""
    kinds = {component.name for component in cache.tree_components}
    if not kinds <= {"FULL", "SWA"}:
        return f"a cache that was there before, of {', '.join(sorted(kinds))}"
    controller = cache.cache_controller
    if controller is not None and cache.host_memory_mode != "cache":
        return "a cache that was there before, whose pages are staged in buffers of the host"
    if controller is not None and not all(
        hasattr(entry.host_pool, "slot_used") for entry in controller.mem_pool_host.entries
    ):
        return "a cache that was there before, whose pools share the memory of the host"
    if cache.tree_core.is_eagle:
        return "a cache that was there before, for speculative decoding"
    return ""


def _describe(hooks: Hooks, cache: Any, requests: list[Any]) -> None:
    hooks.chosen = cache._tree_core_backend
    core = cache.tree_core
    while isinstance(core, Witness):
        # Of a recording before.
        core = core._core
    state = declare.declare(hooks, cache)
    if state is None or state.full is None:
        return
    put_in_front(cache, core, hooks)
    controller = cache.cache_controller
    if controller is not None:
        declare.declare_tier(hooks, state, controller)
    adopt(state, core)
    held = {str(r.rid): r for r in requests if r.kv.req_pool_idx is not None}
    _locks(state, core, held)
    for pool in state.pools:
        _taken(state, pool, held)
        _tell(hooks, state, pool, range(1, int(pool.allocator.size) // pool.page + 1))
    for far in host_pools(state):
        far.taken.update(dict.fromkeys(used(far) - set(far.hash_of)))
        _tell(hooks, state, far, range(int(far.allocator.size) // far.page))
    if state.tier is not None:
        state.tier.ask_anew()
        if controller.enable_storage:
            # Its threads are heard from here on.
            state.tier.put_below()
    state.live.update(held)
    # A pause before has withdrawn it.
    hooks.tell.event({"ev": "evidence", "evidence": list(hooks.evidence)})


# --- who holds it --------------------------------------------------------------------------


def _locks(state: CacheState, core: Any, held: dict[str, Any]) -> None:
    """Locks that requests hold, and copies between the device and the host."""
    for req in held.values():
        if req.lock is not None:
            released = bool(getattr(req.lock, "swa_released", False))
            lock = _lock(state, core, req.lock.node, req.lock.receipt, window=not released)
            lock.req, lock.receipt = str(req.rid), req.lock.receipt
    if state.tier is not None:
        copies = (state.cache.ongoing_write_through, state.cache.ongoing_load_back)
        for one in (one for under_way in copies for one in under_way.values()):
            if one.lock_params is not None:
                _lock(state, core, one.node_id, one.lock_params, window=True)


def _lock(state: CacheState, core: Any, node: int, receipt: Any, *, window: bool) -> Lock:
    lock = Lock(node, full_pages(state, core, node))
    end = None
    if state.swa is not None:
        component = state.components["swa"]
        end = receipt.component_lock_uuids.get(component)
        if window:
            covers = covered(state, core, node, end)
            runs, lock.covered = window_pages(state.swa, core, component, node, covers)
            lock.swa = [p for _, pages in runs for p in pages]
    state.locks.setdefault((node, end), []).append(lock)
    return lock


def covered(state: CacheState, core: Any, node: int, end: Any) -> int:
    """Tokens before the end of a node that a lock on its window covers. Whole nodes are locked, and
    may have been parted since: the Python core knows how far, the other at least the window."""
    tokens = 0
    if state.cache._tree_core_backend == "python":
        at = core.node_by_id(node)
        while at is not core.root_node:
            tokens += len(at.key)
            known = at.component_data[state.components["swa"]].metadata.get("uuid")
            if end is not None and known == end:
                break
            at = at.parent
    return max(tokens, state.window or 0)


def _taken(state: CacheState, pool: PoolState, held: dict[str, Any]) -> None:
    """Pages that are neither free nor the tree's are requests'."""
    free = {int(p) for p in pool.allocator.get_all_free_pages().tolist()}
    owner: dict[int, str] = {}
    rows = state.cache.req_to_token_pool.req_to_token
    for name, req in held.items():
        slots = rows[req.kv.req_pool_idx, : req.kv.kv_allocated_len : state.page]
        if pool is state.swa:
            slots = state.mapping[slots.long()]
        owner.update(dict.fromkeys((slots // state.page).tolist(), name))
    for page in range(1, int(pool.allocator.size) // pool.page + 1):
        if page not in free and page not in pool.hash_of:
            pool.taken[page] = owner.get(page)


# --- told ----------------------------------------------------------------------------------


def _tell(hooks: Hooks, state: CacheState, pool: PoolState, every: Iterable[int]) -> None:
    """The `state` events of a pool, which has `every` page."""
    refs, owners = dict.fromkeys([*pool.hash_of, *pool.taken], 0), dict(pool.taken)
    for page in pool.taken:
        refs[page] += 1
        owners[page] = owners[page] or _UNKNOWN
    near = {} if isinstance(pool, HostPool) else state.locks
    for lock in (lock for locks in near.values() for lock in locks):
        for page in {"full": lock.full, "swa": lock.swa}.get(pool.kind, ()):
            refs[page] += 1
            owners[page] = lock.req or owners.get(page) or OWNER
    for page in every:
        refs.setdefault(page, 0)
    _state(hooks, pool, refs, owners)


def _state(
    hooks: Hooks, pool: PoolState, refs: dict[int, int], owners: dict[int, str | None]
) -> None:
    pages = list(refs)
    for at in range(0, len(pages), _AT_ONCE):
        part = pages[at : at + _AT_ONCE]
        named = [pool.hash_of.get(page) for page in part]
        hooks.tell.event({
            "ev": "state", "pool": pool.name, "blocks": part, "refs": [refs[p] for p in part],
            "hashes": [None if name is None else [name] for name in named],
            "owners": [owners.get(p) for p in part], "groups": [pool.name] * len(part),
        })  # fmt: skip
