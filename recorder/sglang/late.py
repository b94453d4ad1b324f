"""Beginning in the middle: caches that are there already are described as they stand.

The tree core is put behind a witness, as it would have been when it was made. What it has is read
off the Python core node by node. The Rust core tells only which slots come behind which: the hashes
of what it had before are then names that stand for nothing else.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hkvtool.recorder.heap import instances
from hkvtool.recorder.patches import family
from hkvtool.recorder.sglang import declare
from hkvtool.recorder.sglang.cache_state import CacheState, Lock, PoolState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.locks import OWNER
from hkvtool.recorder.sglang.paths import full_pages, hashes, window_pages
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
    if cache.cache_controller is not None:
        return "a cache that was there before, above memory of the host"
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
    for pool, page, name, place in _tree(state, core):
        pool.hash_of[page], pool.page_of[name], pool.place[page] = name, page, place
    held = {str(r.rid): r for r in requests if r.kv.req_pool_idx is not None}
    _locks(state, core, held)
    for pool in state.pools:
        _taken(state, pool, held)
        _tell(hooks, state, pool)
    state.live.update(held)
    # A pause before has withdrawn it.
    hooks.tell.event({"ev": "evidence", "evidence": list(hooks.evidence)})


# --- the tree ------------------------------------------------------------------------------


def _tree(state: CacheState, core: Any) -> Iterator[tuple[PoolState, int, str, int]]:
    """Every page that the tree has: its pool, itself, its hash, and which one of its sequence."""
    if state.cache._tree_core_backend == "python":
        yield from _nodes(state, core)
        return
    assert state.full is not None
    keyed, page = state.hooks.keyed, state.page
    walked = core.walk_for_kv_canary(False, False)
    places: dict[int, int] = {}
    for slot, position in zip(walked.slot_indices.tolist(), walked.positions.tolist(), strict=True):
        if position % page == 0:
            places[slot // page] = position // page
    for block, place in places.items():
        yield state.full, block, _stand_in(state.full, block, keyed), place
    if state.swa is not None:
        resident = core.walk_for_kv_canary(False, True).slot_indices.tolist()
        for slot in resident:
            if slot % page == 0:
                block = int(state.mapping[slot]) // page
                yield state.swa, block, _stand_in(state.swa, block, keyed), places[slot // page]


def _stand_in(pool: PoolState, block: int, keyed: Any) -> str:
    """A name for what a page holds, where nobody says what that is."""
    name: str = keyed(f"{pool.name} {block} before the recording")
    pool.stand_ins.add(name)
    return name


def _nodes(state: CacheState, core: Any) -> Iterator[tuple[PoolState, int, str, int]]:
    """The same, read off each node."""
    keyed, page = state.hooks.keyed, state.page
    stack = [(child, array("q")) for child in core.root_node.children.values()]
    while stack:
        node, before = stack.pop()
        first = len(before) // page
        tokens = before[:]
        tokens.extend(node.key.raw_token_ids())
        key = type(node.key)(tokens, extra_key=node.key.extra_key, cache_salt=node.key.cache_salt)
        names = [keyed(h) for h in hashes(key, page, len(tokens) // page)][first:]
        stack += [(child, tokens) for child in node.children.values()]
        for pool in state.pools:
            value = node.component_data[state.components[pool.kind]].value
            if value is None:
                continue
            for i, block in enumerate(pool.pages(value)):
                yield pool, block, names[i], first + i


# --- who holds it --------------------------------------------------------------------------


def _locks(state: CacheState, core: Any, held: dict[str, Any]) -> None:
    """Locks that requests hold."""
    for req in held.values():
        if req.lock is not None:
            released = bool(getattr(req.lock, "swa_released", False))
            lock = _lock(state, core, req.lock.node, req.lock.receipt, window=not released)
            lock.req, lock.receipt = str(req.rid), req.lock.receipt


def _lock(state: CacheState, core: Any, node: int, receipt: Any, *, window: bool) -> Lock:
    lock = Lock(node, full_pages(state, core, node))
    end = None
    if state.swa is not None:
        component = state.components["swa"]
        end = receipt.component_lock_uuids.get(component)
        if window:
            runs, lock.covered = window_pages(state.swa, core, component, node, state.window or 0)
            lock.swa = [p for _, pages in runs for p in pages]
    state.locks.setdefault((node, end), []).append(lock)
    return lock


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


def _tell(hooks: Hooks, state: CacheState, pool: PoolState) -> None:
    """The `state` events of a pool."""
    refs, owners = dict.fromkeys([*pool.hash_of, *pool.taken], 0), dict(pool.taken)
    for page in pool.taken:
        refs[page] += 1
        owners[page] = owners[page] or _UNKNOWN
    for lock in (lock for locks in state.locks.values() for lock in locks):
        for page in {"full": lock.full, "swa": lock.swa}.get(pool.kind, ()):
            refs[page] += 1
            owners[page] = lock.req or owners.get(page) or OWNER
    for page in range(1, int(pool.allocator.size) // pool.page + 1):
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
