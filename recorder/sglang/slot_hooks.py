"""Hooks on the slot allocators: pages that are handed out, and pages that are there again."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.hooks import Hooks


def allocated(hooks: Hooks, seen: None, slots: Any, allocator: Any, *args: Any, **kw: Any) -> None:
    """Slots were handed out; a page is new where its first slot is among them."""
    pool = hooks.pool(allocator)
    if pool is None or slots is None:
        return
    if hooks.batch and sum(count for _, count in hooks.batch) == len(slots):
        at = 0
        for req, count in hooks.batch:
            pool.take(pool.pages(slots[at : at + count]), req)
            at += count
    else:
        pool.take(pool.pages(slots), None)


def released(hooks: Hooks, seen: None, result: None, allocator: Any, *pages: Any) -> None:
    """Pages are there to be handed out again."""
    pool = hooks.pool(allocator)
    if pool is not None:
        pool.give_back([int(p) for ids in pages for p in ids.tolist()])


def to_free(hooks: Hooks, allocator: Any, *args: Any, **kw: Any) -> bool:
    """Whether slots that are given back are there at once, and not when a group of them ends."""
    return allocator.free_group is None


def freed(hooks: Hooks, now: bool, result: None, allocator: Any, free_index: Any) -> None:
    """Single slots were given back."""
    pool = hooks.pool(allocator)
    if pool is not None and now:
        pool.give_back([int(s) for s in free_index.tolist()])


def cleared(hooks: Hooks, seen: None, result: None, allocator: Any, *args: Any, **kw: Any) -> None:
    """All slots are there again."""
    pool = hooks.pool(allocator)
    if pool is not None:
        pool.clear()
