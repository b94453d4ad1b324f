"""The recorded requests decided again by the reference allocator: where it would have differed.

Its block pool is given the same requests for blocks in the same order: so many for whom, what is
published under which hash, what is given back. It chooses the blocks itself, so block ids are not
compared but what they hold: which cached content is evicted, which lookups then hit how far, and
what has to wait for room or for a cap on recovering blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hkvtool.engine.pool import BlockPool
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.fold import Fold

_SHOWN = 12
"""Differences of a kind that are listed; the rest are counted."""


@dataclass(frozen=True)
class Difference:
    """One decision that comes out otherwise."""

    pos: int
    kind: str
    request: str | None
    text: str
    recorded: Any = None
    decided: Any = None

    def as_json(self) -> dict[str, Any]:
        return {"event": self.pos, "kind": self.kind, "request": self.request, "text": self.text,
                "recorded": self.recorded, "decided": self.decided}  # fmt: skip


@dataclass
class Outcome:
    """What a run of decisions came to."""

    decisions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    evicted: dict[str, int] = field(default_factory=lambda: {"recorded": 0, "decided": 0})
    hit: dict[str, int] = field(default_factory=lambda: {"recorded": 0, "decided": 0})

    def note(self, difference: Difference) -> None:
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] <= _SHOWN:
            self.differences.append(difference)

    def as_json(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions, "evicted": self.evicted, "hit_tokens": self.hit,
            "differences": dict(self.counts), "first": [d.as_json() for d in self.differences],
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        evicted = f"recorded {self.evicted['recorded']:,}, here {self.evicted['decided']:,}"
        yield f"evicted hashes  {evicted}"
        yield f"tokens hit      recorded {self.hit['recorded']:,}, here {self.hit['decided']:,}"
        if not self.counts:
            yield "no decision differs"
        for kind, count in self.counts.items():
            yield ""
            yield f"{kind}: {count:,}"
            for one in self.differences:
                if one.kind == kind:
                    yield f"  event {one.pos}: {one.text}"
            if count > _SHOWN:
                yield f"  and {count - _SHOWN:,} more"


class _Redecider:
    """Device pools only: a lower tier has no free list that the trace shows."""

    def __init__(self, caps: Mapping[str, int]) -> None:
        self.caps = caps
        self.fold = Fold()
        self.outcome = Outcome()
        self.pools: dict[str, BlockPool] = {}
        self.mine: dict[tuple[str, int], int] = {}
        """The block that stands for a recorded one."""
        self.hashes: dict[Any, int] = {}
        self.recovering: dict[str, int] = {}
        self.dropped: set[int] = set()
        """Slots whose hashes were evicted, and which have not been taken yet."""

    def take(self, event: Event) -> None:
        if event.problem is not None:
            return
        _, pool = self.fold.place(event)
        decide = getattr(self, f"_{event.ev}", None)
        if decide is not None and event.ev in _DECISIONS:
            decide(event, pool)
        self.fold.apply(event)

    def _of(self, pool: Pool | None) -> BlockPool | None:
        if pool is None or pool.tier:
            return None
        found = self.pools.get(pool.name)
        if found is None:
            reserved = len(pool.reserved)
            found = BlockPool(pool.name, pool.medium, pool.blocks, reserved)
            self.pools[pool.name] = found
        return found

    def _table(self, event: Event) -> str:
        group = self.fold.group(event.get("group"))
        return group.table if group is not None else ""

    def _alloc(self, event: Event, pool: Pool | None) -> None:
        own = self._of(pool)
        if own is None or pool is None:
            return
        self.outcome.decisions += 1
        blocks = event["blocks"]
        lost = [b for b in blocks if self._cached(pool, b)]
        self.dropped.difference_update(self.fold.slot(pool, b) for b in blocks)
        self.outcome.evicted["recorded"] += len(lost)
        if own.available < len(blocks):
            self.outcome.note(Difference(
                event.pos, "must wait for room", event.req,
                f"{event.req} asks for {len(blocks)} blocks of {pool.name}, {own.available} "
                "can be had", len(blocks), own.available))  # fmt: skip
            return
        for block in blocks:
            self.mine.pop((pool.name, block), None)
        taken, _, evicted = own.take(self._table(event), [0] * len(blocks))
        count = sum(map(len, evicted.values()))
        self.outcome.evicted["decided"] += count
        for block, other in zip(blocks, taken, strict=True):
            self.mine[pool.name, block] = other
        if count != len(lost):
            self.outcome.note(Difference(
                event.pos, "evicts otherwise", event.req,
                f"{len(blocks)} blocks for {event.req} evict {len(lost)} hashes as recorded, "
                f"{count} here", len(lost), count))  # fmt: skip

    def _cached(self, pool: Pool, block: int) -> bool:
        """Whether, as recorded, a hash led to the block until just now. An engine says that it
        is evicted before it says that the block is taken."""
        slot = self.fold.find(pool, block)
        return slot is not None and (self.fold.st.live[slot] > 0 or slot in self.dropped)

    def _unpublish(self, event: Event, pool: Pool | None) -> None:
        group = self.fold.group(event.get("group"))
        where = pool or (group.pool if group else None)
        if where is None or event.get("reason") != "evict":
            return
        for block in event.get("blocks") or ():
            slot = self.fold.find(where, block)
            if slot is not None and self.fold.st.live[slot] > 0:
                self.dropped.add(slot)

    def _free(self, event: Event, pool: Pool | None) -> None:
        own = self._of(pool)
        if own is None or pool is None:
            return
        held = [self.mine.get((pool.name, b)) for b in event["blocks"]]
        own.release([b for b in held if b is not None and own.refs[b] > 0])

    def _touch(self, event: Event, pool: Pool | None) -> None:
        own = self._of(pool)
        if own is None or pool is None:
            return
        self.outcome.decisions += 1
        for block in event["blocks"]:
            other = self.mine.get((pool.name, block))
            if other is None:
                self.outcome.note(Difference(
                    event.pos, "nothing to hit", event.req,
                    f"{event.req} takes {pool.name}:{block} again, which is not here"))  # fmt: skip
            else:
                own.touch([other])

    def _publish(self, event: Event, pool: Pool | None) -> None:
        group = self.fold.group(event["group"])
        own = self._of(group.pool if group else None)
        if own is None or group is None:
            return
        for block, name in zip(event["blocks"], event["hashes"], strict=False):
            other = self.mine.get((group.pool.name, block))
            if other is not None:
                key = self.hashes.setdefault(name, len(self.hashes))
                if not own.cached(other):
                    own.publish(str(own.table[other]), key, other)

    def _lookup(self, event: Event, pool: Pool | None) -> None:
        self.outcome.decisions += 1
        for name, hit in event["hit"].items():
            group = self.fold.group(name)
            blocks = (event.get("blocks") or {}).get(name)
            if group is None or group.pool.tier or not blocks:
                continue
            here = self._run(group, blocks, hit)
            self.outcome.hit["recorded"] += hit
            self.outcome.hit["decided"] += here
            if here != hit:
                self.outcome.note(Difference(
                    event.pos, "hits otherwise", event.req,
                    f"{event.req} hits {hit} tokens of {name} as recorded, {here} here",
                    hit, here))  # fmt: skip

    def _run(self, group: Group, blocks: list[int], hit: int) -> int:
        """How far the same blocks' content is still cached here, counted as the group counts."""
        own = self._of(group.pool)
        assert own is not None
        found = 0
        for block in blocks:
            other = self.mine.get((group.pool.name, block))
            if other is None or not own.cached(other) or own.table[other] != group.table:
                break
            found += 1
        return hit if found == len(blocks) else min(hit, found * group.block_tokens)

    def _load_begin(self, event: Event, pool: Pool | None) -> None:
        cap = self.caps.get("recovering_blocks")
        count = len(event["blocks"])
        self.outcome.decisions += 1
        now = sum(self.recovering.values())
        if cap is not None and now + count > cap:
            self.outcome.note(Difference(
                event.pos, "must wait for the cap", event.req,
                f"{event.req} loads {count} blocks while {now} recover, the cap is {cap}",
                now + count, cap))  # fmt: skip
        handle = str(event["handle"])
        self.recovering[handle] = self.recovering.get(handle, 0) + count

    def _load_end(self, event: Event, pool: Pool | None) -> None:
        self.recovering.pop(str(event["handle"]), None)


_DECISIONS = frozenset(
    {"alloc", "free", "touch", "publish", "unpublish", "lookup", "load_begin", "load_end"}
)


def redecide(events: Iterable[Event], caps: Mapping[str, int]) -> Outcome:
    """Take every decision of a trace again; `caps` as ``--limit`` names them."""
    redecider = _Redecider(caps)
    for event in events:
        redecider.take(event.meant)
    return redecider.outcome
