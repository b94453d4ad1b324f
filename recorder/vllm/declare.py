"""What the engine has, told before it does anything: pool, groups, layouts."""

from __future__ import annotations

import sys
from typing import Any

from hkvtool.recorder.vllm import specs
from hkvtool.recorder.vllm.geometry import layout
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.pool_state import PoolState
from hkvtool.recorder.vllm.weights import weights_of


def engine_name() -> str:
    """The engine and its version, as the trace names it."""
    module = sys.modules.get("vllm")
    return f"vllm {getattr(module, '__version__', 'of unknown version')}"


def declare(hooks: Hooks, manager: Any) -> None:
    """Tell the pools and groups of a cache manager."""
    if getattr(manager, "enable_kv_cache_events", False):
        hooks.sees("wire")
    hooks.begin(engine_name())
    _tell_weights(hooks)
    config = manager.kv_cache_config
    worker = hooks.worker_config(config)
    layers: dict[str, dict[str, Any]] = {}
    first = hooks.next_tables(len(config.kv_cache_groups))
    engine = ""
    for one in manager.coordinator.single_type_managers:
        state = _pool_of(hooks, one.block_pool, engine)
        engine = engine or state.name
        state.first_table = first
        _declare_group(hooks, state, one, worker or config, layers)


def _tell_weights(hooks: Hooks) -> None:
    """Which weights the engine has, once; by now their files are here."""
    config, hooks.serves = hooks.serves, None
    if config is None:
        return
    try:
        found = weights_of(config)
    except Exception as e:
        hooks.log.warning("which weights the model has is not told: %s", e)
        return
    if found is not None:
        hooks.tell.event({"ev": "weights", "version": hooks.keyed.text(found)})


def group_name(config: Any, number: int, pool: str) -> str:
    """What a cache group is called: the same in every process that has the config."""
    first = specs.parts(config.kv_cache_groups[number])[0]
    stem = specs.role(first) or specs.kind(first.spec)[2]
    return f"{stem}{number}" if pool == "gpu" else f"{stem}{number}@{pool.removeprefix('gpu@')}"


def group_names(config: Any, number: int, pool: str) -> list[str]:
    """The groups of the trace that a cache group is, a name for each kind of content in its block
    table."""
    table = group_name(config, number, pool)
    further = specs.parts(config.kv_cache_groups[number])[1:]
    return [table, *(f"{table}.{specs.role(p) or 'part'}{i}" for i, p in enumerate(further, 1))]


def _pool_of(hooks: Hooks, pool: Any, engine: str = "") -> PoolState:
    """What is known of a pool. A process may run several engines, and a trace hold those of many:
    which pools are of one is told by the name of its first."""
    known = getattr(pool, "hkvtool_state", None)
    if known is not None and known.hooks is hooks:
        found: PoolState = known
        return found
    medium = str(getattr(pool, "medium", None) or "GPU").lower()
    state = hooks.adopt(pool, f"{medium}{hooks.rank}")
    tier = "cpu" if medium == "cpu" else "gpu"
    hooks.tell.event(
        {"ev": "pool", "pool": state.name, "medium": tier, "engine": engine or state.name,
         "blocks": len(pool.blocks),
         "reserved": [pool.null_block.block_id], "zeroed": True}
    )  # fmt: skip
    return state


def _declare_group(
    hooks: Hooks, state: PoolState, manager: Any, config: Any, layers: dict[str, dict[str, Any]]
) -> None:
    number = manager.kv_cache_group_id
    found = specs.parts(config.kv_cache_groups[number])
    names = group_names(config, number, state.name)
    table = names[0]
    state.groups[number] = table
    state.units[number] = manager.block_size
    kernel = hooks.kernel_blocks
    size = kernel[number] if kernel and number < len(kernel) else None
    for i, part in enumerate(found):
        keys = specs.keys(part)
        keys["block_tokens"] = manager.block_size
        event: dict[str, Any] = {"ev": "group", "group": names[i], "pool": state.name, **keys}
        event["table_index"] = state.first_table + number
        if len(found) > 1:
            event["table"] = table
        if not manager.enable_caching:
            event["participates"] = False
        event["layout"] = layout(config, part, size)
        _serving(layers, part, event)
        layers.update((layer, event) for layer in part.layers)
        hooks.tell.event(event)
        if i == 0:
            if event["form"] in ("swa", "tail"):
                state.sliding.add(number)
            if event["form"] == "recurrent":
                state.recurrent.add(number)
            if event.get("participates", True):
                state.reusable.add(number)


def _serving(layers: dict[str, dict[str, Any]], part: specs.Part, event: dict[str, Any]) -> None:
    """Say which group a tail or an indexer belongs to, if that has been declared."""
    owner = next((layers[name] for name in specs.served(part) if name in layers), None)
    if owner is None:
        return
    event["serves"] = owner["group"]
    if event["form"] == "tail":
        # What is kept beyond the open unit.
        event["overlap"] = max(0, event["window"] - owner.get("ratio", 1))


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
