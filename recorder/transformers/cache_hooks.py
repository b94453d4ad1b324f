"""Hooks on the cache and its allocators: who takes and gives back blocks, and what is hashed.

Each is a pair: what is noted before the engine's function runs, and what is told after it.
"""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.transformers import declare
from hkvtool.recorder.transformers.cache_state import GroupState
from hkvtool.recorder.transformers.hooks import WARM_UP, Hooks


def cache_made(hooks: Hooks, seen: None, result: None, cache: Any, *args: Any, **kw: Any) -> None:
    """A cache is there: its pools and groups can be declared."""
    declare.declare(hooks, cache)


def table_length(hooks: Hooks, allocator: Any, request_id: str, *args: Any, **kw: Any) -> int:
    """How many blocks the request has."""
    return len(allocator.block_table.get(request_id, ()))


def allocated(
    hooks: Hooks, seen: int, result: None, allocator: Any, request_id: str, *args: Any, **kw: Any
) -> None:
    """A request got the blocks that its next tokens need."""
    group = hooks.group(allocator)
    blocks = allocator.block_table[request_id][seen:]
    if group is None or not (blocks or not seen):
        return
    if not request_id.startswith(WARM_UP):
        hooks.tell_lookup(request_id)
        hooks.admit(request_id)
    if blocks:
        hooks.tell.alloc(blocks, group.name, request_id, None)


def to_free(
    hooks: Hooks, allocator: Any, request_id: str, *args: Any, **kw: Any
) -> tuple[list[int], list[int]]:
    """The request's blocks, and those of them that have a hash."""
    blocks = list(allocator.block_table.get(request_id, ()))
    return blocks, [b for b in blocks if b in allocator.ledger.block_to_hash]


def freed(
    hooks: Hooks, seen: tuple[list[int], list[int]], result: None, allocator: Any,
    request_id: str, *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """A request gave its blocks back; their hashes stay, unless they are not to be cached."""
    blocks, hashed = seen
    group = hooks.group(allocator)
    if group is None or not blocks:
        return
    hooks.tell.free(blocks, group.name, request_id, None, None, None)
    gone = [b for b in hashed if b not in allocator.ledger.block_to_hash]
    if gone:
        hooks.tell.unpublish(group.name, gone, None, "invalidate")


def forked(
    hooks: Hooks, seen: None, result: Any, allocator: Any, source: str, dest: str,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """A child shares what its parent has complete, and got blocks for the rest."""
    group = hooks.group(allocator)
    if group is None:
        return
    fresh = list(result[1])
    table = allocator.block_table[dest]
    shared = table[: len(table) - len(fresh)]
    hooks.admit(dest)
    if shared:
        hooks.tell.touch(shared, group.name, dest, None, None)
    if fresh:
        hooks.tell.alloc(fresh, group.name, dest, None)


def matched(hooks: Hooks, seen: None, found: Any, allocator: Any, *args: Any, **kw: Any) -> None:
    """What one group has of a prompt."""
    group = hooks.group(allocator)
    if group is not None:
        group.cache.found[group.name] = list(found)


def acquired(
    hooks: Hooks, seen: int, result: None, allocator: Any, request_id: str, *args: Any, **kw: Any
) -> None:
    """A request took what was found of its prompt."""
    group = hooks.group(allocator)
    blocks = allocator.block_table.get(request_id, [])[seen:]
    if group is not None and blocks:
        group.cache.taken.append((group.name, blocks))


def to_search(hooks: Hooks, cache: Any, *args: Any, **kw: Any) -> None:
    """A prefix search begins."""
    state = hooks.cache(cache)
    if state is not None:
        state.found, state.taken = {}, []


def searched(
    hooks: Hooks, seen: None, at: int, cache: Any, request_id: str, prompt_ids: list[int],
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """The prefix match over all groups, and from where the request goes on."""
    state = hooks.cache(cache)
    if state is None or not cache.use_prefix_sharing:
        return
    units = {g.name: g.unit for g in state.groups.values()}
    hit = {name: len(blocks) * units[name] for name, blocks in state.found.items()}
    hooks.asked[request_id] = (len(prompt_ids), dict(state.found), hit)
    if at <= 0:
        return
    hooks.tell_lookup(request_id)
    hooks.admit(request_id)
    for name, blocks in state.taken:
        hooks.tell.touch(blocks, name, request_id, None, None)
    hooks.tell.event({
        "ev": "resume", "req": request_id, "at": int(at),
        "blocks": {g.name: g.table(request_id) for g in state.groups.values()},
        "route": {name: "reuse" for name, _ in state.taken},
    })  # fmt: skip


def asked_for_room(
    hooks: Hooks, seen: None, fits: bool, cache: Any, state: Any, request_len: int,
    dry_run: bool = False, **kw: Any,
) -> None:  # fmt: skip
    """There is no room for a request's next tokens."""
    if not fits and not dry_run and hooks.cache(cache) is not None:
        hooks.refuse(state.request_id)


def to_complete(
    hooks: Hooks, allocator: Any, request_id: str, *args: Any, **kw: Any
) -> tuple[list[int], int]:
    """The request's table, and which of its blocks is the first without a hash."""
    before = list(allocator.block_table.get(request_id, ()))
    hashes = allocator.ledger.block_to_hash
    return before, next((i for i, b in enumerate(before) if b not in hashes), len(before))


def completed(
    hooks: Hooks, seen: tuple[list[int], int], result: None, allocator: Any, request_id: str,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """Blocks are complete and hashed; one whose content was there already gave way to it."""
    group = hooks.group(allocator)
    if group is None:
        return
    before, first = seen
    table = allocator.block_table[request_id]
    known = allocator.ledger.block_to_hash
    run: list[int] = []
    for i in range(first, len(table) + 1):
        block = table[i] if i < len(table) else -1
        same = block >= 0 and block == before[i]
        if same and block in known:
            run.append(block)
            continue
        _publish(hooks, group, request_id, run, i)
        run = []
        if block >= 0 and not same:
            hooks.tell.touch([block], group.name, request_id, None, None)
            hooks.tell.free([before[i]], group.name, request_id, None, None, None)
        elif block not in known:
            break


def _publish(hooks: Hooks, group: GroupState, req: str, run: list[int], end: int) -> None:
    """Tell the hashes of blocks that follow each other, up to place `end` of the table."""
    if run:
        hashes = group.allocator.ledger.block_to_hash
        tokens = [(end - len(run)) * group.unit, end * group.unit]
        hooks.tell.publish(group.name, run, [hooks.keyed(hashes[b]) for b in run], tokens, req)


def copied(
    hooks: Hooks, seen: None, result: None, allocator: Any, source: Any, dest: Any,
    *args: Any, **kw: Any,
) -> None:  # fmt: skip
    """Blocks were copied for a child."""
    group = hooks.group(allocator)
    if group is not None and source:
        hooks.tell.event(
            {"ev": "copy", "group": group.name, "src": list(source), "dst": list(dest)}
        )


def evicted(hooks: Hooks, seen: None, blocks: Any, ledger: Any, *args: Any, **kw: Any) -> None:
    """Blocks that were only kept for their content lost their hashes."""
    group = hooks.group(ledger)
    if group is not None and blocks:
        hooks.tell.unpublish(group.name, list(blocks), None, "evict")


def ledger_reset(hooks: Hooks, seen: None, result: None, ledger: Any) -> None:
    """Every hash of a group is gone."""
    group = hooks.group(ledger)
    if group is not None:
        hooks.tell.event({"ev": "reset", "pool": group.name})
