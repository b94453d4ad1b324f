"""What the engine has, told before it does anything: pool, groups, layouts."""

from __future__ import annotations

import sys
from typing import Any

from hkvtool.recorder.vllm import specs
from hkvtool.recorder.vllm.geometry import layout
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.pool_state import PoolState


def engine_name() -> str:
    """The engine and its version, as the trace names it."""
    module = sys.modules.get("vllm")
    return f"vllm {getattr(module, '__version__', 'of unknown version')}"


def declare(hooks: Hooks, manager: Any) -> None:
    """Tell the pools and groups of a cache manager."""
    hooks.begin(engine_name())
    config = manager.kv_cache_config
    worker = hooks.worker_config(config)
    first = hooks.next_tables(len(config.kv_cache_groups))
    for one in manager.coordinator.single_type_managers:
        number = one.kv_cache_group_id
        state = _pool_of(hooks, one.block_pool)
        state.first_table = first
        group = (worker or config).kv_cache_groups[number]
        _declare_group(hooks, state, number, one, group, worker or config)


def _pool_of(hooks: Hooks, pool: Any) -> PoolState:
    known = getattr(pool, "hkvtool_state", None)
    if known is not None and known.hooks is hooks:
        found: PoolState = known
        return found
    medium = str(getattr(pool, "medium", None) or "GPU").lower()
    state = hooks.adopt(pool, f"{medium}{hooks.rank}")
    tier = "cpu" if medium == "cpu" else "gpu"
    hooks.tell.event(
        {"ev": "pool", "pool": state.name, "medium": tier, "blocks": len(pool.blocks),
         "reserved": [pool.null_block.block_id], "zeroed": True}
    )  # fmt: skip
    return state


def _declare_group(
    hooks: Hooks, state: PoolState, number: int, manager: Any, group: Any, config: Any
) -> None:
    found = specs.parts(group)
    _, _, stem = specs.kind(found[0].spec)
    table = f"{stem}{number}" if state.name == "gpu" else f"{stem}{number}@{state.name}"
    state.groups[number] = table
    state.units[number] = manager.block_size
    cached = bool(manager.enable_caching)
    for i, part in enumerate(found):
        keys = specs.keys(part.spec, part.layers)
        keys["block_tokens"] = manager.block_size
        event: dict[str, Any] = {"ev": "group", "group": table, "pool": state.name, **keys}
        event["table_index"] = state.first_table + number
        if len(found) > 1:
            event["table"] = table
            if i:
                event["group"] = f"{table}.{specs.role(part.spec) or 'part'}{i}"
                event["serves"] = table
        if not cached:
            event["participates"] = False
        kernel = hooks.kernel_blocks
        size = kernel[number] if kernel and number < len(kernel) else None
        event["layout"] = layout(config, part, size)
        hooks.tell.event(event)
        if i == 0:
            if event["form"] in ("swa", "tail"):
                state.sliding.add(number)
            if event.get("participates", True):
                state.reusable.add(number)


def declare_bare_pool(hooks: Hooks, pool: Any) -> PoolState:
    """A pool that nobody manages, as in an engine's own tests."""
    hooks.begin(engine_name())
    return _pool_of(hooks, pool)


def declare_bare_group(state: PoolState, number: int) -> str:
    """A group that is known only by its number, from a hash or a request."""
    name = f"group{number}" if state.name == "gpu" else f"group{number}@{state.name}"
    state.groups[number] = name
    unit = getattr(state.pool, "hash_block_size", None) or 1
    state.units[number] = unit
    state.hooks.tell.event(
        {"ev": "group", "group": name, "form": "compressed", "pool": state.name,
         "block_tokens": unit}
    )  # fmt: skip
    return name
