"""Hooks on the manager that puts requests aside: to the host's memory, or to begin anew."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.transformers.cache_state import CacheState
from hkvtool.recorder.transformers.declare import declare_tier
from hkvtool.recorder.transformers.hooks import Hooks

Blocks = dict[str, list[int]]


def manager_made(
    hooks: Hooks, seen: None, result: None, manager: Any, *args: Any, **kw: Any
) -> None:
    """There may be memory of the host to put requests aside to."""
    state = hooks.cache(manager.cache)
    if state is not None and manager._cpu_pool is not None:
        declare_tier(hooks, state, manager._cpu_pool)


def to_offload(hooks: Hooks, manager: Any, *args: Any, **kw: Any) -> None:
    """Requests make room for others: they end to come back."""
    hooks.preempting = True


def offloaded(hooks: Hooks, seen: None, result: Any, manager: Any, *args: Any, **kw: Any) -> None:
    """What ends from here on is over."""
    hooks.preempting = False


def stored(
    hooks: Hooks, seen: None, done: Any, manager: Any, victims: Any, tables: Any,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """What requests held was copied to the host. Their blocks are free already: whoever gets them
    writes behind the copy, on the same stream."""
    state = hooks.cache(manager.cache)
    if state is None:
        return
    for victim in victims:
        req = victim.request_id
        if req in done:
            _stored(hooks, state, victim, tables[req], manager._request_id_to_cpu_blocks[req])


def _stored(hooks: Hooks, state: CacheState, victim: Any, tables: Any, peers: Any) -> None:
    req, end = victim.request_id, int(victim.position_offset)
    for kind, peer in peers.items():
        group = state.groups[kind]
        if group.tier is None:
            continue
        hooks.tell.alloc(list(peer), group.tier, req, None)
        blocks, handle = list(tables[kind]), _handle(hooks)
        event: dict[str, Any] = {
            "ev": "store_begin", "handle": handle, "group": group.name, "req": req,
            "to": group.tier,
        }  # fmt: skip
        if group.window is None and end > 0:
            # Blocks behind what is computed go along, and nobody relies on them.
            filled = -(-end // group.unit)
            blocks, peer = blocks[:filled], peer[:filled]
            event["tokens"] = [0, end]
        hooks.tell.event({**event, "blocks": blocks, "peer": list(peer)})
        hooks.tell.event({"ev": "store_end", "handle": handle})


def _handle(hooks: Hooks) -> str:
    hooks.transfers += 1
    return f"offload-{hooks.transfers}"


def to_restore(
    hooks: Hooks, manager: Any, requests_in_batch: Any, *args: Any, **kw: Any
) -> list[tuple[Any, Blocks]]:
    """Requests in the batch that were put aside, and where what they held lies."""
    held = manager._request_id_to_cpu_blocks
    states = [f.state for f in requests_in_batch if f.state.is_cpu_offloaded]
    return [(s, dict(held[s.request_id])) for s in states if s.request_id in held]


def restored(
    hooks: Hooks, back: list[tuple[Any, Blocks]], result: None, manager: Any, *args: Any, **kw: Any
) -> None:
    """What they held came back."""
    state = hooks.cache(manager.cache)
    if state is not None:
        for request, peers in back:
            _restored(hooks, state, request, peers)


def _restored(hooks: Hooks, state: CacheState, request: Any, peers: dict[str, list[int]]) -> None:
    req = request.request_id
    taken: dict[str, list[int]] = {}
    for kind, peer in peers.items():
        taken[kind] = state.groups[kind].table(req)[: len(peer)]
    hooks.tell.event({
        "ev": "resume", "req": req, "at": int(request.position_offset),
        "blocks": {state.groups[kind].name: blocks for kind, blocks in taken.items()},
        "route": {state.groups[kind].name: "load" for kind in taken},
    })  # fmt: skip
    for kind, blocks in taken.items():
        group, peer = state.groups[kind], list(peers[kind])
        handle = _handle(hooks)
        hooks.tell.event({
            "ev": "load_begin", "handle": handle, "group": group.name, "req": req,
            "blocks": blocks, "from": group.tier, "peer": peer[: len(blocks)],
        })  # fmt: skip
        # What comes after it is behind it on the same stream.
        hooks.tell.event({"ev": "load_end", "handle": handle})
        hooks.tell.free(peer, f"{group.name}.cpu", req, None, None, None)


def to_drop(hooks: Hooks, manager: Any, state: Any, *args: Any, **kw: Any) -> Blocks:
    """Where what a request held lies."""
    return dict(manager._request_id_to_cpu_blocks.get(state.request_id, {}))


def dropped(
    hooks: Hooks, peers: Blocks, result: None, manager: Any, state: Any, *args: Any, **kw: Any
) -> None:
    """A request that was put aside was given up."""
    cache = hooks.cache(manager.cache)
    if cache is not None and state.request_id not in manager._request_id_to_cpu_blocks:
        for kind, peer in peers.items():
            hooks.tell.free(
                list(peer), f"{cache.groups[kind].name}.cpu", state.request_id, None, None, None
            )
