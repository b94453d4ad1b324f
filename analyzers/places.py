"""Who touches which bytes: the accesses of one place that a later one may race with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hkvtool.model.event import Event
from hkvtool.state.accesses import Access, Span
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp

KEPT = 64
"""Accesses remembered of a lane in one place, or of one buffer; the oldest are forgotten first."""

TRANSFERS = -2
"""Stands for the lanes of transfers, each of which does one thing."""


@dataclass(slots=True)
class Touch:
    """One access of one place."""

    access: Access
    slots: tuple[int, int] | None
    stamp: Stamp
    event: Event
    slot: int
    gen: int

    def overlaps(self, other: Touch) -> bool:
        """The two touch the same bytes of the place."""
        if not self.access.meets(other.access):
            return False
        one, two = self.slots, other.slots
        if one is None or two is None or self.access.group is not other.access.group:
            return True
        return one[0] < two[1] and two[0] < one[1]


class Place:
    """Accesses of one place that a later one may race with, lane by lane in order.

    A lane does one thing after the other. So what an access of a lane is ordered before, all
    earlier ones of the lane are, and an access that is like an earlier one of its lane takes its
    place: whoever comes after the later has come after the earlier.
    """

    __slots__ = ("lanes",)

    def __init__(self) -> None:
        self.lanes: dict[tuple[int, bool], dict[tuple[object, ...], Touch]] = {}
        """By lane, and by whether they write: reads never race with reads."""

    def unordered(self, touch: Touch, order: Order) -> list[Touch]:
        """What is not ordered before an access, the latest first."""
        found: list[Touch] = []
        access, stamp = touch.access, touch.stamp
        writes_now, before = access.write, order.before
        own = stamp.lane if access.span is Span.LANE else None
        for (lane, writes), kept in self.lanes.items():
            if lane == own or not (writes or writes_now):
                continue
            for earlier in reversed(kept.values()):
                if not before(earlier.stamp, stamp):
                    found.append(earlier)
                elif lane != TRANSFERS:
                    break
        if len(found) > 1:
            found.sort(key=lambda t: -t.event.pos)
        return found

    def keep(self, touch: Touch, order: Order) -> None:
        """Remember an access; a write makes moot what it surely comes after and overwrites."""
        access, slots = touch.access, touch.slots
        lane = TRANSFERS
        like: tuple[object, ...] = (touch.event.pos,)
        if access.span is Span.LANE:
            lane = touch.stamp.lane
            like = (touch.gen, touch.slot, touch.event.data.get("req"),
                    access.group, access.part, slots)  # fmt: skip
        kept = self.lanes.get((lane, access.write))
        if kept is None:
            kept = self.lanes[lane, access.write] = {}
        if access.write and slots is None:
            for others in self.lanes.values():
                _drop(others, lambda t: t.overlaps(touch) and order.before(t.stamp, touch.stamp))
        elif access.write and access.group and slots == (0, access.group.block_tokens):
            if lane != TRANSFERS:
                _drop(kept, lambda t: _within(t.access, access))
        kept.pop(like, None)
        kept[like] = touch
        if len(kept) > KEPT:
            del kept[next(iter(kept))]


def _within(one: Access, other: Access) -> bool:
    return one.group is other.group and one.part == other.part


def _drop(kept: dict[tuple[object, ...], Touch], moot: Callable[[Touch], bool]) -> None:
    for key in [key for key, touch in kept.items() if moot(touch)]:
        del kept[key]
