"""The part of a trace that a search may reorder: what touches some blocks, and what orders it.

A window is a partial order of *ops*. An op is one event's accesses to the window's places, done at
once, or the move of a transfer: one op on a lane of its own, anywhere between its begin and its
end. Two ops are ordered where happens-before says so on every run, or where both are book-keeping
of one block: an allocator's outcomes are taken as recorded, so a schedule is *feasible under
recorded control flow* and no more is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.state.accesses import Access, Span, accesses
from hkvtool.state.fold import Fold
from hkvtool.state.order import Order
from hkvtool.state.order_stamp import Stamp, Transfer

Place = tuple[int, int]
"""Number of a pool, and the index of a block's bytes in it."""

MOST_OPS = 400
"""Ops of one window: a search among more is a sample of next to nothing."""

_BOOKS = frozenset({"alloc", "touch", "free", "publish", "unpublish", "pin", "unpin", "slide"})
_WHOLE = 1 << 40

MOVE = "transfer:"
"""Begins the lane of a transfer's move."""


@dataclass(slots=True, eq=False)
class Op:
    """One thing that happens at once. `touches` are its accesses to the window's places."""

    index: int
    event: Event
    lane: str
    stamp: Stamp
    touches: list[Touch] = field(default_factory=list)
    books: frozenset[Place] = frozenset()
    before: int = 0
    """Bits of the ops that are surely over before it starts."""

    @property
    def moves(self) -> bool:
        """Whether it is the move of a transfer, and not its begin."""
        return self.lane.startswith(MOVE)

    @property
    def pos(self) -> int:
        return self.event.pos


@dataclass(frozen=True, slots=True)
class Touch:
    """A read or write of some token slots of one component of one block's bytes.

    `component` is None where all of them are meant; components of one `table` lie side by side,
    those of different tables overlay each other.
    """

    write: bool
    place: Place
    component: int | None
    table: int | None
    first: int
    end: int
    part: str | int | None

    def meets(self, other: Touch) -> bool:
        """Both touch some byte."""
        if self.place != other.place or self.first >= other.end or other.first >= self.end:
            return False
        if self.part is not None and other.part is not None and self.part != other.part:
            return False
        if self.component is None or other.component is None or self.table != other.table:
            return True
        return self.component == other.component


@dataclass(frozen=True)
class Window:
    """Ops in recorded order, their order on every run, and which of them touch the same bytes."""

    ops: list[Op]
    conflicts: list[int]
    """By op: bits of the ops that touch a byte it touches, one of the two writing it."""
    forced: bool = True
    """Whether the allocator's outcomes are as recorded in every order."""

    @cached_property
    def races(self) -> list[tuple[int, int]]:
        """Conflicting ops that no order holds apart, in recorded order."""
        return [
            (a.index, b.index)
            for b in self.ops for a in self.ops[: b.index]
            if self.conflicts[b.index] >> a.index & 1 and not b.before >> a.index & 1
        ]  # fmt: skip

    @cached_property
    def lanes(self) -> list[int]:
        """Bits of the ops of each lane."""
        bits: dict[str, int] = {}
        for op in self.ops:
            bits[op.lane] = bits.get(op.lane, 0) | 1 << op.index
        return list(bits.values())

    @cached_property
    def racing(self) -> int:
        """Bits of the ops that race with any other."""
        return sum({1 << index for pair in self.races for index in pair})


def window(
    events: Iterable[Event], places: frozenset[tuple[str, int]], around: Sequence[int] = (),
    *, forced: bool = True,
) -> Window:  # fmt: skip
    """The window over blocks, given as (pool, index of their bytes).

    The whole trace is gone through, since an order may come from far back. Where more happens to
    the blocks than a search takes, what is nearest to the positions `around` is kept. Unless the
    recorded outcomes are `forced`, book-keeping of one block may come in any order. Raises
    HkvError where nothing touches the blocks, or too much does and there is no `around`.
    """
    fold, order = Fold(), Order()
    ops: list[Op] = []
    for event in events:
        if event.problem is not None:
            continue
        stamp = order.feed(event)
        found = _touches(event, fold, places)
        books = _books(event, fold, places) if event.ev in _BOOKS else frozenset()
        fold.apply(event)
        lane = event.actor
        if found[0] or books:
            ops.append(Op(len(ops), event, lane, stamp, found[0], books))
        if found[1]:
            ops.append(Op(len(ops), event, f"{MOVE}{event['handle']}", stamp, found[1]))
    if not ops:
        raise HkvError("nothing in the trace touches these blocks")
    if len(ops) > MOST_OPS:
        ops = _nearest(ops, around)
    _arrange(ops, order, forced)
    conflicts = _conflicts(ops)
    if not forced:
        _decisions(ops, conflicts)
    return Window(ops, conflicts, forced)


