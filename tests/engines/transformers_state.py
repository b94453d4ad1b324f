"""The state of a paged cache beside the one folded from what was recorded of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.recorder.transformers.hooks import STATE
from hkvtool.state import arrays as a
from hkvtool.state.fold import Fold
from hkvtool.state.requests import Requests
from hkvtool.store.derive_reads import derive_reads


class Folded:
    """Folds events as they come; every one must be well formed and possible."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.requests = Requests(self.fold)
        self.events: list[dict[str, Any]] = []

    def checked(self) -> Report:
        """What a check says of the events, with the reads that ingest derives."""
        events = (Event.of(pos, data) for pos, data in enumerate(self.events, 1))
        return check(derive_reads(events))

    def __call__(self, data: dict[str, Any]) -> None:
        self.events.append(data)
        event = Event.of(len(self.events), data)
        assert event.problem is None, (event.problem, data)
        problem = self.fold.apply(event)
        assert problem is None, (problem, data)
        self.requests.follow(event)


def differences(folded: Folded, cache: Any, *, tables: bool = True) -> Iterator[str]:
    """Everything in which engine and fold differ: references, who is free, hashes, and `tables`,
    which a recording that begins late does not have."""
    fold, st = folded.fold, folded.fold.st
    state = getattr(cache, STATE)
    for kind, allocator in cache.cache_allocators.items():
        name = state.groups[kind].name
        pool, group = fold.declared.pools[name], fold.declared.groups[name]
        slots = fold.slots_of(pool)
        refs = Counter(b for table in allocator.block_table.values() for b in table)
        for block in sorted({*slots, *refs}):
            slot = slots.get(block)
            told = 0 if slot is None else int(st.refs[slot])
            if told != refs[block]:
                yield f"{name} block {block}: {refs[block]} references, folded {told}"
        free = {int(fold.block_of[s]) for s in _chain(fold, pool.id)}
        idle = set(slots) - set(refs)
        if free != idle:
            yield f"{name}: free {sorted(idle)}, folded {sorted(free)}"
        hashes = {
            (state.hooks.keyed(h), b) for h, b in allocator.ledger.hash_to_block.items()
        }  # fmt: skip
        told_hashes = {
            (str(fold.names.name("hash", st.e_hash[e])), int(fold.block_of[st.e_slot[e]]))
            for e in range(st.h[a.ENTRIES])
            if st.e_live[e] == 1 and fold.pool_of(st.e_slot[e]) is pool
        }
        if hashes != told_hashes:
            yield f"{name}: hashes {hashes ^ told_hashes} differ"
        if not tables:
            continue
        for req, table in allocator.block_table.items():
            known = folded.requests.by_name.get(req)
            held = [] if known is None else known.table(group.table_id)
            if sorted(table) != sorted(int(fold.block_of[s]) for s in held):
                yield f"{name}: table of {req} is {table}"
        for req, known in folded.requests.by_name.items():
            if req not in allocator.block_table and known.table(group.table_id):
                yield f"{name}: {req} has blocks in the folded state only"


def _chain(fold: Fold, pool: int) -> Iterator[int]:
    slot = int(fold.st.free_head[pool])
    while slot >= 0:
        yield slot
        slot = int(fold.st.free_next[slot])
