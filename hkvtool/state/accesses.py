"""Which bytes an event touches: pool, place, component and part, read or written, and how long.

Source: trace-format `hkv/1`, *Time and order* and *Names*. A place of a pool holds the same
bytes for every group, except that groups of one block table lie side by side in it. What the
format leaves open, and how it is taken here:

- The far side of a transfer is the component of the group that mirrors the near one there, if
  the whole block table is mirrored by groups of their own, else of the near group itself.
- Ids below zero are padding and touch nothing. Neither does an access whose pool is unknown.
- Only the ids that the event names are touched: what a `seal` reads of its tail, or a `launch`
  of anything, is in other events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from hkvtool.model.event import Event
from hkvtool.state.declarations import Declarations, Group, Pool


class Span(Enum):
    """From when to when the bytes are touched."""

    LANE = "lane"
    """From its line until its lane does the next thing."""

    TRANSFER = "transfer"
    """From the transfer's begin to its end, on a lane of its own."""


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of one component of some blocks, or of one metadata buffer.

    `places` are pool indices, `blocks` the ids as the event names them; they are aligned unless
    the event's `index` has another length. Without `group` every component is meant, without
    `part` every layer and shard.
    """

    write: bool
    span: Span
    pool: Pool | None = None
    group: Group | None = None
    places: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    part: str | int | None = None
    tokens: tuple[int, int] | None = None
    pad: bool = False
    buffer: str | int | None = None

    def meets(self, other: Access) -> bool:
        """The two touch the same bytes of every place they share, or the same buffer."""
        if self.buffer is not None or other.buffer is not None:
            return self.buffer == other.buffer
        if self.pool is None or other.pool is None or self.pool.id != other.pool.id:
            return False
        if self.part is not None and other.part is not None and self.part != other.part:
            return False
        one, two = self.group, other.group
        return one is None or two is None or one.id == two.id or one.table_id != two.table_id

    def slots(self, i: int) -> tuple[int, int] | None:
        """Token slots `[first, end)` touched in `places[i]`; None where it may be all of them.

        Accesses of one group that touch different slots of a block do not touch the same
        bytes: a decode step appends while the block's earlier tokens are read.
        """
        if not self._in_order() or self.tokens is None or self.group is None:
            return None
        start, end = self.tokens
        size = self.group.block_tokens
        base = (start // size + i) * size
        return max(start - base, 0), min(end - base, size)

    def all_slots(self) -> list[tuple[int, int] | None]:
        """The same of every place; only the first and the last are touched in part."""
        count = len(self.places)
        if not self._in_order() or not count or self.group is None:
            return [None] * count
        found: list[tuple[int, int] | None] = [(0, self.group.block_tokens)] * count
        found[0], found[-1] = self.slots(0), self.slots(count - 1)
        return found

    def _in_order(self) -> bool:
        """Whether place after place holds the tokens, block by block."""
        group = self.group
        if self.tokens is None or group is None or group.form == "recurrent":
            return False
        start, end = self.tokens
        size = group.block_tokens
        # A list of another length has holes (a window): no telling which block holds what.
        return -(-end // size) - start // size == len(self.places)


def accesses(event: Event, declared: Declarations) -> Sequence[Access]:
    """What the event reads and writes, reads first; a transfer's are those of its begin."""
    decompose = _DECOMPOSE.get(event.ev)
    if decompose is None or event.problem is not None:
        return ()
    return [access for access in decompose(event, declared) if access.places or access.buffer]


def _write(event: Event, declared: Declarations) -> list[Access]:
    return [_near(event, declared, True, Span.LANE)]


def _use(event: Event, declared: Declarations) -> list[Access]:
    return [_near(event, declared, False, Span.LANE)]


def _copy(event: Event, declared: Declarations) -> list[Access]:
    sides = []
    for write, blocks, key in ((False, "src", "src_group"), (True, "dst", "dst_group")):
        group, pool = _place(event, declared, key if key in event else "group")
        sides.append(_access(event, write, Span.LANE, pool, group, event[blocks]))
    return sides


def _store(event: Event, declared: Declarations) -> list[Access]:
    return [_near(event, declared, False, Span.TRANSFER), _far(event, declared, True, "to")]


def _load(event: Event, declared: Declarations) -> list[Access]:
    return [_far(event, declared, False, "from"), _near(event, declared, True, Span.TRANSFER)]


def _buffer(event: Event, declared: Declarations) -> list[Access]:
    return [Access(event["op"] == "write", Span.LANE, buffer=event["name"])]


def _near(event: Event, declared: Declarations, write: bool, span: Span) -> Access:
    group, pool = _place(event, declared, "group")
    return _access(event, write, span, pool, group, event["blocks"], event.get("index"))


def _far(event: Event, declared: Declarations, write: bool, key: str) -> Access:
    group = declared.groups.get(str(event["group"]))
    pool = declared.pools.get(str(event[key])) if key in event else None
    if group is not None and pool is not None:
        mirrors = {mate.id: declared.mirror(mate, pool) for mate in declared.mates(group)}
        if len({mirror.id for mirror in mirrors.values() if mirror}) == len(mirrors):
            group = mirrors[group.id]
    return _access(event, write, Span.TRANSFER, pool, group, event.get("peer", ()))


def _place(event: Event, declared: Declarations, key: str) -> tuple[Group | None, Pool | None]:
    """The group that a key names and its pool; of an event without it, its pool alone."""
    if key in event:
        group = declared.groups.get(str(event[key]))
        return group, None if group is None else group.pool
    return None, declared.pools.get(str(event.get("pool")))


def _access(
    event: Event,
    write: bool,
    span: Span,
    pool: Pool | None,
    group: Group | None,
    blocks: Sequence[int],
    index: Sequence[int] | None = None,
) -> Access:
    if pool is None:
        return Access(write, span)
    named = tuple(block for block in blocks if block >= 0)
    if index is None:
        places = tuple(pool.map.get(block, block) for block in named) if pool.map else named
    else:
        places = tuple(place for place in index if place >= 0)
    tokens = event.get("tokens")
    return Access(
        write,
        span,
        pool,
        group,
        places,
        named,
        event.get("part"),
        None if tokens is None else (tokens[0], tokens[1]),
        event.get("pad") is True,
    )


_DECOMPOSE: dict[str, Callable[[Event, Declarations], list[Access]]] = {
    "write": _write,
    "seal": _write,
    "index": _write,
    "zero": _write,
    "copy": _copy,
    "use": _use,
    "store_begin": _store,
    "load_begin": _load,
    "buffer": _buffer,
}
