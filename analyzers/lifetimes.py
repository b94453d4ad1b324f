"""How long blocks live, in which form, and how much is on its way at once.

Time is the trace's clock where it has one, else positions. Everything is kept in a few numbers a
group: sums over time, and histograms whose buckets grow by a fifth, so that a quantile is right
within a tenth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state import arrays as a
from hkvtool.state.declarations import Group
from hkvtool.state.serving import live_entries

_GROWTH = math.log(1.2)

_LOOKED_AT = frozenset({
    "alloc", "touch", "free", "publish", "unpublish", "load_begin", "load_end",
    "store_begin", "store_end", "state", "reset",
})  # fmt: skip


class Spans:
    """Lengths of time, as a histogram."""

    def __init__(self) -> None:
        self.count = 0
        self._buckets: dict[int, int] = {}

    def add(self, length: int) -> None:
        self.count += 1
        bucket = -1 if length <= 0 else int(math.log(length) / _GROWTH)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def quantile(self, share: float) -> float | None:
        """The length that `share` of them do not exceed; None where there are none."""
        left = share * self.count
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                return 0.0 if bucket < 0 else math.exp((bucket + 0.5) * _GROWTH)
        return None


class Level:
    """A number that changes over time: its mean by time, its peak and when that was."""

    def __init__(self) -> None:
        self.now = 0
        self.peak = 0
        self.peak_pos = 0
        self._sum = 0
        self._since: int | None = None
        self._first: int | None = None

    def change(self, by: int, at: int, pos: int) -> None:
        self.settle(at)
        self.now += by
        if self.now > self.peak:
            self.peak, self.peak_pos = self.now, pos

    def settle(self, at: int) -> None:
        """Count the time up to `at`."""
        if self._since is not None:
            self._sum += self.now * max(0, at - self._since)
        else:
            self._first = at
        self._since = at

    def mean(self, first: int, last: int) -> float:
        """Over the whole of a trace from `first` to `last`."""
        self.settle(last)
        return self._sum / max(1, last - first)


@dataclass(slots=True)
class Life:
    """The blocks of one group. `held` is the time from an allocation to where nobody holds the
    block any more, `kept` from there to its next allocation: how long its content was there to be
    hit."""

    group: str
    form: str
    pool: str
    allocated: int = 0
    hit_again: int = 0
    held: Spans = field(default_factory=Spans)
    kept: Spans = field(default_factory=Spans)


class Lifetimes(Silent):
    """Follows every block from allocation to allocation."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.first: int | None = None
        self.last = 0
        self.lives: dict[str, Life] = {}
        self.forms: dict[tuple[str, str], Level] = {}
        """Blocks by form and by what they are: held, cached or recovering."""
        self.recovering = Level()
        self.flying = Level()
        self.bytes_out = 0
        self.bytes_in = 0
        self.transfers = {"store": 0, "load": 0}
        self._state: dict[int, tuple[str, str]] = {}
        self._freed: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._moving: dict[str, tuple[int, int]] = {}
        self._touched: set[int] = set()

    def before(self, event: Event) -> None:
        self._touched = set()
        ts = event.get("ts")
        at = event.pos if ts is None else ts
        self.first = at if self.first is None else self.first
        self.last = max(self.last, at)
        if event.ev == "alloc":
            self._allocated(event)
        elif event.ev == "unpublish":
            self._touched = set(self._of_hashes(event))
        elif event.ev in ("load_end", "store_end"):
            self._ended(event)

    def after(self, event: Event) -> None:
        if event.ev not in _LOOKED_AT:
            return
        if event.ev in ("store_begin", "load_begin"):
            self._begun(event)
        slots: Iterable[int] = [s for s in self.ctx.slots(event) if s >= 0]
        if event.ev == "reset":
            slots = list(self._state)
        for slot in {*slots, *self._touched}:
            self._see(slot, event)

    def finish(self) -> None:
        for level in (*self.forms.values(), self.recovering, self.flying):
            level.settle(self.last)

    # --- blocks ------------------------------------------------------------------------------

    def _life(self, group: Group) -> Life:
        life = self.lives.get(group.name)
        if life is None:
            life = self.lives[group.name] = Life(group.name, group.form, group.pool.name)
        return life

    def _allocated(self, event: Event) -> None:
        group = self.ctx.fold.group(event.get("group"))
        for slot in self.ctx.slots(event):
            if slot < 0:
                continue
            freed = self._freed.pop(slot, None)
            owner = self._owner(slot)
            if freed is not None and owner is not None:
                self._life(owner).kept.add(self.last - freed)
            self._taken[slot] = self.last
            if group is not None:
                self._life(group).allocated += 1

    def _owner(self, slot: int) -> Group | None:
        """The first group of the table that a block was last allocated for."""
        table = self.ctx.fold.st.table[slot]
        pool = self.ctx.fold.pool_of(slot)
        for group in self.ctx.fold.declared.groups.values():
            if group.table_id == table and group.pool is pool:
                return group
        return None

    def _of_hashes(self, event: Event) -> Iterable[int]:
        """Blocks that the hashes of an event lead to."""
        names, st = self.ctx.fold.names, self.ctx.fold.st
        for name in event.get("hashes") or ():
            number = names.find("hash", name)
            entry = st.first_of_hash[number] if number >= 0 else -1
            while entry >= 0:
                yield int(st.e_slot[entry])
                entry = st.e_next_hash[entry]

    def _see(self, slot: int, event: Event) -> None:
        """What a block is now, and since when it is held or left."""
        st = self.ctx.fold.st
        group = self._owner(slot)
        now = None if group is None else self._is(slot, group)
        before = self._state.get(slot)
        held = st.refs[slot] > 0
        if group is not None and held and slot in self._freed:
            del self._freed[slot]
            self._taken[slot] = self.last
            self._life(group).hit_again += 1
        elif group is not None and not held and slot in self._taken:
            self._life(group).held.add(self.last - self._taken.pop(slot))
            self._freed[slot] = self.last
        if now == before:
            return
        for key, by in ((before, -1), (now, 1)):
            if key is not None:
                self.forms.setdefault(key, Level()).change(by, self.last, event.pos)
                if key[1] == "recovering":
                    self.recovering.change(by, self.last, event.pos)
        if now is None:
            self._state.pop(slot, None)
        else:
            self._state[slot] = now

    def _is(self, slot: int, group: Group) -> tuple[str, str] | None:
        st = self.ctx.fold.st
        form = "on_disk" if group.pool.tier or st.loads[slot] > 0 else group.form
        if st.loads[slot] > 0:
            return form, "recovering"
        if st.refs[slot] > 0:
            return form, "held"
        cached = next(live_entries(self.ctx.fold, slot), None) is not None
        return (form, "cached") if cached and st.known[slot] != a.UNKNOWN else None

    # --- transfers ---------------------------------------------------------------------------

    def _begun(self, event: Event) -> None:
        size = event.get("bytes") or 0
        if event.ev == "store_begin":
            self.bytes_out += size
            self.transfers["store"] += 1
        else:
            self.bytes_in += size
            self.transfers["load"] += 1
        self._moving[str(event["handle"])] = (size, event.pos)
        self.flying.change(size, self.last, event.pos)

    def _ended(self, event: Event) -> None:
        handle = str(event["handle"])
        moving = self._moving.pop(handle, None)
        transfer = self.ctx.fold.transfers.get(handle)
        if moving is not None:
            self.flying.change(-moving[0], self.last, event.pos)
        if transfer is not None:
            pool = transfer.group.pool
            slots = [self.ctx.fold.slot(pool, b) for b in transfer.begin["blocks"]]
            slots += self.ctx.moves.peers(transfer.begin)
            self._touched = {slot for slot in slots if slot >= 0}

    # --- what it comes to --------------------------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        first = 0 if self.first is None else self.first
        limits = self.ctx.fold.declared.limits
        caps = {
            k: e[k] for e in limits for k in ("recovering_blocks", "recovering_bytes") if k in e
        }
        return {
            "blocks": [
                {
                    "group": life.group, "form": life.form, "pool": life.pool,
                    "allocated": life.allocated, "hit_again": life.hit_again,
                    "held": _quantiles(life.held), "kept": _quantiles(life.kept),
                }
                for life in self.lives.values()
            ],
            "forms": [
                {
                    "form": form, "state": state,
                    "mean_blocks": round(level.mean(first, self.last), 3),
                    "peak_blocks": level.peak, "peak_at": level.peak_pos,
                }
                for (form, state), level in sorted(self.forms.items())
            ],
            "recovering": {
                "mean_blocks": round(self.recovering.mean(first, self.last), 3),
                "peak_blocks": self.recovering.peak, "peak_at": self.recovering.peak_pos,
                "cap": caps.get("recovering_blocks"),
            },
            "migration": {
                "stores": self.transfers["store"], "loads": self.transfers["load"],
                "bytes_out": self.bytes_out, "bytes_in": self.bytes_in,
                "peak_bytes_in_flight": self.flying.peak, "peak_at": self.flying.peak_pos,
                "cap": caps.get("recovering_bytes"),
            },
        }  # fmt: skip


def _quantiles(spans: Spans) -> dict[str, Any]:
    found = {f"p{int(100 * share)}": spans.quantile(share) for share in (0.5, 0.9, 0.99)}
    told = {name: None if value is None else round(value) for name, value in found.items()}
    return {"count": spans.count, **told}
