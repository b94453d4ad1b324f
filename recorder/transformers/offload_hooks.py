"""Hooks on the manager that puts requests aside: to the host's memory, or to begin anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.transformers.cache_state import CacheState
from hkvtool.recorder.transformers.declare import declare_tier
from hkvtool.recorder.transformers.hooks import Hooks

Wrapper = Callable[..., Any]


def manager_made(hooks: Hooks, original: Any) -> Wrapper:
    """There may be memory of the host to put requests aside to."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            state = hooks.cache(self.cache)
            if state is not None and self._cpu_pool is not None:
                declare_tier(hooks, state, self._cpu_pool)
        except Exception as e:
            hooks.fail("offload", e)

    return wrapper


def offload(hooks: Hooks, original: Any) -> Wrapper:
    """Requests make room for others: they end to come back."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks.preempting = True
        try:
            return original(self, *args, **kwargs)
        finally:
            hooks.preempting = False

    return wrapper


def to_host(hooks: Hooks, original: Any) -> Wrapper:
    """What requests held is copied to the host. Their blocks are free already: whoever gets them
    writes behind the copy, on the same stream."""

    def wrapper(self: Any, victims: list[Any], tables: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, victims, tables, *args, **kwargs)
        try:
            state = hooks.cache(self.cache)
            if state is not None:
                for victim in victims:
                    req = victim.request_id
                    if req in done:
                        peers = self._request_id_to_cpu_blocks[req]
                        _stored(hooks, state, victim, tables[req], peers)
        except Exception as e:
            hooks.fail("store", e)
        return done

    return wrapper


def _stored(hooks: Hooks, state: CacheState, victim: Any, tables: Any, peers: Any) -> None:
    req, end = victim.request_id, int(victim.position_offset)
    for kind, peer in peers.items():
        group = state.groups[kind]
        if group.tier is None:
            continue
        hooks.tell.alloc(list(peer), group.tier, req)
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


def restore(hooks: Hooks, original: Any) -> Wrapper:
    """Requests that were put aside are in the batch: what they held comes back."""

    def wrapper(self: Any, requests_in_batch: list[Any], *args: Any, **kwargs: Any) -> Any:
        held = self._request_id_to_cpu_blocks
        back = [(f.state, dict(held[f.state.request_id])) for f in requests_in_batch
                if f.state.is_cpu_offloaded and f.state.request_id in held]  # fmt: skip
        result = original(self, requests_in_batch, *args, **kwargs)
        try:
            state = hooks.cache(self.cache)
            if state is not None:
                for request, peers in back:
                    _restored(hooks, state, request, peers)
        except Exception as e:
            hooks.fail("load", e)
        return result

    return wrapper


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
        hooks.tell.free(peer, f"{group.name}.cpu", req)


def drop(hooks: Hooks, original: Any) -> Wrapper:
    """A request that was put aside is given up."""

    def wrapper(self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        peers = dict(self._request_id_to_cpu_blocks.get(state.request_id, {}))
        result = original(self, state, *args, **kwargs)
        try:
            cache = hooks.cache(self.cache)
            if cache is not None and state.request_id not in self._request_id_to_cpu_blocks:
                for kind, peer in peers.items():
                    hooks.tell.free(list(peer), f"{cache.groups[kind].name}.cpu", state.request_id)
        except Exception as e:
            hooks.fail("drop", e)
        return result

    return wrapper
