"""Beginning in the middle: an engine that already runs is described as it stands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from hkvtool.recorder.heap import instances
from hkvtool.recorder.patches import family
from hkvtool.recorder.vllm.declare import declare
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.pool_state import PoolState
from hkvtool.recorder.vllm.transfer_hooks import follow_worker
from hkvtool.recorder.vllm.worker_hooks import process_is

_UNKNOWN_HOLDER = "before the recording"

_AT_ONCE = 8192
"""Blocks in one event: a ring takes none that is half as large as itself."""

_PLACE = 32
"""Bits of a place in a table."""

_OFFLOADING = "vllm.distributed.kv_transfer.kv_connector.v1.offloading.worker"


@dataclass(frozen=True)
class Running:
    """What this process has of an engine that was there before the hooks."""

    managers: list[Any]
    """Its cache managers."""
    offloading: list[Any]
    """The workers of its offloading connector that have begun."""
    configs: list[Any]
    """The configs of its workers."""


def running() -> Running:
    """What an engine has made in this process so far; a search of the whole heap."""
    manager = getattr(sys.modules.get("vllm.v1.core.kv_cache_manager"), "KVCacheManager", None)
    offload = getattr(sys.modules.get(_OFFLOADING), "OffloadingConnectorWorker", None)
    worker = getattr(sys.modules.get("vllm.v1.worker.worker_base"), "WorkerBase", None)
    workers = set() if worker is None else set(family(worker))
    kinds = {*workers, *(kind for kind in (manager, offload) if kind is not None)}
    if not kinds:
        return Running([], [], [])
    found = instances(kinds)
    return Running(
        [o for o in found if type(o) is manager],
        [o for o in found if type(o) is offload and getattr(o, "worker", None) is not None],
        [o.vllm_config for o in found if type(o) in workers and hasattr(o, "vllm_config")],
    )


def take_over(hooks: Hooks, found: Running) -> None:
    """Declare cache managers that came before the hooks, with `state` events of each pool, and
    follow the transfers of their connector from here on."""
    for config in found.configs[:1]:
        process_is(hooks, config)
    for worker in found.offloading:
        follow_worker(hooks, worker)
    for manager in found.managers:
        declare(hooks, manager)
        for pool in pools_of(manager):
            known = hooks.pool(pool)
            held = Holders(known, manager)
            blocks = [b for b in pool.blocks if not b.is_null]
            for at in range(0, len(blocks), _AT_ONCE):
                event = state(known, blocks[at : at + _AT_ONCE], held, _UNKNOWN_HOLDER)
                if at + _AT_ONCE >= len(blocks):
                    event["free_order"] = free_order(pool)
                hooks.tell.event(event)
        hooks.untold.update(running_requests(manager))
    if found.managers:
        # A pause before has withdrawn it.
        hooks.tell.event({"ev": "evidence", "evidence": list(hooks.evidence)})


def pools_of(manager: Any) -> list[Any]:
    """The block pools of a cache manager."""
    return list(dict.fromkeys(m.block_pool for m in manager.coordinator.single_type_managers))


def running_requests(manager: Any) -> set[str]:
    """The requests that hold blocks."""
    return {r for m in manager.coordinator.single_type_managers for r in m.req_to_blocks}


class Holders:
    """Who holds the blocks of a pool, at one moment."""

    def __init__(self, known: PoolState, manager: Any) -> None:
        self._tables = [
            (one, req)
            for one in manager.coordinator.single_type_managers if one.block_pool is known.pool
            for req in one.req_to_blocks
        ]  # fmt: skip
        # Numbers: a tuple for each of so many blocks would have the engine collect its garbage.
        self._places = {
            block.block_id: n << _PLACE | i
            for n, (one, req) in enumerate(self._tables)
            for i, block in enumerate(one.req_to_blocks[req])
        }

    def of(self, block: Any) -> tuple[Any, str | None]:
        """The manager in whose table a block is and the request, if it still is there."""
        found = self._places.get(block.block_id)
        if found is None:
            return None, None
        one, req = self._tables[found >> _PLACE]
        table, i = one.req_to_blocks.get(req, ()), found & (1 << _PLACE) - 1
        return (one, req) if i < len(table) and table[i] is block else (None, None)


def state(
    known: PoolState, blocks: list[Any], held: Holders, otherwise: str | None = None
) -> dict[str, Any]:
    """The `state` event of some blocks of one pool: references, hashes and holders; `otherwise`
    holds what no request does."""
    pool = known.pool
    hashes = [_hashes(known, pool, b) for b in blocks]
    mine = [held.of(b) for b in blocks]
    return {
        "ev": "state", "pool": known.name,
        "blocks": [b.block_id for b in blocks],
        "refs": [b.ref_cnt for b in blocks],
        "hashes": [names for names, _ in hashes],
        "owners": [
            req if one is not None else otherwise if b.ref_cnt > 0 else None
            for b, (one, req) in zip(blocks, mine, strict=True)
        ],
        "groups": [
            group if one is None else known.group(one.kv_cache_group_id)
            for (one, _), (_, group) in zip(mine, hashes, strict=True)
        ],
    }  # fmt: skip


def free_order(pool: Any) -> list[int]:
    """The free list, next to be taken first."""
    return [b.block_id for b in pool.free_block_queue.get_all_free_blocks()]


def _hashes(known: PoolState, pool: Any, block: Any) -> tuple[list[int] | None, str | None]:
    """Names of the hashes that lead to a block, and the group that they are of."""
    from hkvtool.recorder.vllm.pool_hooks import key_of

    keys = [block.block_hash] if block.block_hash is not None else []
    keys += getattr(pool, "cached_block_hashes_by_block", {}).get(block.block_id, ())
    if not keys:
        return None, None
    plain = [key for key in map(key_of, keys) if key is not None]
    group = known.group(int.from_bytes(plain[0][-4:], "big"))
    return [known.hooks.keyed.hash(key[:-4]) for key in plain], group
