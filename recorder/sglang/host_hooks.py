"""Hooks on HiCache: the host's pages, copies there and back, and what the tree makes of them."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang import declare
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.host_tier import Copy
from hkvtool.recorder.sglang.locks import extend
from hkvtool.recorder.sglang.steps import DEVICE


def made(hooks: Hooks, seen: None, result: None, cache: Any, *args: Any, **kw: Any) -> None:
    """A cache has memory of the host below it."""
    state = hooks.cache(cache)
    if state is not None and cache.cache_controller is not None:
        declare.declare_tier(hooks, state, cache.cache_controller)
        if state.tier is not None and cache.cache_controller.enable_storage:
            state.tier.put_below()


# --- copies to the host --------------------------------------------------------------------


def written(
    hooks: Hooks, seen: None, host: Any, controller: Any, device_indices: Any, *args: Any, **kw: Any
) -> None:
    """Pages of the host were taken for copies, which wait to be handed to the device."""
    tier = hooks.tier(controller)
    if tier is None or host is None or not controller.write_queue:
        return
    for near, blocks, peer in tier.pages(controller.write_queue[-1]):
        tier.far(near).due.update(zip(peer, blocks, strict=True))
    tier.settle()


def to_store(hooks: Hooks, controller: Any, *args: Any, **kw: Any) -> None:
    """What waits is handed to the device: each behind what the stream that computes has by now."""
    tier = hooks.tier(controller)
    if tier is None:
        return
    lane = _lane(hooks, controller.write_fence_stream)
    if controller.write_queue:
        tier.behind(lane)
    for operation in controller.write_queue:
        copy = tier.begin("store", operation, lane)
        for node in operation.node_ids:
            tier.stores[node] = copy


def to_acknowledge(hooks: Hooks, cache: Any, ack_id: int, *args: Any, **kw: Any) -> None:
    """The engine has read that a copy to the host is over."""
    tier = hooks.tier(cache.cache_controller)
    if tier is not None:
        tier.end(tier.stores.pop(ack_id, None), None)


# --- and back ------------------------------------------------------------------------------


def to_load(hooks: Hooks, controller: Any, *args: Any, **kw: Any) -> list[Copy]:
    """What is to come back is handed to the device."""
    tier = hooks.tier(controller)
    if tier is None:
        return []
    lane = _lane(hooks, controller.load_fence_stream)
    begun = []
    if controller.load_queue:
        tier.behind(lane)
    for operation in controller.load_queue:
        copy = tier.begin("load", operation, lane)
        begun.append(copy)
        for node in operation.node_ids:
            tier.loads[node] = copy
    return begun


def load_begun(
    hooks: Hooks, begun: list[Copy], number: int, controller: Any, *args: Any, **kw: Any
) -> None:
    """The step that is given this number waits for it."""
    tier = hooks.tier(controller)
    if tier is not None and begun:
        tier.waited[number] = begun


def consumed(hooks: Hooks, seen: None, result: None, counter: Any, index: int, **kw: Any) -> None:
    """A step begins on the device; each of its layers waits for its part of these loads."""
    tier = hooks.tier(counter)
    if tier is not None:
        for copy in tier.waited.pop(index, ()):
            tier.waited_for(copy)
        tier.state.steps.begin()


def adopted(
    hooks: Hooks, witness: Any, core: Any, actions: Any, node_id: int, device_indices: Any,
    kv_xfer: Any, comp_xfers: Any, *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """The tree has pages on the device again, before their bytes are there."""
    state = hooks.by_core(witness)
    if state is None or state.tier is None:
        return
    parts = [("full", kv_xfer, device_indices)]
    parts += [
        ("swa", t, t.device_indices)
        for t in comp_xfers.get(state.components["swa"], ()) if t.indices_from_pool is None
    ]  # fmt: skip
    spans = {step.node_id: step for step in core.collect_path_info([node_id])[0]}
    for kind, transfer, device in parts:
        pool = next((p for p in state.tier.pools.values() if p.kind == kind), None)
        if pool is None or device is None or not len(device):
            continue
        near, far = pool.near.pages(device), pool.pages(transfer.host_indices)
        places = [
            place
            for node in transfer.nodes_to_load or ()
            for place in range(
                spans[node].path_start // pool.page, spans[node].path_end // pool.page
            )
        ]
        pool.near.publish_at(near, [pool.hash_of[p] for p in far], places)
    if state.locks:
        extend(hooks, state, core)


def load_over(
    hooks: Hooks, witness: Any, core: Any, result: None, anchor_node_id: int, **kw: Any
) -> None:
    """The engine has read that a copy from the host is over."""
    state = hooks.by_core(witness)
    if state is not None and state.tier is not None:
        state.tier.heard(state.tier.loads.pop(anchor_node_id, None))


def _lane(hooks: Hooks, fence: Any) -> str | None:
    """Behind whom a copy begins. It waits for the stream that hands it over; where that is not the
    one that computes, only a fence makes it wait for the latter too."""
    return DEVICE if fence is not None or not hooks.overlaps else None


# --- the host's pages ----------------------------------------------------------------------


def host_allocated(
    hooks: Hooks, seen: None, slots: Any, allocator: Any, *args: Any, **kw: Any
) -> None:
    """Pages of the host are taken."""
    pool = hooks.pool(allocator)
    if pool is not None and slots is not None:
        pool.take(pool.pages(slots), None)


def host_freed(
    hooks: Hooks, seen: None, result: Any, allocator: Any, indices: Any, *args: Any, **kw: Any
) -> None:
    """Pages of the host are there again."""
    pool = hooks.pool(allocator)
    if pool is not None:
        pool.give_back(pool.pages(indices))


def host_cleared(hooks: Hooks, seen: None, result: None, allocator: Any, **kw: Any) -> None:
    """The host has none of the tree's pages any more."""
    pool = hooks.pool(allocator)
    if pool is None:
        return
    state: CacheState = pool.cache
    if state.tier is not None:
        state.tier.drop_all()
    pool.clear()
