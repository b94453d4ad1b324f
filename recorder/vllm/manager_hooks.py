"""Hooks on the cache manager: lookups, resumes, copies on write, blocks put aside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.vllm.caller import COPY_OWNER, DEFERRED_OWNER
from hkvtool.recorder.vllm.declare import declare
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.load_hooks import Promised
from hkvtool.recorder.vllm.lookup_state import Lookup


def manager_made(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A cache manager is there: its pool and groups can be declared."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            declare(hooks, self)
        except Exception as e:
            hooks.fail("declare", e)

    return wrapper


def look_up(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request asks what of it is cached. Told when the request takes it."""

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            hooks.waiting = Lookup(request.request_id, request.num_tokens)
        except Exception as e:
            hooks.fail("lookup", e)
        return original(self, request, *args, **kwargs)

    return wrapper


def group_hit(name: str) -> Callable[[Hooks, Any], Callable[..., Any]]:
    """What one group, or several of one kind, has by itself."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def wrapper(cls: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(cls, *args, **kwargs)
            if hooks.waiting is not None:
                try:
                    _found(hooks, hooks.waiting, result, args, kwargs)
                except Exception as e:
                    hooks.fail(name, e)
            return result

        return wrapper

    return make


def _found(
    hooks: Hooks, lookup: Lookup, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    numbers = kwargs["kv_cache_group_ids"] if "kv_cache_group_ids" in kwargs else args[2]
    pool = kwargs["block_pool"] if "block_pool" in kwargs else args[3]
    state = hooks.pool(pool)
    # Since 0.28 a pair with the exact length; before, the blocks of each group alone.
    paired = len(result) == 2 and isinstance(result[1], int)
    found = result[0] if paired else result
    for number, blocks in zip(numbers, found, strict=False):
        if number not in state.units:
            # A connector looks into a pool of its own, which no manager has declared.
            continue
        length = result[1] if paired else len(blocks) * state.units[number]
        ids = [b.block_id for b in blocks if not b.is_null]
        lookup.found(state.group(number), length, ids)


def adopt_found(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """The request has taken what was found: from here on it relies on it."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        lookup = hooks.waiting
        if lookup is not None and lookup.req == request_id:
            try:
                hooks.tell_lookup()
            except Exception as e:
                hooks.fail("resume", e)
        else:
            lookup = None
        result = original(self, request_id, *args, **kwargs)
        try:
            _tell_resume(hooks, self, request_id, lookup, args, kwargs)
        except Exception as e:
            hooks.fail("resume", e)
        return result

    return wrapper


def _tell_resume(
    hooks: Hooks, coordinator: Any, req: str, lookup: Lookup | None, args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:  # fmt: skip
    names = ("new_computed_blocks", "num_local_computed_tokens", "num_external_computed_tokens")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    managers = coordinator.single_type_managers
    state = hooks.pool(managers[0].block_pool)
    held = {
        m.kv_cache_group_id: m.req_to_blocks.get(req, ())
        for m in managers
        if m.kv_cache_group_id in state.reusable
    }
    local = given.get("num_local_computed_tokens")
    if local is None:
        # Before 0.28 the length follows from the blocks.
        local = max((len(b) * state.units[n] for n, b in held.items()), default=0)
    outside = given.get("num_external_computed_tokens") or 0
    at = local + outside
    if at == 0 and (lookup is None or lookup.matched == 0):
        return
    blocks = {
        state.group(number): [b.block_id for b in found if not b.is_null]
        for number, found in held.items()
    }
    event: dict[str, Any] = {"ev": "resume", "req": req, "at": at, "blocks": blocks if at else {}}
    if outside:
        hooks.loads.promised.append(Promised(req, local, at, managers))
        event["route"] = dict.fromkeys(blocks, "load")
    elif not at:
        event["route"] = dict.fromkeys(blocks, "recompute")
    hooks.tell.event(event)


def copy_on_write(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request gets a block of its own for a shared one. Both ends stay held for the copy; the
    new one takes its second reference without a function that could be wrapped."""

    def wrapper(
        self: Any, request_id: str, block_idx: int, source_block: Any, cow_block: Any,
        *args: Any, **kwargs: Any,
    ) -> Any:  # fmt: skip
        result = original(self, request_id, block_idx, source_block, cow_block, *args, **kwargs)
        try:
            state = hooks.pool(self.block_pool)
            ends = [source_block.block_id, cow_block.block_id]
            hooks.tell.touch(ends, None, None, state.name, COPY_OWNER)
            # The reference of the hit passes from the request to the copy.
            group = state.group(self.kv_cache_group_id)
            hooks.tell.free(ends[:1], group, request_id, None, None, None)
        except Exception as e:
            hooks.fail("copy on write", e)
        return result

    return wrapper


def put_aside(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A request that ends while its step is in flight: its blocks are held until the step ends."""

    def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = original(self, request, *args, **kwargs)
        try:
            state = hooks.pool(self.block_pool)
            ids = [b.block_id for b in blocks if not b.is_null]
            if ids:
                hooks.tell.touch(ids, None, None, state.name, DEFERRED_OWNER)
                hooks.tell.free(ids, None, request.request_id, state.name, None, None)
        except Exception as e:
            hooks.fail("deferred free", e)
        return blocks

    return wrapper
