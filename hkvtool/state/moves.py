"""What brought content where: loads, stores, copies and clears, remembered by what they moved."""

from __future__ import annotations

from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.fold import Fold, Transfer

Share = tuple[int, int]
"""One group's part of a block: slot and component. A tier holds a group's content under the
component of the group, so groups of several engines that share a tier meet there."""


def share(slot: int, group: Group) -> Share:
    return (slot, group.component)


def copy_slots(fold: Fold, event: Event) -> tuple[list[int], list[int]]:
    """Source and destination slots of a `copy`."""
    sides: list[list[int]] = []
    for key, blocks in (("src_group", "src"), ("dst_group", "dst")):
        group = fold.group(event.get(key, event.get("group")))
        pool = group.pool if group else fold.declared.pools.get(str(event.get("pool")))
        sides.append([] if pool is None else [fold.slot(pool, b) for b in event[blocks]])
    return sides[0], sides[1]


class Moves:
    """Kept up to date event by event, after the fold."""

    def __init__(self, fold: Fold) -> None:
        self.fold = fold
        self.running: dict[str, Transfer] = {}
        self.stored_from: dict[int, dict[Group, tuple[Event, int]]] = {}
        """The last store out of a block of each group, with the generation that it took."""
        self.stored_to: dict[Share, Event] = {}
        """The last store into a block of a lower tier."""
        self.loads: dict[int, Event] = {}
        self.share_loads: dict[Share, Event] = {}
        self.copies: dict[int, Event] = {}
        self.clears: dict[int, Event] = {}
        self.made_as: dict[int, str] = {}
        """Form of the group that content (by its id) was copied from, if it was another."""

    def follow(self, event: Event) -> None:
        """Take one event into account."""
        ev = event.ev
        if ev in ("store_begin", "load_begin"):
            self._begun(event)
        elif ev in ("store_end", "load_end"):
            self.running.pop(str(event["handle"]), None)
        elif ev == "copy":
            self._copied(event)
        elif ev == "zero":
            _, pool = self.fold.place(event)
            if pool is not None:
                for block in event["blocks"]:
                    self.clears[self.fold.slot(pool, block)] = event

    def load(self, slot: int) -> Event | None:
        """The last load into a block in its present generation."""
        return self._present(self.loads.get(slot), slot)

    def load_of(self, slot: int, group: Group) -> Event | None:
        """The last load of one group's share of a block in its present generation."""
        return self._present(self.share_loads.get(share(slot, group)), slot)

    def _present(self, event: Event | None, slot: int) -> Event | None:
        if event is None or event.pos < self.fold.st.alloc_pos[slot]:
            return None
        return event

    def peers(self, begin: Event) -> list[int]:
        """Slots at the far side of a transfer."""
        far = self.fold.transfers[str(begin["handle"])].far
        return [] if far is None else [self.fold.slot(far, b) for b in begin.get("peer") or ()]

    def store_to(self, slots: list[int], group: Group) -> Event | None:
        """What filled a group's share of one of these blocks of a lower tier."""
        stores = (self.stored_to.get(share(s, group)) for s in slots)
        return next((s for s in stores if s is not None), None)

    def _begun(self, event: Event) -> None:
        fold = self.fold
        name = str(event["handle"])
        transfer = fold.transfers[name]
        group = transfer.group
        self.running[name] = transfer
        near = [s for b in event["blocks"] if (s := fold.slot(group.pool, b)) >= 0]
        if event.ev == "load_begin":
            for slot in near:
                self.loads[slot] = self.share_loads[share(slot, group)] = event
            return
        for slot in self.peers(event):
            self.stored_to[share(slot, group)] = event
        for slot in near:
            self.stored_from.setdefault(slot, {})[group] = (event, fold.st.gen[slot])

    def _copied(self, event: Event) -> None:
        fold = self.fold
        source = fold.group(event.get("src_group", event.get("group")))
        target = fold.group(event.get("dst_group", event.get("group")))
        for slot in copy_slots(fold, event)[1]:
            if slot < 0:
                continue
            self.copies[slot] = event
            if source is not None and target is not None and source.form != target.form:
                content = fold.st.cid[fold.component(slot, target)]
                if content > 0:
                    self.made_as[content] = source.form
