"""Hooks on the backend, its allocator and the memory objects: pairs of what is noted or told
before the engine's function, and what is told after it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hkvtool_lmcache.hooks import Hooks


def none(hooks: Hooks, *args: Any, **kwargs: Any) -> None:
    """There is nothing to tell after."""


def made(hooks: Hooks, seen: None, result: None, backend: Any, *args: Any, **kw: Any) -> None:
    """A backend is there."""
    hooks.adopt(backend)


def allocated(hooks: Hooks, seen: None, obj: Any, *args: Any, **kw: Any) -> None:
    """A chunk was taken, or there was no room."""
    _taken(hooks, [] if obj is None else [obj])


def batch_allocated(hooks: Hooks, seen: None, objs: Any, *args: Any, **kw: Any) -> None:
    """Chunks were taken, or there was no room for all of them."""
    _taken(hooks, objs or [])


def _taken(hooks: Hooks, objs: Iterable[Any]) -> None:
    for obj in objs:
        known = hooks.of(obj) if hasattr(obj, "parent_allocator") else None
        if known is not None:
            hooks.tell.alloc([known.block(obj)], known.name, None, None)


def touched(hooks: Hooks, seen: None, result: None, obj: Any) -> None:
    """One more reference."""
    known = hooks.of(obj)
    if known is not None:
        hooks.tell.touch([known.block(obj)], known.name, None, None, None)


def to_free(hooks: Hooks, obj: Any) -> None:
    """One reference less."""
    known = hooks.of(obj)
    if known is not None:
        hooks.tell.free([known.block(obj)], known.name, None, None, None, None)


def to_release(hooks: Hooks, allocator: Any, memory_obj: Any, *args: Any, **kw: Any) -> None:
    """A chunk goes back to the buffer. Most have no reference left by now; one that the garbage
    collector found, or that a batch was evicted with, gives up here what it still has."""
    known = hooks.of(memory_obj) if hasattr(memory_obj, "parent_allocator") else None
    if known is None or not memory_obj.is_valid():
        return
    block = known.block(memory_obj)
    for _ in range(int(memory_obj.meta.pin_count)):
        hooks.tell.event({"ev": "unpin", "pool": known.name, "blocks": [block]})
    for _ in range(int(memory_obj.meta.ref_count)):
        hooks.tell.free([block], known.name, None, None, None, None)


def to_release_batch(hooks: Hooks, allocator: Any, memory_objs: Any, *args: Any, **kw: Any) -> None:
    """The same of several, whose keys were dropped without a word."""
    for obj in memory_objs:
        known = hooks.of(obj) if hasattr(obj, "parent_allocator") else None
        if known is not None and obj.is_valid() and obj.meta.ref_count > 0:
            hooks.tell.unpublish(known.name, [known.block(obj)], None, "evict")
        to_release(hooks, allocator, obj)


def pinned(hooks: Hooks, seen: None, result: Any, obj: Any) -> None:
    """A lookup relies on the chunk until it was read."""
    known = hooks.of(obj)
    if known is not None:
        hooks.tell.event({"ev": "pin", "pool": known.name, "blocks": [known.block(obj)]})


def to_unpin(hooks: Hooks, obj: Any) -> None:
    """It relies on it no more."""
    known = hooks.of(obj)
    if known is not None:
        hooks.tell.event({"ev": "unpin", "pool": known.name, "blocks": [known.block(obj)]})


def known(hooks: Hooks, backend: Any, key: Any, memory_obj: Any, *args: Any, **kw: Any) -> bool:
    """Whether a hash leads to something already: then it goes on to lead there."""
    return key in backend.hot_cache


def put(
    hooks: Hooks, seen: bool, result: Any, backend: Any, key: Any, memory_obj: Any,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """A chunk can be found by its hash from here on."""
    known = hooks.of_backend(backend)
    if known is not None and not seen and backend.hot_cache.get(key) is memory_obj:
        hashes = [hooks.keyed(key.chunk_hash)]
        hooks.tell.publish(known.name, [known.block(memory_obj)], hashes, None, None)


def to_remove(
    hooks: Hooks, backend: Any, key: Any, force: bool = True, *args: Any, **kw: Any
) -> None:
    """A chunk is about to be found no more."""
    known = hooks.of_backend(backend)
    obj = None if known is None else backend.hot_cache.get(key)
    if known is not None and obj is not None:
        reason = "invalidate" if force else "evict"
        hooks.tell.unpublish(known.name, [known.block(obj)], None, reason)
