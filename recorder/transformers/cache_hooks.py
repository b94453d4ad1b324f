"""Hooks on the cache and its allocators: who takes and gives back blocks, and what is hashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.transformers.cache_state import GroupState
from hkvtool.recorder.transformers.declare import declare
from hkvtool.recorder.transformers.hooks import Hooks

Wrapper = Callable[..., Any]

_WARM_UP = "__warmup_"


def cache_made(hooks: Hooks, original: Any) -> Wrapper:
    """A cache is there: its pools and groups can be declared."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            declare(hooks, self)
        except Exception as e:
            hooks.fail("declare", e)

    return wrapper


def allocate(hooks: Hooks, original: Any) -> Wrapper:
    """A request gets the blocks that its next tokens need."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        before = len(self.block_table.get(request_id, ()))
        result = original(self, request_id, *args, **kwargs)
        try:
            group = hooks.group(self)
            blocks = self.block_table[request_id][before:]
            if group is not None and (blocks or not before):
                if not request_id.startswith(_WARM_UP):
                    hooks.tell_lookup(request_id)
                    hooks.admit(request_id)
                if blocks:
                    hooks.tell.alloc(blocks, group.name, request_id)
        except Exception as e:
            hooks.fail("alloc", e)
        return result

    return wrapper


def free(hooks: Hooks, original: Any) -> Wrapper:
    """A request gives its blocks back; their hashes stay, unless they are not to be cached."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        blocks = list(self.block_table.get(request_id, ()))
        hashed = [b for b in blocks if b in self.ledger.block_to_hash]
        result = original(self, request_id, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None and blocks:
                hooks.tell.free(blocks, group.name, request_id)
                _withdrawn(hooks, group, hashed)
        except Exception as e:
            hooks.fail("free", e)
        return result

    return wrapper


def _withdrawn(hooks: Hooks, group: GroupState, hashed: list[int]) -> None:
    """Of these blocks, those that no hash leads to any more."""
    known = group.allocator.ledger.block_to_hash
    gone = [b for b in hashed if b not in known]
    if gone:
        hooks.tell.unpublish(group.name, gone, None, "invalidate")


def fork(hooks: Hooks, original: Any) -> Wrapper:
    """A child shares what its parent has complete, and gets blocks for the rest."""

    def wrapper(self: Any, source: str, dest: str, *args: Any, **kwargs: Any) -> Any:
        result = original(self, source, dest, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None:
                fresh = list(result[1])
                table = self.block_table[dest]
                shared = table[: len(table) - len(fresh)]
                hooks.admit(dest)
                if shared:
                    hooks.tell.touch(shared, group.name, dest)
                if fresh:
                    hooks.tell.alloc(fresh, group.name, dest)
        except Exception as e:
            hooks.fail("fork", e)
        return result

    return wrapper


def match(hooks: Hooks, original: Any) -> Wrapper:
    """What one group has of a prompt."""

    def wrapper(self: Any, prompt_ids: list[int], *args: Any, **kwargs: Any) -> Any:
        found = original(self, prompt_ids, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None:
                group.cache.found[group.name] = list(found)
        except Exception as e:
            hooks.fail("match", e)
        return found

    return wrapper


def acquire(hooks: Hooks, original: Any) -> Wrapper:
    """A request takes what was found of its prompt."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        before = len(self.block_table.get(request_id, ()))
        result = original(self, request_id, *args, **kwargs)
        try:
            group = hooks.group(self)
            blocks = self.block_table.get(request_id, [])[before:]
            if group is not None and blocks:
                group.cache.taken.append((group.name, blocks))
        except Exception as e:
            hooks.fail("acquire", e)
        return result

    return wrapper


def search(hooks: Hooks, original: Any) -> Wrapper:
    """The prefix match over all groups, and from where the request goes on."""

    def wrapper(
        self: Any, request_id: str, prompt_ids: list[int], *args: Any, **kwargs: Any
    ) -> Any:
        state = hooks.cache(self)
        if state is not None:
            state.found, state.taken = {}, []
        at = original(self, request_id, prompt_ids, *args, **kwargs)
        try:
            if state is not None and self.use_prefix_sharing:
                units = {g.name: g.unit for g in state.groups.values()}
                hit = {name: len(blocks) * units[name] for name, blocks in state.found.items()}
                hooks.asked[request_id] = (len(prompt_ids), dict(state.found), hit)
                if at > 0:
                    hooks.tell_lookup(request_id)
                    hooks.admit(request_id)
                    for name, blocks in state.taken:
                        hooks.tell.touch(blocks, name, request_id)
                    hooks.tell.event({
                        "ev": "resume", "req": request_id, "at": int(at),
                        "blocks": {g.name: g.table(request_id) for g in state.groups.values()},
                        "route": {name: "reuse" for name, _ in state.taken},
                    })  # fmt: skip
        except Exception as e:
            hooks.fail("search", e)
        return at

    return wrapper


def store_tokens(hooks: Hooks, original: Any) -> Wrapper:
    """Whether there is room for a request's next tokens."""

    def wrapper(self: Any, state: Any, request_len: int, *args: Any, **kwargs: Any) -> Any:
        fits = original(self, state, request_len, *args, **kwargs)
        try:
            if not fits and not (args and args[0]) and not kwargs.get("dry_run"):
                if hooks.cache(self) is not None:
                    hooks.refuse(state.request_id)
        except Exception as e:
            hooks.fail("refuse", e)
        return fits

    return wrapper


def complete(hooks: Hooks, original: Any) -> Wrapper:
    """Blocks are complete and hashed; one whose content is there already gives way to it."""

    def wrapper(self: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        before = list(self.block_table.get(request_id, ()))
        hashes = self.ledger.block_to_hash
        first = next((i for i, b in enumerate(before) if b not in hashes), len(before))
        result = original(self, request_id, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None:
                _completed(hooks, group, request_id, before, first)
        except Exception as e:
            hooks.fail("publish", e)
        return result

    return wrapper


def _completed(
    hooks: Hooks, group: GroupState, req: str, before: list[int], first: int
) -> None:  # fmt: skip
    """Tell the hashes of the blocks from the `first` on that had none."""
    table = group.allocator.block_table[req]
    known = group.allocator.ledger.block_to_hash
    run: list[int] = []
    for i in range(first, len(table) + 1):
        block = table[i] if i < len(table) else -1
        same = block >= 0 and block == before[i]
        if same and block in known:
            run.append(block)
            continue
        if run:
            start = (i - len(run)) * group.unit
            keys = [hooks.keyed(known[b]) for b in run]
            hooks.tell.publish(group.name, run, keys, [start, i * group.unit], req)
            run = []
        if block >= 0 and not same:
            hooks.tell.touch([block], group.name, req)
            hooks.tell.free([before[i]], group.name, req)
        elif block not in known:
            break


def copy(hooks: Hooks, original: Any) -> Wrapper:
    """Blocks are copied for a child."""

    def wrapper(self: Any, source: list[int], dest: list[int], *args: Any, **kwargs: Any) -> Any:
        result = original(self, source, dest, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None and source:
                hooks.tell.event(
                    {"ev": "copy", "group": group.name, "src": list(source), "dst": list(dest)}
                )
        except Exception as e:
            hooks.fail("copy", e)
        return result

    return wrapper


def evict(hooks: Hooks, original: Any) -> Wrapper:
    """Blocks that are only kept for their content lose their hashes."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        blocks = original(self, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None and blocks:
                hooks.tell.unpublish(group.name, list(blocks), None, "evict")
        except Exception as e:
            hooks.fail("evict", e)
        return blocks

    return wrapper


def reset_ledger(hooks: Hooks, original: Any) -> Wrapper:
    """Every hash of a group is gone."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            group = hooks.group(self)
            if group is not None:
                hooks.tell.event({"ev": "reset", "pool": group.name})
        except Exception as e:
            hooks.fail("reset", e)
        return result

    return wrapper