def _nearest(ops: list[Op], around: Sequence[int]) -> list[Op]:
    """So many ops as a search takes, with what happened at some positions in their middle."""
    near = [op.index for op in ops if op.pos in around]
    if not near or near[-1] - near[0] >= MOST_OPS:
        raise HkvError(
            f"{len(ops):,} things happen to these blocks, and a search takes {MOST_OPS} at most",
            hint="ask about one finding",
        )
    spare = MOST_OPS - (near[-1] - near[0] + 1)
    start = max(0, min(near[0] - spare // 2, len(ops) - MOST_OPS))
    kept = ops[start : start + MOST_OPS]
    for index, op in enumerate(kept):
        op.index = index
    return kept


def _touches(
    event: Event, fold: Fold, places: frozenset[tuple[str, int]]
) -> tuple[list[Touch], list[Touch]]:
    """What an event touches of the places at once, and what its transfer moves."""
    now: list[Touch] = []
    moved: list[Touch] = []
    for access in accesses(event, fold.declared):
        out = moved if access.span is Span.TRANSFER else now
        out.extend(_of_access(access, places))
    return now, moved


def _of_access(access: Access, places: frozenset[tuple[str, int]]) -> Iterable[Touch]:
    pool, group = access.pool, access.group
    if pool is None:
        return
    for i, place in enumerate(access.places):
        if (pool.name, place) not in places:
            continue
        whole = (0, _WHOLE if group is None else group.block_tokens)
        first, end = access.slots(i) or whole
        yield Touch(
            access.write, (pool.id, place), None if group is None else group.id,
            None if group is None else group.table_id, first, end, access.part,
        )  # fmt: skip


def _books(event: Event, fold: Fold, places: frozenset[tuple[str, int]]) -> frozenset[Place]:
    """The places whose books an event of the allocator is about."""
    group = fold.group(event.get("group"))
    pool = group.pool if group else fold.declared.pools.get(str(event.get("pool")))
    if pool is None:
        return frozenset()
    named = (pool.map.get(block, block) for block in event.get("blocks", ()))
    return frozenset((pool.id, block) for block in named if (pool.name, block) in places)


def _arrange(ops: Sequence[Op], order: Order, forced: bool) -> None:
    for b in ops:
        for a in ops[: b.index]:
            same_lane = a.lane == b.lane and not isinstance(a.stamp, Transfer)
            # A begin and its move are one event: the move is what ends later.
            begun = a.stamp is b.stamp
            books = forced and bool(a.books & b.books)
            if same_lane or begun or books or _over(order, a, b):
                b.before |= 1 << a.index | a.before


def _over(order: Order, a: Op, b: Op) -> bool:
    if isinstance(a.stamp, Transfer) and not a.moves:
        return order.ended(a.stamp.lane, a.stamp.index, b.stamp)
    return order.before(a.stamp, b.stamp)


def _conflicts(ops: Sequence[Op]) -> list[int]:
    by_place: dict[Place, list[tuple[Op, Touch]]] = {}
    out = [0] * len(ops)
    for op in ops:
        for touch in op.touches:
            known = by_place.setdefault(touch.place, [])
            for other, theirs in known:
                if other is not op and (touch.write or theirs.write) and touch.meets(theirs):
                    out[op.index] |= 1 << other.index
                    out[other.index] |= 1 << op.index
            known.append((op, touch))
    return out


def _decisions(ops: Sequence[Op], conflicts: list[int]) -> None:
    """What the allocator decides of a block, and all that is done to it then, do not commute."""
    for b in ops:
        for a in ops[: b.index]:
            mine, theirs = _concerned(a), _concerned(b)
            if (a.books & theirs) or (b.books & mine):
                conflicts[b.index] |= 1 << a.index
                conflicts[a.index] |= 1 << b.index


def _concerned(op: Op) -> frozenset[Place]:
    return op.books | {touch.place for touch in op.touches}
