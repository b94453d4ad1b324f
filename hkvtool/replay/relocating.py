"""What moves under the blocks: places that a `remap` changes, memory that a `rebase` does.

A block keeps its content through either, as the fold has it. Only memory that is given up in a
sleep takes what it held with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.replay.cells import Area, whole
from hkvtool.replay.geometry import Share
from hkvtool.replay.ops import Discard, Rehouse, Relocate
from hkvtool.replay.writing import carry
from hkvtool.state.declarations import Group, Pool

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler


@dataclass
class Removal:
    """One group's part of a pool that a rebase takes elsewhere, and the places that it is of."""

    op: Rehouse
    group: Group
    rows: int
    source: Share
    target: Share
    old: str
    new: str
    places: frozenset[int]


def remapped(c: Compiler, event: Event) -> None:
    """Blocks change places: what they hold goes along. It meets the map before."""
    pool = c.fold.declared.pools.get(str(event["pool"]))
    if pool is None:
        return
    moves: list[tuple[int, int]] = []
    for logical, place in event["map"].items():
        old, slot = pool.map.get(int(logical), int(logical)), c.fold.find(pool, int(logical))
        held = slot is not None and (c.fold.st.refs[slot] > 0 or c.fold.st.live[slot] > 0)
        if held and old != place:
            moves.append((old, place))
    space = c.graphs.space(pool.name, event)
    pairs: list[tuple[Area, Area]] = []
    left: list[Area] = []
    carried: list[tuple[tuple[str, int, str], tuple[str, int, str]]] = []
    groups = [g for g in c.fold.declared.groups.values() if g.pool is pool]
    taken = {place for _, place in moves}
    for group in groups:
        mine = [(a, b) for a, b in moves if (pool.name, group.name, a) in c.written]
        inside = [(a, b) for a, b in mine if c.kept(pool, a) and c.kept(pool, b)]
        pairs += [
            (c.whole(group, pool, [a], space), c.whole(group, pool, [b], space)) for a, b in inside
        ]
        gone = [a for a, _ in inside if a not in taken]
        if gone:
            left.append(c.whole(group, pool, gone, space))
        carried += [((pool.name, a, group.name), (pool.name, b, group.name)) for a, b in mine]
    if pairs:
        c.emit(event, [Relocate(tuple(pairs), tuple(left))])
    held_before = {source: c.holds.get(source) for source, _ in carried}
    for source, target in carried:
        carry(c, source, target)
        content = held_before[source]
        if content is not None:
            c.holds[target] = content


def rebased(c: Compiler, event: Event) -> None:
    """Memory goes away, or comes back elsewhere."""
    declared = c.fold.declared
    names = c.graphs.pools(event, declared)
    gone = c.storages(names)
    pools = [declared.pools[name] for name in names if name in declared.pools]
    groups = [(g, p) for p in pools for g in declared.groups.values() if g.pool is p]
    before = {(g.name, p.name): c.geometry.known(g, p) for g, p in groups}
    old = {p.name: c.graphs.suffix(p.name) for p in pools}
    c.graphs.rebase(event, declared)
    c.geometry.forget()
    if not gone:
        return
    if event.get("reason") == "sleep":
        c.emit(event, [Discard(gone)])
        return
    op = Rehouse(gone)
    c.emit(event, [op])
    for group, pool in groups:
        source = before[group.name, pool.name]
        if source is not None:
            c.removals.append(
                Removal(op, group, c.geometry.rows(group), source, c.geometry.share(group, pool),
                        old[pool.name], c.graphs.suffix(pool.name), _places(c, group, pool))
            )  # fmt: skip


def _places(c: Compiler, group: Group, pool: Pool) -> frozenset[int]:
    """Where blocks of a group's table lie."""
    st = c.fold.st
    return frozenset(
        pool.map.get(block, block)
        for block, slot in c.fold.slots_of(pool).items()
        if st.table[slot] == group.table_id or st.table[slot] < 0
    )


def housed(c: Compiler) -> None:
    """What each rebase has to bring along: what is there before and touched afterwards."""
    lives: dict[tuple[str, str], dict[str, set[int]]] = {}
    for (group, name, space), places in c.used.items():
        lives.setdefault((group, name), {})[space] = set(places)
    for one in reversed(c.removals):
        pool = one.group.pool
        known = lives.get((one.group.name, pool.name), {})
        earlier = {p for space, places in known.items() if _life(space) < _life(one.new)
                   for p in places}  # fmt: skip
        wanted = sorted(known.get(one.new, set()) & earlier & one.places)
        if not wanted:
            continue
        known.setdefault(one.old, set()).update(wanted)
        cells = whole(one.rows, wanted)
        one.op.pairs.append(
            (c.touch(one.source, pool, cells, one.old), c.touch(one.target, pool, cells, one.new))
        )


def _life(space: str) -> int:
    return int(space[1:] or 0) if space else 0
