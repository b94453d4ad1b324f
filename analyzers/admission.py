"""5xx: admission cap. What is on its way must be bounded, and work must go on.

Progress (503, 504) has a module of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Silent
from hkvtool.model.event import Event
from hkvtool.model.rules import Severity
from hkvtool.state import arrays as a

Name = tuple[str | int, ...]
"""Content that travels, by what it can be known again."""


def limits_of(ctx: Context, key: str, group: str | None) -> list[tuple[Event, int]]:
    """Limits in force on a group: its own and those of all."""
    found: dict[str | None, tuple[Event, int]] = {}
    for event in ctx.fold.declared.limits:
        named = event.get("group")
        if key in event and (named is None or str(named) == group):
            found[None if named is None else str(named)] = (event, event[key])
    return list(found.values())


class Admission(Silent):
    """Caps on blocks and bytes in flight, and thrash."""

    codes = frozenset({"HKV501", "HKV502"})
    kinds = frozenset({"store_begin", "load_begin", "store_end", "load_end", "use"})

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self.flying: dict[str, tuple[Event, int]] = {}
        self.over: set[str] = set()
        self.trips: dict[Name, list[Event]] = {}
        self.carried: dict[int, list[Name]] = {}
        """Names that count a transfer, by where it began."""
        self.travelled: dict[tuple[str | int, int], set[int]] = {}
        """Where transfers of a block began, by group and block."""

    def after(self, event: Event) -> None:
        ev = event.ev
        if self.ctx.after_loss(event):
            # Ends and uses of what went before may be among what was lost.
            for known in (self.flying, self.over, self.trips, self.carried, self.travelled):
                known.clear()
        if ev in ("store_begin", "load_begin"):
            self._begin(event)
        elif ev in ("store_end", "load_end"):
            self.flying.pop(str(event["handle"]), None)
            self.over.clear()
        elif ev == "use":
            self._used(event)

    def forget(self, before: int) -> None:
        """Content that no live hash names has gone from everywhere, and cannot come in again."""
        st, names = self.ctx.fold.st, self.ctx.fold.names
        live = {
            str(names.name("hash", st.e_hash[e])) for e in range(st.h[a.ENTRIES]) if st.e_live[e]
        }
        for name, trips in list(self.trips.items()):
            if trips[-1].pos < before and isinstance(name[1], str) and len(name) == 2:
                if name[1] not in live:
                    del self.trips[name]
        for pos, carried in list(self.carried.items()):
            kept = [n for n in carried if any(e.pos == pos for e in self.trips.get(n, ()))]
            if kept:
                self.carried[pos] = kept
            else:
                del self.carried[pos]
        for block, begun in list(self.travelled.items()):
            begun.intersection_update(self.carried)
            if not begun:
                del self.travelled[block]

    def _begin(self, event: Event) -> None:
        self.flying[str(event["handle"])] = (event, event.get("bytes") or 0)
        group = str(event["group"])
        for limit, cap in limits_of(self.ctx, "recovering_blocks", group):
            self._cap_blocks(event, limit, cap)
        for limit, cap in limits_of(self.ctx, "recovering_bytes", group):
            self._cap_bytes(event, limit, cap)
        self._trip(event)

    def _cap_blocks(self, event: Event, limit: Event, cap: int) -> None:
        if event.ev != "load_begin":
            return
        st = self.ctx.fold.st
        only = limit.get("group")
        recovering: set[int] = set()
        begins: list[int] = []
        for begin, _ in self.flying.values():
            if begin.ev != "load_begin" or (only is not None and begin["group"] != only):
                continue
            slots = self.ctx.slots(begin)
            recovering.update(s for s in slots if s >= 0 and st.loads[s] > 0)
            begins.append(begin.pos)
        count = len(recovering)
        if count > cap and "blocks" not in self.over:
            self.over.add("blocks")
            self.ctx.report(
                "HKV501",
                f"{count} blocks are recovering at once, {cap} are allowed",
                [limit.pos, *begins[-6:]],
                slots=self.ctx.slots(event),
                group=self.ctx.fold.group(event["group"]),
                request=event.req,
                check=limit.pos,
                use=event.pos,
                believed={"recovering_blocks": cap},
                actual={"recovering_blocks": count},
            )

    def _cap_bytes(self, event: Event, limit: Event, cap: int) -> None:
        only = limit.get("group")
        flying = [
            (begin, size) for begin, size in self.flying.values()
            if only is None or begin["group"] == only
        ]  # fmt: skip
        total = sum(size for _, size in flying)
        if total > cap and "bytes" not in self.over:
            self.over.add("bytes")
            self.ctx.report(
                "HKV502",
                f"{total:,} transfer bytes are in flight, {cap:,} are allowed",
                [limit.pos, *(begin.pos for begin, _ in flying[-6:])],
                slots=self.ctx.slots(event),
                group=self.ctx.fold.group(event["group"]),
                request=event.req,
                check=limit.pos,
                use=event.pos,
                believed={"recovering_bytes": cap},
                actual={"in_flight_bytes": total},
            )

    def _trip(self, event: Event) -> None:
        """502 as a warning: the same content goes out and in without a use between."""
        group = event["group"]
        allowed = limits_of(self.ctx, "thrash_trips", str(group))
        patience = allowed[-1][1] if allowed else 2
        carried: list[Name] = []
        vain: list[list[Event]] = []
        for name in self._names(event):
            held = self.trips.get(name) or []
            if not held and event.ev == "load_begin":
                continue
            if not held or held[-1].ev != event.ev:
                held.append(event)
                self.trips[name] = held
                carried.append(name)
            if event.ev == "load_begin" and 0 < patience <= len(held) // 2:
                vain.append(self.trips.pop(name))
        if carried:
            self.carried[event.pos] = carried
            for block in event["blocks"]:
                self.travelled.setdefault((group, block), set()).add(event.pos)
        if vain:
            self.ctx.report(
                "HKV502",
                f"the same content of group {group} went out and came in {len(vain[0]) // 2} times "
                "without a use between",
                [e.pos for e in vain[0]],
                slots=self.ctx.slots(event),
                group=self.ctx.fold.group(group),
                request=event.req,
                use=event.pos,
                severity=Severity.WARNING,
            )

    def _used(self, event: Event) -> None:
        """Content that is used was not moved in vain, in whichever block it travelled."""
        if not self.trips:
            return
        group = event["group"]
        for name in self._names(event):
            self.trips.pop(name, None)
            if isinstance(name[1], str) and len(name) == 2:
                for copies in self._copies(group):
                    self.trips.pop((copies, name[1]), None)
        for block in event["blocks"]:
            for pos in self.travelled.pop((group, block), ()):
                for name in self.carried.pop(pos, ()):
                    if any(e.pos == pos for e in self.trips.get(name, ())):
                        del self.trips[name]

    def _copies(self, group: str) -> Iterator[str]:
        """The groups of lower tiers that what is used of a group may have come through."""
        used = self.ctx.fold.group(group)
        for other in self.ctx.fold.declared.groups.values():
            if used is not None and not other.participates and other.form == used.form:
                yield other.name

    def _names(self, event: Event) -> Iterator[Name]:
        """What travels, by hash where one is live or stated, else by block."""
        st, names = self.ctx.fold.st, self.ctx.fold.names
        group = event["group"]
        stated, peers = event.get("hashes") or (), event.get("peer") or ()
        for i, slot in enumerate(self.ctx.slots(event)):
            entry = st.first_entry[slot] if slot >= 0 else -1
            if i < len(stated):
                yield (group, str(stated[i]))
            elif entry >= 0 and st.e_live[entry] == 1:
                yield (group, str(names.name("hash", st.e_hash[entry])))
            elif i < len(peers):
                yield (group, "peer", peers[i])
            else:
                yield (group, slot)
