"""What the tree of a cache has when a recording begins: page by page, with its hash.

The Python core is read node by node. The Rust core tells only which slots of the device come behind
which, and of the host nothing: the hashes of what it had before are then names that stand for
nothing else.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState
from hkvtool.recorder.sglang.host_tier import HostPool
from hkvtool.recorder.sglang.paths import hashes


def adopt(state: CacheState, core: Any) -> None:
    """Take every page that the tree has for what it is."""
    if state.cache._tree_core_backend == "python":
        for pool, page, name, place in _nodes(state, core):
            pool.hash_of[page], pool.page_of[name], pool.place[page] = name, page, place
        return
    assert state.full is not None
    page = state.page
    walked = core.walk_for_kv_canary(False, False)
    for slot, position in zip(walked.slot_indices.tolist(), walked.positions.tolist(), strict=True):
        if position % page == 0:
            state.full.stand_in(slot // page)
            state.full.place[slot // page] = position // page
    if state.swa is not None:
        resident = core.walk_for_kv_canary(False, True).slot_indices.tolist()
        for slot in resident:
            if slot % page == 0:
                block = int(state.mapping[slot]) // page
                state.swa.stand_in(block)
                state.swa.place[block] = state.full.place[slot // page]
    for far in host_pools(state):
        for block in sorted(used(far) - read_into(state, far)):
            far.stand_in(block)


def host_pools(state: CacheState) -> list[HostPool]:
    """Those that are followed."""
    return [] if state.tier is None else list(state.tier.pools.values())


def used(pool: HostPool) -> set[int]:
    """Pages of the host that are not free."""
    return set(pool.pages(pool.allocator.slot_used.nonzero().flatten()))


def read_into(state: CacheState, pool: HostPool) -> set[int]:
    """Pages of the host that prefetches are to fill, or have filled and the tree has not yet."""
    assert state.tier is not None
    mine = next(name for name, known in state.tier.pools.items() if known is pool)
    pages: set[int] = set()
    for one in state.cache.ongoing_prefetch.values():
        slots = [one.host_indices] if mine == "kv" else []
        slots += [
            t.host_indices for transfers in one.comp_xfers.values() for t in transfers
            if str(getattr(t.name, "value", t.name)) == mine and t.indices_from_pool is None
        ]  # fmt: skip
        for some in slots:
            if some is not None:
                pages.update(pool.pages(some))
    return pages


def _nodes(state: CacheState, core: Any) -> Iterator[tuple[PoolState, int, str, int]]:
    """Every page, its pool, its hash, and which one of its sequence it is."""
    keyed, page = state.hooks.keyed, state.page
    pools = [*state.pools, *host_pools(state)]
    stack = [(child, array("q")) for child in core.root_node.children.values()]
    while stack:
        node, before = stack.pop()
        first = len(before) // page
        tokens = before[:]
        tokens.extend(node.key.raw_token_ids())
        key = type(node.key)(tokens, extra_key=node.key.extra_key, cache_salt=node.key.cache_salt)
        names = [keyed(h) for h in hashes(key, page, len(tokens) // page)][first:]
        stack += [(child, tokens) for child in node.children.values()]
        for pool in pools:
            part = node.component_data[state.components[pool.kind]]
            value = part.host_value if isinstance(pool, HostPool) else part.value
            if value is None:
                continue
            for i, block in enumerate(pool.pages(value)):
                yield pool, block, names[i], first + i
