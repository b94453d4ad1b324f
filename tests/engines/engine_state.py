"""The allocator state of a vLLM engine beside the one folded from what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.model.event import Event
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.state.fold import Fold
from hkvtool.state.requests import Requests


class Folded:
    """Folds events as they come; every one must be possible as written."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.requests = Requests(self.fold)
        self.events: list[dict[str, Any]] = []

    def __call__(self, data: dict[str, Any]) -> None:
        self.events.append(data)
        event = Event.of(len(self.events), data)
        problem = self.fold.apply(event)
        assert problem is None, (problem, data)
        self.requests.follow(event)


def differences(folded: Folded, hooks: Hooks, scheduler: Any) -> Iterator[str]:
    """Everything in which the two states differ; nothing where the trace is true."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    fold, st = folded.fold, folded.fold.st
    name = hooks.pool(pool).name
    mine = fold.declared.pools[name]
    slots = fold.slots_of(mine)
    for block in pool.blocks:
        if block.is_null:
            continue
        slot = slots.get(block.block_id)
        refs = 0 if slot is None else st.refs[slot]
        if refs != block.ref_cnt:
            yield f"block {block.block_id}: {block.ref_cnt} references, folded {refs}"
    yield from _free_order(fold, mine, slots, pool)
    yield from _hashes(fold, hooks, mine, slots, pool)
    yield from _tables(folded, hooks, scheduler, slots)


def _free_order(fold: Fold, mine: Any, slots: dict[int, int], pool: Any) -> Iterator[str]:
    """Blocks that were never named are free in the order of their ids, behind none of the others."""
    st = fold.st
    engine = [b.block_id for b in pool.free_block_queue.get_all_free_blocks()]
    named = [b for b in engine if b in slots]
    folded: list[int] = []
    slot = st.free_head[mine.id]
    while slot >= 0:
        folded.append(int(fold.block_of[slot]))
        slot = st.free_next[slot]
    if named != folded:
        yield f"free list {named}, folded {folded}"


def _hashes(fold: Fold, hooks: Hooks, mine: Any, slots: dict[int, int], pool: Any) -> Iterator[str]:
    st, state = fold.st, hooks.pool(pool)
    engine: set[tuple[int, str, int]] = set()
    for key, found in pool.cached_block_hash_to_block._cache.items():
        blocks = found if isinstance(found, dict) else {found.block_id: found}
        group = state.groups[int.from_bytes(key[-4:], "big")]
        for block in blocks:
            engine.add((hooks.keyed.hash(bytes(key[:-4])), group, block))
    told: set[tuple[int, str, int]] = set()
    tables = {g.table_id: g.table for g in fold.declared.groups.values()}
    for e in range(st.h[2]):
        if st.e_live[e] == 1 and fold.pool_of(st.e_slot[e]) is mine:
            name = fold.names.name("hash", st.e_hash[e])
            told.add((int(name), tables[st.e_table[e]], int(fold.block_of[st.e_slot[e]])))
    for extra in engine - told:
        yield f"hash {extra} is not in the folded map"
    for extra in told - engine:
        yield f"hash {extra} is only in the folded map"


def _tables(folded: Folded, hooks: Hooks, scheduler: Any, slots: dict[int, int]) -> Iterator[str]:
    fold = folded.fold
    for manager in scheduler.kv_cache_manager.coordinator.single_type_managers:
        state = hooks.pool(manager.block_pool)
        group = fold.declared.groups[state.groups[manager.kv_cache_group_id]]
        for req, blocks in manager.req_to_blocks.items():
            engine = [b.block_id for b in blocks if not b.is_null]
            known = folded.requests.by_name.get(req)
            table = (
                []
                if known is None
                else [int(fold.block_of[s]) for s in known.table(group.table_id)]
            )
            if engine != table:
                yield f"table of {req} in {group.name}: {engine}, folded {table}"
        for name, known in folded.requests.by_name.items():
            if (
                name not in manager.req_to_blocks
                and known.is_request
                and known.table(group.table_id)
            ):
                yield f"{name} has blocks in {group.name} only in the folded state"
