"""Hooks on the prefix cache: it is made, asked, given sequences; and a request goes on from it."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang import declare
from hkvtool.recorder.sglang.cache_state import CacheState
from hkvtool.recorder.sglang.hooks import Hooks
from hkvtool.recorder.sglang.locks import extend
from hkvtool.recorder.sglang.paths import full_pages, hashes, window_pages
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


def matched(hooks: Hooks, seen: None, found: Any, cache: Any, params: Any, **kw: Any) -> None:
    """What the tree has of a sequence, in each group."""
    state = hooks.cache(cache)
    if state is None or state.full is None:
        return
    req = getattr(params.req, "rid", None)
    asked, whole, usable = len(params.key), found.full_kv_hit_length, found.device_prefix_len
    usable += found.host_hit_length
    key = (asked, whole, usable, found.last_device_node)
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
    if state.swa is not None:
        event["hit"][state.swa.name] = usable
        window = _window(state, cache.tree_core, found.last_device_node, found.device_prefix_len)
        if window:
            event["blocks"][state.swa.name] = window
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
    if state.swa is None:
        return
    runs, _ = window_pages(
        state.swa, core, state.components["swa"], node, len(pages) * state.full.page
    )
    page = state.swa.page
    fresh = False
    for start, run in runs:
        first = start // page
        fresh |= state.swa.publish(run, names[first : first + len(run)], first)
    if fresh and state.locks:
        extend(hooks, state, core)


def to_go_on(hooks: Hooks, batch: Any, *args: Any, **kw: Any) -> None:
    """Requests get slots for what they have to compute: from where they go on is decided."""
    hooks.batch = [(str(req.rid), int(req.extend_len)) for req in batch.reqs]
    state = hooks.cache(batch.tree_cache)
    if state is None:
        return
    for req in batch.reqs:
        # A later part of a long prompt goes on from what the request holds itself.
        if not req.kv.holds_kv and state.asked.pop(req.rid, None) is not None:
            resumed(hooks, state, str(req.rid), int(req.prefix_len), req.last_node)


def resumed(hooks: Hooks, state: CacheState, req: str, at: int, node: int) -> None:
    """A request goes on from what was found of it."""
    core = state.cache.tree_core
    state.live.add(req)
    hooks.tell.event({"ev": "admit", "req": req})
    blocks: dict[str, list[int]] = {}
    if at and state.full is not None:
        blocks[state.full.name] = full_pages(state, core, node)[: at // state.full.page]
    if at and state.swa is not None:
        blocks[state.swa.name] = _window(state, core, node, at)
    hooks.tell.event({
        "ev": "resume", "req": req, "at": at, "blocks": blocks,
        "route": dict.fromkeys(blocks, "reuse"),
    })  # fmt: skip


def went_on(hooks: Hooks, seen: None, result: Any, batch: Any, *args: Any, **kw: Any) -> None:
    """A batch is ready: what it writes is told here, before it runs. Slots that are taken from
    here on are for others."""
    taken, hooks.batch = hooks.batch, []
    state = hooks.cache(batch.tree_cache)
    if state is None or sum(count for _, count in taken) != len(batch.out_cache_loc):
        return
    at = 0
    for (name, count), start in zip(taken, batch.prefix_lens, strict=True):
        _written(state, name, batch.out_cache_loc[at : at + count], int(start))
        at += count


def to_decode(hooks: Hooks, batch: Any, *args: Any, **kw: Any) -> None:
    """Each request of a batch gets a slot for its next token."""
    hooks.batch = [(str(req.rid), 1) for req in batch.reqs]


def decoded(hooks: Hooks, seen: None, result: Any, batch: Any, *args: Any, **kw: Any) -> None:
    """A batch is ready in which each request writes its next token."""
    hooks.batch = []
    state, slots = hooks.cache(batch.tree_cache), batch.out_cache_loc
    if state is None or slots is None or len(slots) != len(batch.reqs):
        return
    for i, (req, length) in enumerate(zip(batch.reqs, batch.seq_lens_cpu.tolist(), strict=True)):
        _written(state, str(req.rid), slots[i : i + 1], int(length) - 1)


def _written(state: CacheState, req: str, slots: Any, start: int) -> None:
    """Tokens from `start` on go to these slots, and in the window to those that they lead to."""
    for pool in state.pools if len(slots) else ():
        places = slots if pool.kind == "full" else state.mapping[slots]
        state.hooks.tell.event({
            "ev": "write", "group": pool.name, "blocks": pool.covering(places),
            "tokens": [start, start + len(slots)], "req": req,
        })  # fmt: skip


def ended(hooks: Hooks, seen: None, result: None, cache: Any, req: Any, **kw: Any) -> None:
    """A request gave back what it held: it is over, or made room and comes back."""
    state, name = hooks.cache(cache), str(req.rid)
    if state is None or name not in state.live:
        return
    state.live.discard(name)
    how = "preempt"
    if req.finished():
        # An abort is one of the reasons to finish, and says so in its name.
        how = "abort" if "ABORT" in type(req.finished_reason).__name__ else "finish"
    hooks.tell.event({"ev": how, "req": name})
