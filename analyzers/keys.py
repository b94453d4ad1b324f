"""104: one hash for unequal inputs, or a key that lacks an input it must hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.serving import hashed
from hkvtool.state.wording import shown

Key = Sequence[str | int]


class Published(NamedTuple):
    """A hash as an event published it, the `place`-th of its list."""

    event: Event
    place: int

    @property
    def key(self) -> Key:
        named: Key = self.event["key"]
        return named


class Keys(Silent):
    """Compares what hashes were published for with what else they are taken for."""

    codes = frozenset({"HKV104"})
    kinds = frozenset({"publish", "load_begin", "lookup"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.by_hash: dict[tuple[str, str], Published] = {}
        self.by_slot: dict[int, Published] = {}

    def before(self, event: Event) -> None:
        if event.get("key") is None:
            return
        if event.ev == "publish":
            self._publish(event)
        elif event.ev == "load_begin":
            self._asked_for(event)
        elif event.ev == "lookup":
            self._looked_up(event)

    def _publish(self, event: Event) -> None:
        group = self.ctx.fold.group(event["group"])
        if group is None:
            return
        clash: list[int] = []
        earlier: Published | None = None
        slots = self.ctx.slots(event)
        for i, (slot, name) in enumerate(zip(slots, event["hashes"], strict=False)):
            now = Published(event, i)
            place = (group.table, str(name))
            held = self.by_hash.setdefault(place, now)
            if _unequal(held, now):
                clash.append(slot)
                earlier = earlier or held
            else:
                self.by_hash[place] = now
            if slot >= 0:
                self.by_slot[slot] = now
        if earlier is not None:
            clash += [self.ctx.fold.slot(group.pool, b) for b in earlier.event["blocks"]]
            self._clash(event, group, clash, earlier)

    def _asked_for(self, event: Event) -> None:
        """A load asks by a hash for inputs other than those it was published for."""
        hashes = event.get("hashes")
        group = self.ctx.fold.group(event["group"])
        far = self.ctx.fold.declared.pools.get(str(event.get("from")))
        if not hashes or group is None or far is None:
            return
        there = self.ctx.fold.declared.mirror(group, far)
        for i, name in enumerate(hashes):
            for side in (there, group):
                held = self.by_hash.get((side.table, str(name))) if side else None
                if held is not None and inputs(held.key) != inputs(event["key"]):
                    self._clash(event, group, self.ctx.slots(event)[i : i + 1], held)
                    return

    def _looked_up(self, event: Event) -> None:
        for name, tokens in event["hit"].items():
            group = self.ctx.fold.group(name)
            blocks = (event.get("blocks") or {}).get(name)
            if group is not None and blocks and tokens > 0:
                slots = [self.ctx.fold.slot(group.pool, b) for b in blocks]
                self._wrong_inputs(event, group, slots)

    def _wrong_inputs(self, event: Event, group: Group, slots: list[int]) -> None:
        """A lookup for some inputs finds blocks that were published for others."""
        for slot in slots:
            held = self.by_slot.get(slot)
            if held is None or not hashed(self.ctx.fold, group, slot):
                continue
            if inputs(held.key) != inputs(event["key"]):
                self._clash(event, group, slots, held)
                return

    def _clash(self, event: Event, group: Group, slots: list[int], held: Published) -> None:
        key: Key = event["key"]
        unlike = set(map(str, held.key)) ^ set(map(str, key))
        blocks = shown([self.ctx.fold.block_of[s] for s in slots if s >= 0])
        self.ctx.report(
            "HKV104",
            f"unequal inputs share one hash in group {group.name}: {', '.join(sorted(unlike))} "
            f"(blocks {blocks})",
            [held.event.pos, event.pos],
            slots=slots,
            group=group,
            request=event.req,
            check=held.event.pos,
            use=event.pos,
            believed={"key": list(key)},
            actual={"key": list(held.key)},
        )


def _unequal(one: Published, other: Published) -> bool:
    """Whether two publications of one hash name different inputs.

    A digest of the tokens covers the whole range published, so it compares only where the hash
    is the last of equal ranges.
    """
    a, b = one.event, other.event
    whole = one.place == len(a["blocks"]) - 1 and other.place == len(b["blocks"]) - 1
    whole = whole and a.get("tokens") == b.get("tokens")
    return inputs(one.key, tokens=whole) != inputs(other.key, tokens=whole)


def inputs(key: Key, *, tokens: bool = False) -> frozenset[str]:
    return frozenset(str(k) for k in key if tokens or not str(k).startswith("tokens="))
