"""901 and 902: KV events on the wire against the pool they speak of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from hkvtool.analyzers.context import MAX_EVENTS, Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.state.declarations import Group

Place = tuple[str, str]
"""Group name and hash."""


class Wire(Silent):
    """Folds each side of the wire, and compares it with the pool at the end."""

    codes = frozenset({"HKV901", "HKV902"})
    kinds = frozenset({"state", "wire"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.sides: dict[str, Side] = {}
        self.told: Counter[Place] = Counter()
        """What a `state` alone tells of: no KV event of it is in the trace."""
        self._seen: Counter[Place] = Counter()

    def before(self, event: Event) -> None:
        if event.ev == "state":
            self._seen = self._pool()

    def after(self, event: Event) -> None:
        if event.ev == "state":
            self.told += self._pool() - self._seen
        if event.ev != "wire":
            return
        lane = str(event.get("lane", "recv"))
        name = lane if lane == "pub" else f"{lane} {event.actor}"
        side = self.sides.get(name)
        if side is None:
            side = self.sides[name] = Side(self, name, dict(self.told))
        side.apply(event)

    def _pool(self) -> Counter[Place]:
        """Live hashes of every group, copies counted."""
        ctx = self.ctx
        st = ctx.fold.st
        tables: dict[int, Group] = {}
        for group in ctx.fold.declared.groups.values():
            held = tables.get(group.table_id)
            if held is None or (group.participates and not group.serves):
                tables.setdefault(group.table_id, group)
        pool: Counter[Place] = Counter()
        for entry in range(st.h[2]):
            if st.e_live[entry] == 1:
                found = tables.get(st.e_table[entry])
                if found is not None:
                    name = str(ctx.fold.names.name("hash", st.e_hash[entry]))
                    pool[found.name, name] += 1
        return pool

    def finish(self) -> None:
        if not self.sides or self.ctx.lost:
            return
        pool = self._pool()
        published = self.sides.get("pub")
        reference: Counter[Place] = pool
        if published is not None:
            self._compare(published, pool, "the pool")
            reference = Counter(published.held)
        for name, side in self.sides.items():
            if name != "pub":
                what = "what was published" if published is not None else "the pool"
                self._compare(side, reference, what)

    def _compare(self, side: Side, reference: Counter[Place], what: str) -> None:
        held: Mapping[Place, int] = side.held
        if side.by_medium:
            held, reference = self._by_medium(held), self._by_medium(reference)
        wrong = [
            place
            for place in dict.fromkeys([*held, *reference])
            if held.get(place, 0) != reference.get(place, 0) and side.speaks_of(place)
        ]
        if not wrong:
            return
        ctx = self.ctx
        events: list[int] = []
        slots: list[int] = []
        for place in wrong:
            events += side.touched.get(place, [])[-2:]
            slots += self._slots(place)
        if not events:
            events = [side.last]
        shown = ", ".join(
            f"{h} of {g}: {held.get((g, h), 0)} instead of {reference.get((g, h), 0)}"
            for g, h in wrong[:3]
        )
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        ctx.report(
            "HKV902",
            f"the KV events {side.title} do not add up to {what}: {shown}{more}",
            sorted(set(events))[:MAX_EVENTS],
            slots=slots,
            group=ctx.fold.group(wrong[0][0]),
            cause=side.disturbed,
            believed={f"{g}:{h}": held.get((g, h), 0) for g, h in wrong[:8]},
            actual={f"{g}:{h}": reference.get((g, h), 0) for g, h in wrong[:8]},
        )

    def _by_medium(self, held: Mapping[Place, int]) -> Counter[Place]:
        """What is held on each medium, whichever group holds it: a stream that names no groups
        says no more than that."""
        groups = self.ctx.fold.declared.groups
        found: Counter[Place] = Counter()
        for (where, name), count in held.items():
            group = groups.get(where)
            found[f"medium {group.pool.medium}" if group else where, name] |= int(count > 0)
        return found

    def _slots(self, place: Place) -> list[int]:
        """Blocks that ever carried a hash, of the group's table or any."""
        ctx = self.ctx
        group = ctx.fold.group(place[0])
        st = ctx.fold.st
        return [
            st.e_slot[e]
            for e in range(st.h[2])
            if str(ctx.fold.names.name("hash", st.e_hash[e])) == place[1]
            and (group is None or st.e_table[e] == group.table_id)
        ]


