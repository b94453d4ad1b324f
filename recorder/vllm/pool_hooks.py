"""Hooks on the block pool: what is taken, given back, touched, published and evicted."""

from __future__ import annotations

from collections.abc import Callable
from sys import _getframe
from typing import Any

from hkvtool.recorder.native import compiled
from hkvtool.recorder.patches import enclosed, followed, preceded
from hkvtool.recorder.vllm.caller import COPY_OWNER, KINDS, Holder, holder
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.pool_state import PoolState

Make = Callable[[Hooks, Any], Callable[..., Any]]
"""Given the hooks and the engine's function, the wrapper around it."""


def common(what: str, name: str, hooks: Hooks, plain: Callable[..., Any]) -> Callable[..., Any]:
    """What the hook `name` does, in C for the common case where that was built (`_hooks.c`)."""
    if compiled is None:
        return plain
    made: Callable[..., Any] = compiled.make_teller(
        what, name, hooks, plain, KINDS, _getframe, hooks.keyed.known
    )
    return made


def get_new_blocks(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`alloc`, behind the hashes that went because the blocks were taken."""

    def then(blocks: Any, self: Any) -> None:
        try:
            state = hooks.pool(self)
            if hooks.waiting is not None:
                hooks.tell_lookup()
            if state.removed:
                state.tell_removed("evict")
            _tell_alloc(hooks, state, [b.block_id for b in blocks], holder(_getframe(2)))
        except Exception as e:
            hooks.fail("alloc", e)

    return followed(original, common("handed_out", "alloc", hooks, then), "self")


def _tell_alloc(hooks: Hooks, state: PoolState, ids: list[int], who: Holder) -> None:
    tell = hooks.tell
    req, number, owner, _ = who
    if number is not None:
        tell.alloc(ids, state.group(number), req, None)
        return
    # An `alloc` is for a request; another holder takes the reference over.
    tell.alloc(ids, None, None, state.name)
    tell.touch(ids, None, None, state.name, owner)
    tell.free(ids, None, None, state.name, None, None)


def free_blocks(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`free` in the engine's order, behind the `slide` of a window that left the blocks."""

    def wrapper(self: Any, ordered_blocks: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = list(ordered_blocks)
        outer, hooks.front = hooks.front, []
        try:
            result = original(self, blocks, *args, **kwargs)
            tell(self, blocks)
        finally:
            hooks.front = outer
        return result

    def plain(self: Any, blocks: list[Any]) -> None:
        try:
            _tell_free(hooks, self, blocks, holder(_getframe(2)))
        except Exception as e:
            hooks.fail("free", e)

    tell = common("given_back", "free", hooks, plain)
    return wrapper


def _tell_free(hooks: Hooks, pool: Any, blocks: list[Any], who: Holder) -> None:
    state = hooks.pool(pool)
    if state.removed:
        state.tell_removed("invalidate")
    ids = [b.block_id for b in blocks if not b.is_null and getattr(b, "pool", pool) is pool]
    if not ids:
        return
    if who.slides and who.number in state.sliding:
        # Freed from the far end of what the window left; a table is told in token order.
        hooks.tell.slide(state.groups[who.number], who.req, ids[::-1])
    _give_back(hooks, state, ids, who, hooks.front or None)


def _give_back(
    hooks: Hooks, state: PoolState, ids: list[int], who: Holder, front: list[int] | None
) -> None:
    if who.number is not None:
        hooks.tell.free(ids, state.group(who.number), who.req, None, None, front)
    else:
        hooks.tell.free(ids, None, None, state.name, who.owner, front)


def prepend_n(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """Which blocks go to the head of the free list."""

    def first(blocks: Any) -> None:
        if blocks:
            try:
                hooks.front = [b.block_id for b in blocks]
            except Exception as e:
                hooks.fail("free order", e)

    return preceded(original, common("ahead", "free order", hooks, first), "blocks")


def touch(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`touch`, of a request that hits or of somebody who pins."""

    def wrapper(self: Any, blocks: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, blocks, *args, **kwargs)
        if blocks:
            try:
                _tell_touch(hooks, self, blocks, holder(_getframe(1)))
            except Exception as e:
                hooks.fail("touch", e)
        return result

    return wrapper


def _tell_touch(hooks: Hooks, pool: Any, blocks: Any, who: Holder) -> None:
    state = hooks.pool(pool)
    if hooks.waiting is not None:
        hooks.tell_lookup()
    if state.removed:
        state.tell_removed("invalidate")
    if blocks and isinstance(blocks[0], (list, tuple)):
        # Releases before 0.14 hand over a list for each group.
        groups = list(blocks)
    else:
        groups = [blocks]
    for number, group in enumerate(groups):
        ids = [b.block_id for b in group if not b.is_null]
        if ids:
            mine = who
            if len(groups) > 1 and who.req is not None:
                mine = who._replace(number=number)
            if mine.number is not None:
                hooks.tell.touch(ids, state.group(mine.number), mine.req, None, None)
            else:
                hooks.tell.touch(ids, None, None, state.name, mine.owner)


def unpin_blocks(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """`free` of a pin; such blocks go behind all others, whatever they hold."""

    def wrapper(self: Any, blocks: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = list(blocks)
        result = original(self, blocks, *args, **kwargs)
        try:
            state = hooks.pool(self)
            ids = [b.block_id for b in blocks]
            if ids:
                _give_back(hooks, state, ids, holder(_getframe(1)), None)
        except Exception as e:
            hooks.fail("unpin", e)
        return result

    return wrapper


def remove_hashes(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """Hashes of one block that are gone: the single way out of the hash map, reset apart."""

    def then(removed: Any, self: Any, block: Any) -> None:
        try:
            number, gone = block.block_id, hooks.pool(self).removed
            for key in removed:
                gone.append((number, bytes(key)))
        except Exception as e:
            hooks.fail("unpublish", e)

    return followed(original, common("gone", "unpublish", hooks, then), "self", "block")


def insert_hash(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A hash that now leads to a block: the single way into the hash map."""

    def first(self: Any, key: Any, block: Any, num_tokens: Any) -> PoolState | None:
        try:
            state = hooks.pool(self)
            # Where the blocks of a whole call are compared, they are told by that.
            if state.comparing or not (
                block.block_hash is None
                or not (
                    block.block_hash == key
                    or self.cached_block_hash_to_block.contain(key, block.block_id)
                )
            ):
                return None
            return state
        except Exception as e:
            hooks.fail("publish", e)
            return None

    def last(state: PoolState, self: Any, key: Any, block: Any, num_tokens: Any) -> None:
        try:
            state.inserted.append((block.block_id, bytes(key), num_tokens))
            if not state.gathering:
                _tell_hashes(state, "promote", None)
        except Exception as e:
            hooks.fail("publish", e)

    return enclosed(
        original, common("inserting", "publish", hooks, first), last, "self",
        "block_hash_with_group_id", "block", "num_tokens",
    )  # fmt: skip


def gather_hashes(name: str) -> Make:
    """Tell the hashes of one call together, with the request that publishes them."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def wrapper(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                state = hooks.pool(self)
                state.gathering = True
            except Exception as e:
                hooks.fail(name, e)
                return original(self, request, *args, **kwargs)
            try:
                return original(self, request, *args, **kwargs)
            finally:
                state.gathering = False
                try:
                    _tell_hashes(state, "promote", getattr(request, "request_id", None))
                except Exception as e:
                    hooks.fail(name, e)

        return wrapper

    return make


def _tell_hashes(state: PoolState, reason: str, req: str | None) -> None:
    if state.removed:
        state.tell_removed(reason)
    if state.inserted:
        state.tell_inserted(req)


def move_hashes(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """Hashes move to a copy: a running request goes on in the source, the copy is cached.

    Both ends stay held until the copy has been handed out. The source gets its reference behind
    this call, without a function that could be wrapped.
    """

    def wrapper(self: Any, src_block: Any, dst_block: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            state = hooks.pool(self)
            state.gathering = True
        except Exception as e:
            hooks.fail("move", e)
            return original(self, src_block, dst_block, *args, **kwargs)
        try:
            result = original(self, src_block, dst_block, *args, **kwargs)
        finally:
            state.gathering = False
        try:
            _tell_hashes(state, "promote", None)
            who = holder(_getframe(1))
            if who.req is not None:
                ends = [src_block.block_id, dst_block.block_id]
                hooks.tell.touch(ends, None, None, state.name, COPY_OWNER)
                _give_back(hooks, state, ends[1:], who, None)
        except Exception as e:
            hooks.fail("move", e)
        return result

    return wrapper


def reset(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """Every hash of the pool gone; a refusal changes nothing and is not told."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        if done:
            try:
                state = hooks.pool(self)
                state.removed.clear()
                hooks.tell.event({"ev": "reset", "pool": state.name})
            except Exception as e:
                hooks.fail("reset", e)
        return done

    return wrapper


def evict(hooks: Hooks, original: Any) -> Callable[..., Any]:
    """A block's hash is gone, in releases where one block has one hash."""

    def wrapper(self: Any, block: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            key = key_of(block.block_hash)
        except Exception as e:
            key = None
            hooks.fail("evict", e)
        gone = original(self, block, *args, **kwargs)
        if gone and key is not None:
            try:
                hooks.pool(self).removed.append((block.block_id, key))
            except Exception as e:
                hooks.fail("evict", e)
        return gone

    return wrapper


def compare_hashes(name: str) -> Make:
    """What a call publishes: the hashes of its blocks behind it and before it are compared, which
    takes less than to follow them one by one, where there is a function to follow them by."""

    def make(hooks: Hooks, original: Any) -> Callable[..., Any]:
        def first(
            self: Any, request: Any, blocks: Any, cached: int, full: int, size: int
        ) -> tuple[PoolState, Any, list[Any]] | None:
            try:
                state = hooks.pool(self)
                if state.comparing:
                    # The same function under another choke point, for what an early release lacks.
                    return None
                part = blocks[cached:full]
                before = [b.block_hash for b in part]
                state.comparing = True
                return state, part, before
            except Exception as e:
                hooks.fail(name, e)
                return None

        def last(
            found: tuple[PoolState, Any, list[Any]], self: Any, request: Any, blocks: Any,
            cached: int, full: int, size: int,
        ) -> None:  # fmt: skip
            try:
                state, part, before = found
                state.comparing = False
                end = cached * size
                for block, old in zip(part, before, strict=True):
                    end += size
                    new = block.block_hash
                    if new is old or block.is_null:
                        continue
                    key = key_of(new)
                    if key is not None:
                        state.inserted.append((block.block_id, key, end))
                _tell_hashes(state, "promote", request.request_id)
            except Exception as e:
                hooks.fail(name, e)

        return enclosed(
            original, common("filling", name, hooks, first), common("filled", name, hooks, last),
            "self", "request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size",
        )  # fmt: skip

    return make


def key_of(found: Any) -> bytes | None:
    """A block's hash with its group behind it, as bytes, in whatever form a release keeps it."""
    if found is None:
        return None
    if isinstance(found, bytes):
        return bytes(found)
    digest = getattr(found, "block_hash", found)
    number = int(getattr(found, "group_id", 0))
    value = getattr(digest, "hash_value", digest)
    if isinstance(value, int):
        value = (value & (1 << 64) - 1).to_bytes(8, "big")
    return bytes(value) + number.to_bytes(4, "big")
