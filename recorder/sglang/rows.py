"""Rows of requests: what a cache keeps of each request in a place of its own."""

from __future__ import annotations

from typing import Any

from hkvtool.recorder.sglang.cache_state import CacheState, PoolState
from hkvtool.recorder.sglang.hooks import Hooks

KIND = "c128_state"


class RowPool(PoolState):
    """The rows of one cache's requests. Nothing of them is ever found by a hash."""

    def __init__(self, requests: Any, cache: CacheState, kept: Any) -> None:
        super().__init__(requests, cache, KIND, page=1)
        self.kept = kept
        """The engine's pool whose content lies by row."""
        self.count = int(kept.num_req_slots)
        self.takers: list[str] = []


def to_bind(hooks: Hooks, requests: Any, reqs: Any, *args: Any, **kw: Any) -> RowPool | None:
    """These requests get rows, but for those that have one."""
    pool = hooks.pool(requests)
    if not isinstance(pool, RowPool):
        return None
    pool.takers = [str(req.rid) for req in reqs if not req.kv.holds_kv]
    return pool


def bound(hooks: Hooks, pool: RowPool | None, *args: Any, **kw: Any) -> None:
    """Rows that are taken from here on are for others."""
    if pool is not None:
        pool.takers = []


def taken(hooks: Hooks, seen: None, rows: Any, requests: Any, *args: Any, **kw: Any) -> None:
    """Rows were handed out, each to the next that takes one."""
    pool = hooks.pool(requests)
    if isinstance(pool, RowPool):
        for row in rows or ():
            pool.take([int(row)], pool.takers.pop(0) if pool.takers else None)


def freed(hooks: Hooks, seen: None, result: None, requests: Any, indices: Any) -> None:
    """Rows are there again."""
    pool = hooks.pool(requests)
    if isinstance(pool, RowPool):
        pool.give_back([int(row) for row in indices])


def emptied(hooks: Hooks, seen: None, result: None, kept: Any, req_pool_idx: Any) -> None:
    """What was open of a request's units is cleared."""
    pool = next((s.rows for s in hooks.caches if s.rows is not None and s.rows.kept is kept), None)
    if pool is not None:
        hooks.tell.event({"ev": "zero", "pool": pool.name, "blocks": [int(req_pool_idx)]})
