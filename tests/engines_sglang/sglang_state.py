"""The pages of an SGLang cache beside those folded from what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.sglang.cache_state import PoolState
from hkvtool.state import arrays as a
from hkvtool.state.fold import Fold
from hkvtool.state.requests import Requests
from hkvtool.store.derive_reads import derive_reads


class Folded:
    """Folds and guards events as they come; every one must be well formed and possible."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.requests = Requests(self.fold)
        self.guard = Guard(Mode.LOG)
        self.events: list[dict[str, Any]] = []

    def __call__(self, data: dict[str, Any]) -> None:
        data = dict(data)
        self.events.append(data)
        event = Event.of(len(self.events), data)
        assert event.problem is None, (event.problem, data)
        problem = self.fold.apply(event)
        assert problem is None, (problem, data)
        self.requests.follow(event)
        self.guard.see(data)

    def checked(self) -> Report:
        """What a check says of the events."""
        events = (Event.of(pos, data) for pos, data in enumerate(self.events, 1))
        return check(derive_reads(events))

    def pages(self, name: str) -> tuple[dict[int, int], set[int]]:
        """References of every page that was ever told of, and those that a hash leads to."""
        pool, st = self.fold.declared.pools[name], self.fold.st
        refs = {block: int(st.refs[slot]) for block, slot in self.fold.slots_of(pool).items()}
        live = {
            int(self.fold.block_of[st.e_slot[e]])
            for e in range(st.h[a.ENTRIES])
            if st.e_live[e] == 1 and self.fold.pool_of(st.e_slot[e]) is pool
        }
        return refs, live


def differences(
    folded: Folded, cache: Any, pools: list[PoolState], *, locks: bool = True
) -> Iterator[str]:
    """Everything in which engine and fold differ: which pages are free, which the tree has, how
    many of them are locked, and which a request holds. Not all `locks` of before a recording are
    known to reach as far as they do."""
    core = cache.tree_core
    for pool in pools:
        refs, live = folded.pages(pool.name)
        every = set(range(1, int(pool.allocator.size) // pool.page + 1))
        free = set(_free(pool))
        told = {p for p in every if not refs.get(p) and p not in live}
        if free != told:
            yield f"{pool.name}: free {sorted(free - told)}, folded {sorted(told - free)}"
        component = pool.cache.components[pool.kind]
        evictable = core.component_evictable_size(component)
        locked = core.component_protected_size(component)
        if len(live) * pool.page != evictable + locked:
            yield f"{pool.name}: {evictable + locked} tokens in the tree, folded {len(live)} pages"
        held = sum(1 for p in live if refs[p])
        if held * pool.page != locked and (locks or held * pool.page > locked):
            yield f"{pool.name}: {locked} tokens are locked, folded {held} pages"
        if pool.kind == "mamba" and set(core.all_mamba_values_flatten().tolist()) != live:
            yield f"{pool.name}: the tree has other states than {sorted(live)}"
        if pool.kind == "full":
            tree = {s // pool.page for s in core.all_values_flatten().tolist()}
            if tree != live:
                yield f"{pool.name}: the tree has {sorted(tree ^ live)}, folded otherwise"


def _free(pool: PoolState) -> list[int]:
    if pool.kind == "mamba":
        return [int(s) for s in pool.allocator.free_slots.tolist()]
    return [int(p) for p in pool.allocator.get_all_free_pages().tolist()]
