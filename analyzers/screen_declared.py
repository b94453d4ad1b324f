"""What declarations mean for the screen, as arrays; made anew whenever something is declared."""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers.kernel_abi import unlike_sides
from hkvtool.analyzers.screen_arrays import CAP, ENGINES, UNCAPPED, Screen
from hkvtool.model.event import Event
from hkvtool.state.accesses import accesses
from hkvtool.state.arrays import COMPONENTS
from hkvtool.state.declarations import Declarations, Group, Pool
from hkvtool.state.fold import Fold
from hkvtool.state.read_faults import same_rows

_OTHER_LIMITS = ("recovering_bytes", "stall_steps", "stall_ns", "thrash_trips")


def take_in(fold: Fold, sc: Screen, bases: Any, groups: int, pools: int) -> bool:
    """Fill the arrays from what is declared so far; False where something needs the rules."""
    declared = fold.declared
    if any(key in event for event in declared.limits for key in _OTHER_LIMITS):
        return False
    caps = [e["recovering_blocks"] for e in declared.limits if "recovering_blocks" in e]
    sc.h[CAP] = min(caps, default=UNCAPPED)
    for pool in declared.pools.values():
        if pool.map:
            return False
        if pool.engine is not None:
            sc.h[ENGINES] = 1
        for block in pool.reserved:
            if 0 <= block < pool.blocks:
                sc.reserved[bases[pool.name] + block] = 1
    return all(_of_group(fold, sc, group, groups, pools) for group in declared.groups.values())


def _of_group(fold: Fold, sc: Screen, group: Group, groups: int, pools: int) -> bool:
    declared = fold.declared
    g, width = group.id, int(fold.st.h[COMPONENTS])
    stride = group.layout.get("stride_bytes")
    if isinstance(stride, int) and stride < 0:
        return False
    sc.ratio[g] = max(1, group.ratio, declared.ratio_served(group))
    sc.c_table[group.pool.id * width + group.component] = group.table_id
    sc.index_of[g] = _index_of(declared, group)
    _needs(fold, sc, group)
    for other in declared.groups.values():
        sc.alike[g * groups + other.id] = int(same_rows(group, other))
    for mate in declared.mates(group):
        place = (group.pool.id * width + group.component) * width + mate.component
        sc.travels[place] = int(mate.serves == group.name or group.serves == mate.name)
    for pool in declared.pools.values():
        place = g * pools + pool.id
        sc.far[place] = _far_component(declared, group, pool)
        there = declared.mirror(group, pool)
        sc.sides[place] = int(
            there is None
            or not any(unlike_sides(group, there, whole=whole) for whole in (True, False))
        )
    return True


def _needs(fold: Fold, sc: Screen, group: Group) -> None:
    """What a resume needs of a group, and where lookups and resumes name it."""
    g, declared = group.id, fold.declared
    served = declared.served(group)
    sc.joins[g] = int(group.participates)
    engines = list(dict.fromkeys(pool.engine for pool in declared.pools.values()))
    sc.engine[g] = -1 if group.pool.engine is None else engines.index(group.pool.engine)
    names = map(str, (fold.names.name("group", i) for i in range(fold.names.count("group"))))
    sc.column[g] = next((i for i, name in enumerate(names) if name == group.name), -1)
    sc.serves[g] = -1 if served is None else served.id
    sc.served[g] = max(1, declared.ratio_served(group))
    for name in ("window", "slack", "sink", "overlap", "chunked", "replayed"):
        getattr(sc, name)[g] = int(getattr(group, name))


def _index_of(declared: Declarations, group: Group) -> int:
    """The component of the data that indexer rows route to in the same block; -1 where there is
    none, -2 where it is elsewhere."""
    served = declared.served(group)
    if group.form != "indexer" or served is None:
        return -1
    return served.component if served.table == group.table and served.pool is group.pool else -2


def _far_component(declared: Declarations, group: Group, pool: Pool) -> int:
    """The component that a store of a group to a pool writes there; -1 for all of them."""
    begin = {"ev": "store_begin", "handle": "", "group": group.name, "blocks": [0],
             "to": pool.name, "peer": [0]}  # fmt: skip
    for access in accesses(Event.of(1, begin), declared):
        if access.write and access.group is not None and access.group.pool is pool:
            return access.group.component
    return -1
