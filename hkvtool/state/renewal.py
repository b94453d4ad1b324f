"""The state of every block carried over into a fresh scene, so that one that follows a running
engine does not grow with what is over: names of ended requests, hashes that lead nowhere.

What blocks hold is carried over as a `state` event says it: nothing is claimed of it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Pool
from hkvtool.state.fold import Fold
from hkvtool.state.scene import Scene
from hkvtool.state.serving import known, live_entries


def size(scene: Scene) -> int:
    """How many names are held, of what is there and of what is over."""
    names = scene.fold.names.values
    return len(names["hash"]) + len(names["req"]) + len(names["handle"])


def renewable(scene: Scene) -> bool:
    """Whether nothing is under way that a `state` event could not say."""
    return not scene.moves.running and not scene.capturing


def renewed(scene: Scene, declared: list[Event], pos: int) -> Scene:
    """A scene of the same blocks at `pos`; `declared` are the declarations so far, in order."""
    old, new = scene.fold, Scene()
    fold = new.fold
    for event in declared:
        fold.apply(event)
    # A slot keeps its number, so that what requests hold can be taken over.
    for slot, block in enumerate(old.block_of):
        fold.slot(fold.declared.pools[old.pool_of(slot).name], block)
    fold.st.h[a.EPOCH] = old.st.h[a.EPOCH]
    for pool in old.declared.pools.values():
        # Of blocks that are uncertain nothing is said, and they stay unknown.
        sure = [(b, s) for b, s in old.slots_of(pool).items() if known(old, s)]
        fold.apply(Event(pos, "state", _state(old, pool, sure)))
        for _, slot in sure:
            fold.st.pins[slot] = old.st.pins[slot]
    for name, request in scene.requests.by_name.items():
        if request.held or request.ended is None:
            request.released.clear()
            request.left.clear()
            new.requests.by_name[name] = request
    new.requests.holders = {s: held for s, held in scene.requests.holders.items() if held}
    new.lost = scene.lost[-1:]
    return new


def _state(fold: Fold, pool: Pool, blocks: list[tuple[int, int]]) -> dict[str, Any]:
    st = fold.st
    groups = {g.table_id: g.name for g in fold.declared.groups.values() if g.pool is pool}
    return {
        "ev": "state",
        "pool": pool.name,
        "blocks": [b for b, _ in blocks],
        "refs": [st.refs[s] for _, s in blocks],
        "gens": [st.gen[s] for _, s in blocks],
        "owners": [_owner(fold, s) for _, s in blocks],
        "groups": [groups.get(st.table[s]) for _, s in blocks],
        "hashes": [list(_hashes(fold, s)) for _, s in blocks],
        "free_order": [b for b in _free(fold, pool) if known(fold, fold.slot(pool, b))],
    }


def _owner(fold: Fold, slot: int) -> str | int | None:
    owner = fold.st.owner[slot]
    return fold.names.name("req", owner) if owner >= 0 and fold.st.refs[slot] > 0 else None


def _hashes(fold: Fold, slot: int) -> Iterator[str | int]:
    for entry in live_entries(fold, slot):
        yield fold.names.name("hash", fold.st.e_hash[entry])


def _free(fold: Fold, pool: Pool) -> Iterator[int]:
    slot = fold.st.free_head[pool.id]
    while slot >= 0:
        yield fold.block_of[slot]
        slot = fold.st.free_next[slot]