class Side:
    """One side of the wire: what its events, applied in the order seen, add up to."""

    def __init__(self, wire: Wire, name: str, held: dict[Place, int]) -> None:
        self.wire = wire
        self.title = "as published" if name == "pub" else f"as applied ({name.split(' ', 1)[1]})"
        self.held: dict[Place, int] = held
        self.touched: dict[Place, list[int]] = {}
        self.groups: set[str] = set()
        self.media: set[str] = set()
        self.by_medium = False
        self.newest: int | None = None
        self.last = 0
        self.disturbed: Finding | None = None
        self.seen: set[Hashable] = set()
        self.consumer = name != "pub"

    def speaks_of(self, place: Place) -> bool:
        """Whether a difference there is this side's: of a medium it never mentions it may carry
        nothing, nor of what only lower tiers hold."""
        if self.by_medium:
            return place[0] in self.media
        group = self.wire.ctx.fold.declared.groups.get(place[0])
        if place[0] in self.groups or group is None:
            return place[0] in self.groups
        return group.participates and f"medium {group.pool.medium}" in self.media

    def apply(self, event: Event) -> None:
        self._sequence(event)
        self.last = event.pos
        group = self.wire.ctx.fold.group(event.get("group"))
        if "medium" in event or group is not None:
            where = event.get("medium") or (group.pool.medium if group else "")
            self.media.add(f"medium {where}")
        kind = event["kind"]
        groups = self._groups(event)
        if kind == "cleared":
            media = {f"medium {event['medium']}"} if "medium" in event else self.media
            gone = {*groups, *(media if "group" not in event else ())}
            for place in [p for p in self.held if p[0] in gone]:
                del self.held[place]
                self.touched.setdefault(place, []).append(event.pos)
            return
        for where in [str(event["group"])] if "group" in event else self._unnamed(event):
            self.groups.add(where)
            for name in event.get("hashes") or ():
                place = (where, str(name))
                self.touched.setdefault(place, []).append(event.pos)
                count = self.held.get(place, 0) + (1 if kind == "stored" else -1)
                if count > 0:
                    self.held[place] = count
                else:
                    self.held.pop(place, None)

    def _groups(self, event: Event) -> list[str]:
        """Groups an event speaks of: the one named, else those on its medium."""
        declared = self.wire.ctx.fold.declared.groups
        if "group" in event:
            return [str(event["group"])]
        medium = event.get("medium")
        return [g.name for g in declared.values() if medium is None or g.pool.medium == medium]

    def _unnamed(self, event: Event) -> list[str]:
        """Where an event belongs that names no group: to its medium as a whole."""
        self.by_medium = True
        self.media.add(f"medium {event.get('medium', 'gpu')}")
        return [f"medium {event.get('medium', 'gpu')}"]

    def _sequence(self, event: Event) -> None:
        """901: a gap, the same again, or an older one over a newer."""
        wseq = event.get("wseq")
        if wseq is None or not self.consumer:
            return
        before, self.newest = self.newest, wseq if self.newest is None else max(self.newest, wseq)
        content = _content(event)
        if before is None or wseq > before:
            self.seen.clear()
        again = content in self.seen
        self.seen.add(content)
        # One batch of the wire carries one number and several events.
        if before is None or wseq == before + 1 or (wseq == before and not again):
            return
        if wseq > before + 1:
            if self.wire.ctx.lost_since(self.last):
                # What it applied in between may be what the recorder lost.
                return
            what = f"jumps from {before} to {wseq}"
        elif wseq == before:
            what = f"applies {wseq} twice"
        else:
            what = f"applies {wseq} over the newer {before}"
        ctx = self.wire.ctx
        if self.disturbed is not None and wseq <= before:
            if len(self.disturbed.events) < MAX_EVENTS:
                self.disturbed.events.append(event.pos)
            return
        self.disturbed = ctx.report(
            "HKV901",
            f"the consumer of KV events {what}",
            [self.last, event.pos],
            group=ctx.fold.group(event.get("group")),
            check=self.last,
            use=event.pos,
            believed={"next": before + 1},
            actual={"applied": wseq},
        )


def _content(event: Event) -> Hashable:
    return (event["kind"], str(event.get("group")), tuple(map(str, event.get("hashes") or ())))
