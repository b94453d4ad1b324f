"""What the engine has, told before it does anything."""

from __future__ import annotations

import importlib
from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.host_tier import HostPool, HostTier
from hkvtool.recorder.sglang.layouts import of_host, of_states
from hkvtool.recorder.sglang.leading import leads
from hkvtool.recorder.sglang.parts import Part, of_page, open_units, otherwise
from hkvtool.recorder.sglang.rows import RowPool
from hkvtool.recorder.sglang.states import StatePool

_COMPONENTS = "sglang.srt.mem_cache.unified_cache.component_type"

FORMS = {"full": "compressed", "swa": "swa", "mamba": "recurrent"}

NOT_SEEN = (
    "kernels: what a step reads is worked out from its requests' pages",
    "what speculative decoding writes and reads",
    "how caches lie, unless a layer's entries are a tensor of rows or of pages",
    "files of HiCache's storage other than `file`, its buffer mode, index rows and states",
    "of DeepSeek-V4, what a step does to units that are kept open by request",
    "states that are kept in int8, and allocators that share one buffer between groups",
    "for whom a node is locked that no request holds",
    "a cache from before the recording above buffers of the host, or with recurrent states",
)
"""What happens in an engine and is not told."""


def declare(hooks: Hooks, cache: Any) -> CacheState | None:
    """Tell the pools and groups of a cache, where it is this process that tells of it."""
    if not leads():
        return None
    component = importlib.import_module(_COMPONENTS).ComponentType
    allocator = cache.token_to_kv_pool_allocator
    full = getattr(allocator, "full_attn_allocator", None)
    swa = getattr(allocator, "swa_attn_allocator", None)
    if full is None:
        full, swa = allocator, None
    state = CacheState(cache, len(hooks.caches) + 1, hooks)
    state.components = {
        "full": component.FULL, "swa": component.SWA, "mamba": component.MAMBA
    }  # fmt: skip
    bytes_of = allocator.get_kvcache()
    parts = {
        kind: of_page(bytes_of, kind, state.page)
        for kind in (("full",) if swa is None else ("full", "swa"))
    }
    requests = cache.req_to_token_pool
    recurrent = component.MAMBA in cache.tree_components
    followed = recurrent and not state.staged and _plain(requests)
    if followed:
        layout = of_states(requests.mamba_pool)
        parts["mamba"] = [{"group": "", **({"layout": layout} if layout else {})}]
    rings = open_units(bytes_of)
    beside = [*rings, *(part for found in parts.values() for part in found[1:])]
    if state.staged:
        # Their copies in the host's memory are not seen, so neither is what a load brings.
        parts, rings = {kind: found[:1] for kind, found in parts.items()}, []
    if all("layout" in part for found in (*parts.values(), rings) for part in found):
        hooks.sees("layout")
    hooks.begin("; ".join(f"not seen: {what}" for what in NOT_SEEN))
    state.full = PoolState(full, state, "full")
    if swa is not None and component.SWA in cache.tree_components:
        state.window = int(cache._sliding_window_size)
        state.swa = PoolState(swa, state, "swa")
        state.mapping = allocator.full_to_swa_index_mapping
    if followed:
        state.states = StatePool(requests, state)
        state.steps.mark()
    elif recurrent:
        hooks.note("not seen: states that go to the host's memory too, share bytes, or are in int8")
    if otherwise(bytes_of):
        hooks.note(
            "not seen: compressed histories and windows that lie by request, or in one buffer"
        )
    if state.staged and beside:
        hooks.note("not seen: what lies beside a page's own and goes to the host's memory with it")
    state.mark(cache, state)
    hooks.caches.append(state)
    for pool in state.pools:
        state.mark(pool.allocator, pool)
        _declare(hooks, state, pool, parts[pool.kind])
    if rings:
        state.rows = RowPool(requests, state, bytes_of)
        state.mark(requests, state.rows)
        _declare_rows(hooks, state, state.rows, rings)
    return state


def _plain(requests: Any) -> bool:
    """Whether states lie in slots of their own, those of the tree in the same as all others."""
    kind = type(requests.mamba_allocator).__name__
    return kind == "MambaSlotAllocator" and requests.mamba_ckpt_pool is None


def declare_tier(hooks: Hooks, state: CacheState, controller: Any) -> None:
    """Tell the host's memory of a cache, as far as it holds pages that are followed."""
    tier = HostTier(state, controller)
    near = {"kv": state.full, "swa": state.swa}
    for entry in controller.mem_pool_host.entries:
        name = str(getattr(entry.name, "value", entry.name))
        above, host = near.get(name), entry.host_pool
        if above is None or int(host.page_size) != above.page:
            tier.left_out.append(name)
            continue
        pool = tier.pools[name] = HostPool(host, state, above)
        state.mark(host, pool)
        hooks.tell.event({
            "ev": "pool", "pool": pool.name, "medium": "cpu", "engine": state.engine,
            "blocks": int(host.size) // pool.page,
        })  # fmt: skip
        layout = of_host(host, pool.page)
        hooks.tell.event({
            **_group(state, above), "group": pool.name, "pool": pool.name, "participates": False,
            **({"layout": layout} if layout else {}),
        })  # fmt: skip
    state.tier = tier
    state.steps.mark()
    for owner in (controller, controller.layer_done_counter):
        state.mark(owner, tier)
    if tier.left_out:
        hooks.note(f"not seen: the host's copies of {', '.join(tier.left_out)}")


def _declare(hooks: Hooks, state: CacheState, pool: PoolState, parts: list[Part]) -> None:
    """A pool of pages, the first of which padding is written to, and the group that uses it."""
    pages = int(pool.allocator.size) // pool.page
    hooks.tell.event({
        "ev": "pool", "pool": pool.name, "medium": "gpu", "engine": state.engine,
        "blocks": pages + 1, "reserved": [0],
    })  # fmt: skip
    number = state.first_table + state.pools.index(pool)
    for part in parts:
        group = {**_group(state, pool), "table_index": number, **part}
        if len(parts) > 1:
            group["table"] = pool.name
        hooks.tell.event(_named(group, pool.name, state.full))


def _declare_rows(hooks: Hooks, state: CacheState, rows: RowPool, rings: list[Part]) -> None:
    """What is kept for each request in a row of its own, whatever pages it has."""
    hooks.tell.event({
        "ev": "pool", "pool": rows.name, "medium": "gpu", "engine": state.engine,
        "blocks": rows.count, "reserved": [0],
    })  # fmt: skip
    for ring in rings:
        group = {"ev": "group", "pool": rows.name, "table": rows.name, **ring}
        name = rows.name if ring is rings[0] else f"{ring['group']}{state.suffix}"
        hooks.tell.event({**_named(group, "", state.full), "group": name})


def _named(group: dict[str, Any], pool: str, full: PoolState | None) -> dict[str, Any]:
    """A part with the names of its pools before its own."""
    named = {**group, "group": pool + group["group"]}
    if "serves" in group and full is not None:
        named["serves"] = full.name + group["serves"]
    return named


def _group(state: CacheState, pool: PoolState) -> dict[str, Any]:
    group: dict[str, Any] = {
        "ev": "group", "group": pool.name, "pool": pool.name, "block_tokens": state.page,
        "form": FORMS[pool.kind],
    }  # fmt: skip
    if pool is state.states:
        group["states"] = "none"
    if pool.kind == "swa":
        group["window"] = state.window
    return group
