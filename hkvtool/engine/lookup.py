"""The prefix match, group by group: how far each table can resume, and where all of them can.

A hash says that content was there; a resume needs every form of it. So a match is not the longest
run of hashes but a fixed point: the largest position at which the history is complete *and* the
window, the tail and the recurrent state that belong to exactly that position are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hkvtool.engine.geometry import Preset, Table
from hkvtool.engine.pool import BlockPool
from hkvtool.engine.workload import Request
from hkvtool.model.forms import Form

Source = tuple[int, int, int]
"""A block of a match: its index in the table, the tier that has it, its id there."""


@dataclass(slots=True)
class Hit:
    """What a lookup found.

    `at` is where all tables can resume; `sources` the blocks they need there. `own` and
    `blocks` say what each table would have had by itself, by group name (`c4`, `c4@cpu`):
    the difference to `at` is what the limiting form cost.
    """

    asked: int
    at: int = 0
    own: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, list[int]] = field(default_factory=dict)
    keys: dict[str, list[int]] = field(default_factory=dict)
    sources: dict[str, list[Source]] = field(default_factory=dict)

    @property
    def matched(self) -> int:
        """Tokens that the best single group matched, on any tier."""
        return max(self.own.values(), default=0)

    def loads(self) -> int:
        """Blocks that have to come from a lower tier before the request can go on."""
        return sum(1 for found in self.sources.values() for _, tier, _ in found if tier)


class _TableMatch:
    """One table's side of a lookup over pools ordered from near to far."""

    def __init__(
        self, table: Table, request: Request, limit: int, grain: int, pools: Sequence[BlockPool]
    ) -> None:
        self.table = table
        self.request = request
        self.grain = grain
        self.pools = pools
        self.size = table.lead.block_tokens
        self.run: list[list[int]] = []
        """Of a history: its blocks in token order, those of the nearest pool first."""
        if table.history:
            self._run(limit // self.size)

    def _run(self, count: int) -> None:
        keys = self.request.keys(range(count), self.size)
        index = 0
        for pool in self.pools:
            known = pool.hashes.get(self.table.name, {})
            blocks: list[int] = []
            while index < count and keys[index] in known:
                blocks.append(known[keys[index]])
                index += 1
            self.run.append(blocks)

    def reach(self, at: int, tiers: Sequence[int]) -> int:
        """The largest resume point up to `at` for this table, from these tiers."""
        if self.table.history:
            covered = sum(len(self.run[tier]) for tier in tiers) * self.size
            return min(at, covered) // self.grain * self.grain
        at = at // self.grain * self.grain
        while at > 0:
            missing = [self._missing(at, tier) for tier in tiers]
            if None in missing:
                return at
            # Whatever lies above a tier's last hole needs that hole too.
            hole = max(index for index in missing if index is not None)
            at = min(at - self.grain, hole * self.size // self.grain * self.grain)
        return 0

    def _missing(self, at: int, tier: int) -> int | None:
        """The last block needed at `at` that the tier lacks."""
        pool, name = self.pools[tier], self.table.name
        for index in reversed(self.table.lead.span(*self.table.lead.needs(at))):
            if pool.find(name, self.request.key((index + 1) * self.size)) is None:
                return index
        return None

    def sources(self, at: int, tiers: Sequence[int]) -> list[Source]:
        """The blocks needed at `at`: a history from all tiers in turn, anything else whole from
        the nearest tier that has it."""
        span = self.table.lead.span(*self.table.lead.needs(at))
        if self.table.history:
            flat = [(tier, b) for tier in tiers for b in self.run[tier]]
            return [(index, *flat[index]) for index in span]
        for tier in tiers:
            if self._missing(at, tier) is None:
                known = self.pools[tier].hashes.get(self.table.name, {})
                keys = self.request.keys(span, self.size)
                return [(i, tier, known[key]) for i, key in zip(span, keys, strict=True)]
        return []

    def report(self, limit: int, hit: Hit) -> None:
        """Write what this table had by itself, up to `limit`, into the hit."""
        lead, covered, near = self.table.lead, 0, 0
        for tier, pool in enumerate(self.pools):
            name = lead.name if tier == 0 else f"{lead.name}@{pool.name}"
            if self.table.history:
                covered += len(self.run[tier]) * self.size
                blocks, at = self.run[tier], covered if self.run[tier] else 0
            else:
                at = self.reach(limit, [tier])
                blocks = [block for _, _, block in self.sources(at, [tier])] if at else []
            if tier and at <= near:
                continue
            near = max(near, at)
            hit.own[name], hit.blocks[name] = at, blocks
            first = -(-at // self.size) - len(blocks)
            hit.keys[name] = self.request.keys(range(first, first + len(blocks)), self.size)


def lookup(
    preset: Preset, request: Request, known: int, pools: Sequence[BlockPool], last: int
) -> Hit:
    """Match the first `last` tokens of a request of which `known` are known.

    `last` is below `known` where at least one token has to be computed to have an output.
    """
    hit = Hit(asked=known)
    matches = [_TableMatch(t, request, last, preset.grain, pools) for t in preset.tables]
    tiers = range(len(pools))
    at, before = last, -1
    while at != before:
        before = at
        for match in matches:
            at = match.reach(at, tiers)
    hit.at = at
    # A window that needs nothing at some position has matched nothing by that: the history says
    # how far there is anything to resume from.
    reached = max((m.reach(last, tiers) for m in matches if m.table.history), default=last)
    for match in matches:
        match.report(reached, hit)
        hit.sources[match.table.name] = match.sources(at, tiers) if at else []
    if preset.partial and at == last // preset.grain * preset.grain:
        _partial(preset, request, last, pools[0], hit)
    return hit


def trusting(
    preset: Preset, request: Request, known: int, pools: Sequence[BlockPool], last: int
) -> Hit:
    """The match of an engine that takes a hash for a state: what the history alone allows.

    Windows, tails and recurrent states are taken where a hash happens to lead to them.
    """
    hit = lookup(preset, request, known, pools, last)
    tiers = range(len(pools))
    matches = [_TableMatch(t, request, last, preset.grain, pools) for t in preset.tables]
    at = min((m.reach(last, tiers) for m in matches if m.table.history), default=0)
    if at > hit.at:
        hit.at = at
        hit.sources = {m.table.name: m.sources(at, tiers) if at else [] for m in matches}
    return hit


def _partial(preset: Preset, request: Request, last: int, pool: BlockPool, hit: Hit) -> None:
    """Let the match end inside a block where the whole rest of the prompt is published."""
    (table,) = preset.tables
    if table.lead.form is not Form.COMPRESSED or hit.at == last or last > request.prompt:
        return
    block = pool.find(table.name, request.key(last))
    if block is None or any(tier for _, tier, _ in hit.sources[table.name]):
        return
    hit.at = hit.own[table.name] = last
    hit.sources[table.name].append((last // table.lead.block_tokens, 0, block))
    hit.blocks[table.name].append(block)
    hit.keys[table.name].append(request.key(last))
