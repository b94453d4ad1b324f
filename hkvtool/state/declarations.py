"""What a trace says exists: pools, groups, consumers, limits and the places of moved blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.event import Event
from hkvtool.state.arrays import FORMS

MAX_UNIT = 1 << 31
"""Bound of the tokens of a block or an entry: positions reckoned with it stay within 64 bits."""


@dataclass(slots=True, eq=False)
class Pool:
    """One block-id space on one medium."""

    id: int
    name: str
    medium: str
    blocks: int
    reserved: frozenset[int]
    engine: str | None
    zeroed: bool
    pos: int
    map: dict[int, int] = field(default_factory=dict)
    map_pos: int = -1

    @property
    def tier(self) -> bool:
        """Whether it lies below the device."""
        return self.medium != "gpu"

    def has(self, block: int) -> bool:
        """Whether a block id can be one of this pool's."""
        return 0 <= block < self.blocks or block in self.map


@dataclass(slots=True, eq=False)
class Group:
    """One cache group, with the defaults of the trace format filled in."""

    id: int
    name: str
    form: str
    pool: Pool
    block_tokens: int
    ratio: int
    window: int
    chunked: bool
    sink: int
    replayed: bool
    overlap: int
    slack: int
    serves: str | None
    participates: bool
    table: str
    table_id: int
    component: int
    layout: Mapping[str, Any]
    pos: int

    @property
    def form_number(self) -> int:
        return FORMS.index(self.form)


class Declarations:
    """Pools and groups by name, in the order in which they were declared."""

    def __init__(self) -> None:
        self.pools: dict[str, Pool] = {}
        self.groups: dict[str, Group] = {}
        self.tables: dict[str, int] = {}
        self.limits: list[Event] = []
        self.kernels: list[Event] = []

    def pool(self, event: Event) -> Pool:
        """Declare a pool; declared again it keeps its number."""
        name = str(event["pool"])
        known = self.pools.get(name)
        engine = event.get("engine")
        pool = Pool(
            known.id if known else len(self.pools),
            name,
            event["medium"],
            event["blocks"],
            frozenset(event.get("reserved") or ()),
            None if engine is None else str(engine),
            bool(event.get("zeroed", False)),
            event.pos,
        )
        self.pools[name] = pool
        for group in self.groups.values():
            if group.pool.name == name:
                group.pool = pool
        return pool

    def group(self, event: Event) -> Group | str:
        """Declare a group; says what is wrong where its pool is not declared."""
        name = str(event["group"])
        pool = self.pools.get(str(event["pool"]))
        if pool is None:
            return f"group {name!r}: pool {event['pool']!r} is not declared"
        if not (0 < event["block_tokens"] < MAX_UNIT and 0 < event.get("ratio", 1) < MAX_UNIT):
            return f"group {name!r}: `block_tokens` and `ratio` must be 1 to {MAX_UNIT - 1}"
        known = self.groups.get(name)
        table = str(event.get("table", name))
        table_id = self.tables.setdefault(table, len(self.tables))
        serves = event.get("serves")
        if known is not None and known.pool is pool:
            component = known.component
        else:
            taken = {g.component for g in self.groups.values() if g.pool is pool}
            component = next(i for i in range(len(taken) + 1) if i not in taken)
        group = Group(
            known.id if known else len(self.groups),
            name,
            event["form"],
            pool,
            event["block_tokens"],
            event.get("ratio", 1),
            event.get("window", 0),
            event.get("window_kind") == "chunked",
            event.get("sink", 0),
            bool(event.get("replayed", False)),
            event.get("overlap", 0),
            event.get("slack", 0),
            None if serves is None else str(serves),
            bool(event.get("participates", True)),
            table,
            table_id,
            component,
            event.get("layout") or {},
            event.pos,
        )
        self.groups[name] = group
        return group

    def rebase(self, event: Event) -> list[Group]:
        """Give the groups that a `rebase` names their new layout; returns those it names."""
        layout = event.get("layout")
        named = [
            g for g in self.groups.values()
            if (str(event["group"]) == g.name if "group" in event
                else "pool" not in event or str(event["pool"]) == g.pool.name)
        ]  # fmt: skip
        for group in named:
            if layout is not None:
                group.layout = {**group.layout, **layout}
        return named

    def mates(self, group: Group) -> list[Group]:
        """The groups that share a group's block table, itself included."""
        return [g for g in self.groups.values() if g.table == group.table and g.pool is group.pool]

    def served(self, group: Group) -> Group | None:
        """The group whose component this one is."""
        return self.groups.get(group.serves) if group.serves else None

    def servants(self, group: Group) -> list[Group]:
        """The groups that are components of this one."""
        return [g for g in self.groups.values() if g.serves == group.name]

    def ratio_served(self, group: Group) -> int:
        """Tokens per stored entry of the group served, or of the group itself."""
        served = self.served(group)
        return served.ratio if served else group.ratio

    def mirror(self, group: Group, pool: Pool) -> Group | None:
        """The group on another pool that holds the same content as `group` does on its own.

        Told by form, and among several of a form by their order.
        """
        here = [g for g in self.groups.values() if g.pool is group.pool and g.form == group.form]
        there = [g for g in self.groups.values() if g.pool is pool and g.form == group.form]
        if not there:
            return None
        rank = here.index(group) if group in here else 0
        return there[min(rank, len(there) - 1)]
