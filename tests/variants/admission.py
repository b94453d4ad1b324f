"""How the correct engine admits a request: lookup, hits, a load where a tier reaches further."""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from random import Random

from .options import Options
from .paging import Pool
from .prefixes import Prefixes
from .requests import Request
from .tables import Table
from .tape import Lane, Tape
from .tiers import Tier


class Admission:
    """The part of the engine that decides where a request goes on from."""

    def __init__(
        self,
        tape: Tape,
        rng: Random,
        options: Options,
        pools: Sequence[Pool],
        tables: Sequence[Table],
        tier: Tier | None,
    ) -> None:
        self.tape = tape
        self.rng = rng
        self.options = options
        self.pools = list(pools)
        self.tables = list(tables)
        self.tier = tier
        self.prefixes = Prefixes(self.tables, tier)
        self.align = lcm(*(t.bt for t in tables))
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.lane = Lane(tape, options.lane)
        self.step = 1
        """Number of the next step."""
        self.retired = 0
        """Number of the last step that is known to be done."""
        self.chunk = 40
        """Tokens that a request computes in one step at most."""
        self.engine: str | None = None
        """Name of the engine, where a trace holds several."""

    def _admit(self, row: Request) -> bool:
        """Look the prefix up and start: at once, or behind a load. False: no room."""
        found = self.prefixes
        per_table = found.each(row)
        t = ahead = found.longest(row, self.tables)
        if self.tier and not row.avoids_tier:
            ahead = max(t, found.longest(row, self.tables, tiers=True))
        partial = found.partial(row, t) if self.options.cow else None
        if partial is not None:
            t = ahead = partial
            per_table[self.tables[0].name] = partial
        hits = {x.name: found.blocks(x, row, per_table[x.name]) for x in self.tables}
        touched = {x.name: found.blocks(x, row, t) for x in self.tables}
        if ahead > t and self.tier and self._room_for(row, ahead, {}):
            far = {self.tier.name_of(x.lead): ahead for x in self.tables}
            if self.tier.fits(sum(len(x.needed(ahead)) * len(x.groups) for x in self.tables)):
                self._emit_lookup(row, per_table, hits, far)
                self.tier.load(self, row, ahead)
                if row.state == "running":  # layer by layer: it computes while the rest arrives
                    self.start(row, ahead)
                return True
        if not self._room_for(row, t, touched):
            if self.rng.random() < 0.3:
                self._refuse_new(row)
            return False
        first = self.rng.random() < 0.5
        if first:
            self._emit_admit(row)
        self._emit_lookup(row, per_table, hits)
        if t:
            self._take_hits(row, t, touched)
        else:
            for table in self.tables:
                table.adopt(row, 0, {})
        if not first:
            self._emit_admit(row)
        self._go(row, t)
        return True

    def _emit_admit(self, row: Request) -> None:
        self.tape.emit("admit", req=row.name, engine=self.engine)

    def start(self, row: Request, t: int) -> None:
        """Admit a request whose load has ended."""
        self._emit_admit(row)
        self._go(row, t)

    def _go(self, row: Request, t: int) -> None:
        row.next = row.done = t
        row.state = "running"
        self.running.append(row)

    def _refuse_new(self, row: Request) -> None:
        pool = self.pools[0]
        needs = -(-len(row.tokens) // self.tables[0].bt)
        if needs > pool.available:
            self.tape.emit(
                "refuse", req=row.name, reason="out-of-blocks", needs=needs,
                free=pool.available, pool=pool.name,
            )  # fmt: skip

    def _room_for(self, row: Request, t: int, hits: dict[str, dict[int, int]]) -> bool:
        """Whether the hits and the first chunk behind them fit."""
        for pool in self.pools:
            needs = 0
            for table in self.tables:
                if table.pool is pool:
                    mine = hits.get(table.name, {})
                    needs += sum(b in pool.free for b in mine.values()) + 2
                    needs += -(-(min(len(row.tokens) - t, self.chunk) + 1) // table.bt)
                    needs += len(table.needed(t)) - len(mine)
            if pool.available < needs:
                return False
        return True

    def _emit_lookup(
        self, row: Request, per_table: dict[str, int], hits: dict[str, dict[int, int]],
        far: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        hit: dict[str, int] = {}
        blocks: dict[str, list[int]] = {}
        for table in self.tables:
            names = table.names if self.rng.random() < 0.4 else table.names[:1]
            for name in names:
                hit[name] = per_table[table.name]
                blocks[name] = list(hits[table.name].values())
        self.tape.emit(
            "lookup", req=row.name, hit={**hit, **(far or {})}, blocks=blocks,
            tokens=len(row.tokens), key=row.key,
        )  # fmt: skip

    def _take_hits(self, row: Request, t: int, hits: dict[str, dict[int, int]]) -> None:
        for table in self.tables:
            mine = hits[table.name]
            table.pool.touch(list(mine.values()), group=table.lead, req=row.name)
            table.adopt(row, t, mine)
        self.emit_resume(row, t, {x.name: "reuse" for x in self.tables})
        if t % self.align and self.options.cow:
            self.tables[0].replace_last(row, t)

    def emit_resume(
        self, row: Request, t: int, routes: dict[str, str],
        brought: dict[str, dict[int, int]] | None = None,
    ) -> None:  # fmt: skip
        blocks: dict[str, list[int]] = {}
        route: dict[str, str] = {}
        for table in self.tables:
            mine = row.held[table.name].blocks if brought is None else brought[table.name]
            names = table.names if self.rng.random() < 0.4 else table.names[:1]
            for name in names:
                blocks[name] = [b for _, b in sorted(mine.items())]
                if mine:
                    route[name] = routes[table.name]
        self.tape.emit("resume", req=row.name, at=t, blocks=blocks, route=route)
        if self.options.fingerprints and brought is None:
            self._fingerprint(row, t, "resume")

    def _fingerprint(self, row: Request, t: int, at: str) -> None:
        """Checksums of the complete blocks before `t`."""
        for table in self.tables:
            held = row.held[table.name].blocks
            pairs = [(i, b) for i, b in sorted(held.items()) if (i + 1) * table.bt <= t]
            if pairs and len(table.groups) == 1 and table.groups[0].form != "recurrent":
                values = [row.hash((i + 1) * table.bt, table.name) for i, _ in pairs]
                self.tape.emit(
                    "fingerprint", group=table.lead, blocks=[b for _, b in pairs],
                    values=values, at=at,
                )  # fmt: skip
