"""Where two traces of the same work part, lane by lane.

A lane does one thing after the other, so that its events can be put side by side one by one; what
other lanes did meanwhile does not matter. Times and the recorder's own counts are left out. Hashes,
handles, edges and addresses are others in every recording: they are known by the order in which
each trace names them first.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from hkvtool.model.event import Event

_LEFT_OUT = frozenset({"ts", "seq", "note"})

_NAMED = {
    "hashes": "hash", "handle": "handle", "event": "edge", "values": "bytes", "key": "key",
    "pointers": "pointer",
}  # fmt: skip
"""Keys whose values mean nothing from one recording to the next, and what they name."""

_TRIMMED = 1 << 16
"""Events that were met and are still held, at most."""

_BLOCKS = frozenset({"blocks", "src", "dst", "peer", "failed", "front", "index", "free_order"})


@dataclass(slots=True)
class Lane:
    """One lane of both traces. `at` are the positions where they part, one of them None where a
    trace has no more events of the lane; both None where they do not part."""

    name: str
    same: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0])
    at: tuple[int | None, int | None] = (None, None)

    @property
    def parted(self) -> bool:
        return self.at != (None, None)

    def as_json(self) -> dict[str, Any]:
        return {
            "lane": self.name,
            "same": self.same,
            "events": self.counts,
            "diverges_at": list(self.at) if self.parted else None,
        }


class _Ahead:
    """Events that one trace is ahead of the other by: positions, and marks of what they say."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.marks = array("q")
        self.head = 0

    def __len__(self) -> int:
        return len(self.positions) - self.head

    def append(self, pos: int, mark: int) -> None:
        self.positions.append(pos)
        self.marks.append(mark)

    @property
    def first(self) -> tuple[int, int]:
        return self.positions[self.head], self.marks[self.head]

    def popleft(self) -> None:
        self.head += 1
        if self.head > _TRIMMED:
            del self.positions[: self.head], self.marks[: self.head]
            self.head = 0


class _Names:
    """Numbers for the names of one trace, by the order of their first sight."""

    def __init__(self, blocks: bool) -> None:
        self.blocks = blocks
        self.seen: dict[tuple[str, Any], int] = {}

    def number(self, domain: str, value: Any) -> Any:
        if isinstance(value, list):
            return [self.number(domain, one) for one in value]
        if isinstance(value, dict):
            return {key: self.number(domain, one) for key, one in value.items()}
        if value is None or isinstance(value, bool):
            return value
        return self.seen.setdefault((domain, value), len(self.seen))

    def canonical(self, event: Event) -> str:
        """The event as text in which nothing is left that differs from recording to recording."""
        said: dict[str, Any] = {}
        for key, value in event.meant.data.items():
            if key in _LEFT_OUT:
                continue
            if key in _NAMED:
                value = self.number(_NAMED[key], value)
            elif self.blocks and key in _BLOCKS and not isinstance(value, int):
                value = self.number("block", value)
            elif key in ("layout", "expects") and isinstance(value, dict):
                value = {k: v for k, v in value.items() if k != "base"}
            said[key] = value
        if event.problem is not None:
            said["raw"] = event.raw
        return json.dumps(said, sort_keys=True)


def divergence(
    one: Iterable[Event], other: Iterable[Event], *, rename_blocks: bool = False
) -> list[Lane]:
    """Every lane of two traces, those that part first in the order of the first trace.

    Both are read once, side by side; what one lane of one trace is ahead of the other is held.
    With `rename_blocks` blocks are known by the order of their first sight, too.
    """
    names = (_Names(rename_blocks), _Names(rename_blocks))
    lanes: dict[str, Lane] = {}
    ahead: dict[str, tuple[_Ahead, _Ahead]] = {}
    pairs: Iterator[tuple[Event | None, Event | None]] = zip_longest(one, other)
    for pair in pairs:
        for side, event in enumerate(pair):
            if event is None:
                continue
            lane = lanes.setdefault(event.actor, Lane(event.actor))
            lane.counts[side] += 1
            if lane.parted:
                continue
            mark = hash(names[side].canonical(event))
            queues = ahead.setdefault(lane.name, (_Ahead(), _Ahead()))
            queues[side].append(event.pos, mark)
            if _meet(lane, *queues):
                del ahead[lane.name]
    for name, queues in ahead.items():
        lane = lanes[name]
        if queues[0] or queues[1]:
            first, second = (queue.first[0] if queue else None for queue in queues)
            lane.at = (first, second)
    return sorted(lanes.values(), key=_order)


def _meet(lane: Lane, one: _Ahead, other: _Ahead) -> bool:
    """Put side by side what both have; True where the lane parts."""
    while one and other:
        (first, said), (second, also) = one.first, other.first
        if said != also:
            lane.at = (first, second)
            return True
        lane.same += 1
        one.popleft()
        other.popleft()
    return False


def _order(lane: Lane) -> tuple[bool, int]:
    return (not lane.parted, min((p for p in lane.at if p is not None), default=0))


def following(
    events: Iterable[Event], starts: Mapping[str, int], count: int
) -> dict[str, list[Event]]:
    """The first events of each lane from its start on; one pass, since there may be many lanes."""
    found: dict[str, list[Event]] = {lane: [] for lane in starts}
    wanting = len(starts)
    for event in events:
        if not wanting:
            break
        listed = found.get(event.actor)
        if listed is None or event.pos < starts[event.actor] or len(listed) == count:
            continue
        listed.append(event)
        wanting -= len(listed) == count
    return found


def differing(one: Event, other: Event) -> list[str]:
    """The keys in which two events differ that a recording does not name anew."""
    if one.ev != other.ev:
        return ["ev"]
    skipped = _LEFT_OUT | _NAMED.keys()
    keys = [*one.data, *(key for key in other.data if key not in one.data)]
    return [k for k in keys if k not in skipped and one.data.get(k) != other.data.get(k)]
