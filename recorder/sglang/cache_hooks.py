"""Hooks on the prefix cache: it is made, asked, given sequences; and a request goes on from it."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang import declare
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.locks import extend, state_kept
from hkvtool.recorder.sglang.paths import full_pages, hashes, state_of, window_pages
from hkvtool.recorder.sglang.tree_core import BACKEND, registry


def to_make(hooks: Hooks, cache: Any, params: Any, *args: Any, **kw: Any) -> tuple[Any, Any]:
    """Have the engine take our core, which makes the one it would have taken."""
    before = params.tree_core_backend
    hooks.chosen = registry().select_tree_core_backend(params)
    params.tree_core_backend = BACKEND
    return params, before


def made(hooks: Hooks, seen: tuple[Any, Any], result: None, cache: Any, *a: Any, **kw: Any) -> None:
    """A cache is there: its pools and groups can be declared."""
    params, before = seen
    params.tree_core_backend = before
    cache._tree_core_backend = hooks.chosen
    declare.declare(hooks, cache)


def to_match(hooks: Hooks, cache: Any, params: Any, **kw: Any) -> None:
    """A request may get a slot for the state that is found of it."""
    state = hooks.cache(cache)
    if state is not None and state.states is not None and params.req is not None:
        state.states.takers.append(str(params.req.rid))


def matched(hooks: Hooks, seen: None, found: Any, cache: Any, params: Any, **kw: Any) -> None:
    """What the tree has of a sequence, in each group."""
    state = hooks.cache(cache)
    if state is not None and state.states is not None:
        state.states.takers.clear()
    if state is None or state.full is None:
        return
    req = getattr(params.req, "rid", None)
    asked, whole, usable = len(params.key), found.full_kv_hit_length, found.device_prefix_len
    usable += found.host_hit_length
    stored = {} if state.tier is None else state.tier.stored(req)
    key = (asked, whole, usable, found.last_device_node, *stored.values())
    if req is None:
        hooks.lookups += 1
        req = f"lookup-{hooks.lookups}"
    elif state.asked.get(req) == key:
        # A request that waits is looked up again and again.
        return
    else:
        state.asked[req] = key
    event: dict[str, Any] = {
        "ev": "lookup", "req": str(req), "tokens": asked,
        "hit": {state.full.name: max(whole, usable)}, "blocks": {},
    }  # fmt: skip
    blocks = _found(state, cache.tree_core, params, found)
    if blocks:
        event["blocks"][state.full.name] = blocks
    if state.tier is not None and found.host_hit_length:
        # Of these some are only on the host.
        event["hit"].update({p.name: usable for p in state.tier.pools.values()})
    event["hit"].update(stored)
    if state.swa is not None:
        event["hit"][state.swa.name] = usable
        window = _window(state, cache.tree_core, found.last_device_node, found.device_prefix_len)
        if window:
            event["blocks"][state.swa.name] = window
    if state.states is not None:
        event["hit"][state.states.name] = usable
        brought = state_of(state, cache.tree_core, found.last_device_node)
        if brought and found.device_prefix_len:
            event["blocks"][state.states.name] = brought
    hooks.tell.event(event)


def _found(state: CacheState, core: Any, params: Any, found: Any) -> list[int]:
    """The full-attention pages of a match, those too that no window lets anybody go on from."""
    assert state.full is not None
    node, tokens = found.last_device_node, found.device_prefix_len
    if found.full_kv_hit_length > tokens:
        tokens, node, _ = core.match_full_device_prefix(params.key)
    if not tokens:
        return []
    return full_pages(state, core, node)[: tokens // state.full.page]


def _window(state: CacheState, core: Any, node: int, at: int) -> list[int]:
    """The window's pages before the token from which a request can go on."""
    assert state.swa is not None and state.window is not None
    if not at:
        return []
    page = state.swa.page
    first = max(0, at - state.window + 1) // page
    runs, _ = window_pages(state.swa, core, state.components["swa"], node, state.window)
    pages: list[int] = []
    for start, run in runs:
        pages += run[max(0, first - start // page) :]
    return pages


def inserted(hooks: Hooks, seen: None, result: Any, cache: Any, params: Any, **kw: Any) -> None:
    """A sequence is in the tree: of its pages, those that were not there before are published,
    be it that they are new, took another's place or filled a window again."""
    state = hooks.cache(cache)
    node = result.last_device_node
    if state is None or state.full is None or node is None:
        return
    core = cache.tree_core
    pages = full_pages(state, core, node)
    names = [hooks.keyed(h) for h in hashes(params.key, state.full.page, len(pages))]
    state.full.publish(pages, names, 0)
    if state.swa is not None:
        _inserted_window(hooks, state, node, pages, names)
    if state.states is not None and names:
        for slot in state_of(state, core, node):
            if state.states.keep(slot, names[-1], len(names) * state.page):
                state_kept(hooks, state, node, slot)
    if state.tier is not None:
        state.tier.settle()


def _inserted_window(
    hooks: Hooks, state: CacheState, node: int, pages: list[int], names: list[str]
) -> None:
    core = state.cache.tree_core
    assert state.swa is not None
    runs, _ = window_pages(state.swa, core, state.components["swa"], node, len(pages) * state.page)
    page = state.swa.page
    fresh = False
    for start, run in runs:
        first = start // page
        fresh |= state.swa.publish(run, names[first : first + len(run)], first)
    if fresh and state.locks:
        extend(hooks, state, core)


def resumed(hooks: Hooks, state: CacheState, req: str, at: int, node: int) -> None:
    """A request goes on from what was found of it."""
    core = state.cache.tree_core
    state.live.add(req)
    state.refused.discard(req)
    if state.tier is not None:
        state.tier.admitted(req)
    hooks.tell.event({"ev": "admit", "req": req})
    blocks: dict[str, list[int]] = {}
    if at and state.full is not None:
        blocks[state.full.name] = full_pages(state, core, node)[: at // state.full.page]
    if at and state.swa is not None:
        blocks[state.swa.name] = _window(state, core, node, at)
    if at and state.states is not None:
        blocks[state.states.name] = state_of(state, core, node)
    route = dict.fromkeys(blocks, "reuse")
    if state.tier is not None:
        for pool in state.pools:
            if state.tier.loading(pool, blocks.get(pool.name, [])):
                route[pool.name] = "load"
    hooks.tell.event({"ev": "resume", "req": req, "at": at, "blocks": blocks, "route": route})


def ended(hooks: Hooks, seen: None, result: None, cache: Any, req: Any, **kw: Any) -> None:
    """A request gave back what it held: it is over, or made room and comes back."""
    state, name = hooks.cache(cache), str(req.rid)
    if state is None or name not in state.live:
        return
    state.live.discard(name)
    state.steps.forget(name)
    how = "preempt"
    if req.finished():
        # An abort is one of the reasons to finish, and says so in its name.
        how = "abort" if "ABORT" in type(req.finished_reason).__name__ else "finish"
    hooks.tell.event({"ev": how, "req": name})
