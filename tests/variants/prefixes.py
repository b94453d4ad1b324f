"""Which prefix a request can go on from, table by table and all together."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm

from .requests import Request
from .tables import State, Table
from .tiers import Tier
from .windows import Window


class Prefixes:
    """Looks hashes up; changes nothing."""

    def __init__(self, tables: Sequence[Table], tier: Tier | None) -> None:
        self.tables = tables
        self.tier = tier

    def each(self, row: Request) -> dict[str, int]:
        """The longest prefix of each table alone; a window's is no longer than any history's."""
        alone = {t.name: self.longest(row, [t]) for t in self.tables}
        histories = [alone[t.name] for t in self.tables if not isinstance(t, (Window, State))]
        for table in self.tables:
            if histories and isinstance(table, Window):
                alone[table.name] = self.longest(row, [table], upto=max(histories))
        return alone

    def longest(
        self,
        row: Request,
        tables: Sequence[Table],
        tiers: bool = False,
        upto: int | None = None,
    ) -> int:
        """The longest prefix from which every one of `tables` can go on.

        At least one token is left to compute, and the position is a block boundary in each.
        """
        align = lcm(*(t.bt for t in tables))
        limit = len(row.tokens) - 1
        if upto is not None:
            limit = min(limit, upto)
        for t in range(limit // align * align, 0, -align):
            if all(self._there(x, row, i, tiers) for x in tables for i in x.needed(t)):
                return t
        return 0

    def _there(self, table: Table, row: Request, i: int, tiers: bool) -> bool:
        name = row.hash((i + 1) * table.bt, table.name)
        if table.pool.find(table.lead, name) is not None:
            return True
        return tiers and self.tier is not None and self.tier.has(table, name)

    def blocks(self, table: Table, row: Request, t: int) -> dict[int, int]:
        """The cached device blocks by index that `table` needs at `t`."""
        found: dict[int, int] = {}
        for i in table.needed(t):
            name = row.hash(min((i + 1) * table.bt, t), table.name)
            block = table.pool.find(table.lead, name)
            if block is not None:
                found[i] = block
        return found

    def partial(self, row: Request, t: int) -> int | None:
        """A hit behind `t` that ends inside the next block."""
        table = self.tables[0]
        for end in range(min(len(row.tokens) - 1, t + table.bt - 1), t, -1):
            if table.pool.find(table.lead, row.hash(end, table.name)) is not None:
                return end
        return None
