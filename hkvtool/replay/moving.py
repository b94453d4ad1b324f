"""What transfers do to bytes: a lane of its own takes rows out of one pool into another.

What a transfer reads is due what it stands for. The recorded outcome is forced: blocks that did
not arrive get no bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.replay import encoding, upkeep
from hkvtool.replay.cells import Cells, cells, whole
from hkvtool.replay.ops import About, Lay, Move, Op, Read, Write
from hkvtool.replay.placing import Piece
from hkvtool.replay.program import MOVE
from hkvtool.replay.reading import judged
from hkvtool.replay.writing import carry
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.declarations import Group

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler


def begin(c: Compiler, event: Event) -> None:
    """A `store_begin` or `load_begin`: the move, on the transfer's lane."""
    store = event.ev == "store_begin"
    near, far = _sides(event, accesses(event, c.fold.declared), store)
    if near is None or near.group is None or near.pool is None:
        return
    handle = str(event["handle"])
    c.moving.setdefault(handle, set()).update((near.pool.name, p) for p in near.places)
    pieces = _stands_for(c, event, near.group, len(near.places), store)
    if not store and event.req is not None and pieces:
        extent = c.author(event.req).extent
        last = max(p.end for p in pieces)
        extent[near.group.name] = max(extent.get(near.group.name, 0), last)
    failed = _failed(c.ends.get(handle), near.blocks)
    ops: list[Op] = []
    for i, place in enumerate(near.places):
        there = far is not None and far.pool is not None and i < len(far.places)
        if c.kept(near.pool, place) or (
            there and far is not None and far.pool is not None and c.kept(far.pool, far.places[i])
        ):
            mine = [p for p in pieces if p.place == i]
            arrives = i >= len(near.blocks) or near.blocks[i] not in failed
            ops += _move(c, event, near, far if there else None, i, mine, store, arrives)
            if not store and arrives and c.kept(near.pool, place):
                space = c.graphs.space(near.pool.name, event)
                ops += encoding.loaded(c, event, near.group, near.pool, place, space)
    c.emit(event, ops, f"{MOVE}{handle}")


def end(c: Compiler, event: Event) -> None:
    """A transfer has ended: what waited for it may be marked as freed."""
    c.moving.pop(str(event["handle"]), None)
    upkeep.bury(c, event)


def _sides(
    event: Event, found: Sequence[Access], store: bool
) -> tuple[Access | None, Access | None]:
    """Near and far side of a transfer."""
    near = next((a for a in found if a.write is not store and a.group is not None
                 and a.group.name == event["group"] and a.pool is a.group.pool), None)  # fmt: skip
    return near, next((a for a in found if a is not near), None)


def _failed(ended: Event | None, blocks: Sequence[int]) -> frozenset[int]:
    """The blocks that did not arrive; all of them where a failure names none."""
    if ended is None:
        return frozenset()
    named = ended.get("failed") or ()
    return frozenset(named if ended.get("ok", True) else named or blocks)


def _stands_for(c: Compiler, event: Event, group: Group, count: int, store: bool) -> list[Piece]:
    """Which tokens each block of a transfer is for, as far as anyone says."""
    tokens, unit = event.get("tokens"), group.block_tokens
    if tokens:
        start, end_ = tokens
        first = range(start - start % unit, end_, unit)
        return [Piece(i, max(start, s), min(end_, s + unit)) for i, s in enumerate(first)][:count]
    author = c.author(event.req) if event.req is not None else None
    found: list[Piece] = []
    for i, block in enumerate(event["blocks"]):
        slot = c.fold.find(group.pool, block)
        start = MISSING if slot is None else int(c.fold.st.start[slot])
        if store and (group.form == "recurrent" or start == MISSING or author is None):
            place = group.pool.map.get(block, block)
            content = c.holds.get((group.pool.name, place, group.name))
            if content is not None:
                found.append(Piece(i, content[1], content[2]))
            continue
        if author is None or start == MISSING:
            continue
        if group.form == "recurrent":
            if i == len(event["blocks"]) - 1 and author.hit > 0:
                found.append(Piece(i, author.hit - 1, author.hit))
            continue
        come = author.hit
        if store and author.extent:
            come = author.extent.get(group.name, 0)
        if min(start + unit, come) > start:
            found.append(Piece(i, start, min(start + unit, come)))
    return found


def _move(
    c: Compiler, event: Event, near: Access, far: Access | None, i: int, pieces: list[Piece],
    store: bool, arrives: bool,
) -> list[Op]:  # fmt: skip
    group, pool = near.group, near.pool
    assert group is not None and pool is not None
    rows = c.geometry.rows(group)
    expects = None
    if c.believed and c.believed.moves and c.believed.group == group.name:
        expects = c.believed.expects
    space = c.graphs.space(pool.name, event)
    apart = far is None or far.pool is None or not c.kept(far.pool, far.places[i])
    if far is None or far.pool is None or (apart and not store):
        return [] if store or not arrives else _from_nowhere(c, event, near, i, pieces, space)
    if not c.kept(pool, near.places[i]):
        return _to_kept(c, event, near, far, i, pieces) if store and arrives else []
    owner = far.group if far.group is not None and far.group.pool is far.pool else group
    check = None
    # A transfer that fails behind the end of its lease is right to: nobody relies on what it read.
    if pieces and (arrives or str(event["handle"]) not in c.expired):
        side, of = (near, group) if store else (far, owner)
        one = Access(False, side.span, side.pool, side.group, side.places[i : i + 1],
                     side.blocks[i : i + 1])  # fmt: skip
        check = _check(c, event, one, of, [Piece(0, p.start, p.end) for p in pieces],
                       near.places[i], group, space if store else "",
                       expects if store else None)  # fmt: skip
    here = c.area(group, pool, whole(rows, [near.places[i]]), space, expects)
    if apart:
        return [Move(None, None, check)]
    there = c.area(owner, far.pool, whole(c.geometry.rows(owner), [far.places[i]]))
    source, target = (here, there) if store else (there, here)
    if arrives:
        near_key = (pool.name, near.places[i], group.name)
        far_key = (far.pool.name, far.places[i], owner.name)
        one_key, two_key = (near_key, far_key) if store else (far_key, near_key)
        came, went = _spot(one_key), _spot(two_key)
        if check is None and (came not in c.written or came in c.lays):
            return [_laid(c, went)]
        c.lays.pop(went, None)
        carry(c, one_key, two_key)
        c.written.add(went)
    if c.geometry.rows(owner) != rows:
        return [Move(None, None, check)]
    return [Move(source if arrives else None, target, check)]


def _spot(key: tuple[str, int, str]) -> tuple[str, str, int]:
    return key[0], key[2], key[1]


def _laid(c: Compiler, spot: tuple[str, str, int]) -> Lay:
    """A block now holds what nobody knows, but for its readers."""
    lay = c.lays[spot] = Lay()
    c.written.discard(spot)
    c.begun.pop(spot, None)
    c.holds.pop((spot[0], spot[2], spot[1]), None)
    c.seeded.pop(spot, None)
    return lay


def _from_nowhere(
    c: Compiler, event: Event, near: Access, i: int, pieces: list[Piece], space: str
) -> list[Op]:
    """Nobody says where it comes from: what arrives is what the transfer is for."""
    group, pool = near.group, near.pool
    assert group is not None and pool is not None
    if not pieces or event.req is None:
        return []
    found = cells(group, c.geometry.rows(group), near.places, pieces)
    c.holds[pool.name, near.places[i], group.name] = (event.req, pieces[0].start, pieces[-1].end)
    c.written.add((pool.name, group.name, near.places[i]))
    if found.empty:
        return []
    return [
        Write(c.area(group, pool, found, space), c.number(group), c.due_of(event.req, found, group))
    ]


def _to_kept(
    c: Compiler, event: Event, near: Access, far: Access, i: int, pieces: list[Piece]
) -> list[Op]:
    """Content of a block that is left out comes into one that is kept: as what it is."""
    group, pool = near.group, far.pool
    assert group is not None and pool is not None and near.pool is not None
    content = c.holds.get((near.pool.name, near.places[i], group.name))
    req = event.req or (None if content is None else content[0])
    owner = far.group if far.group is not None and far.group.pool is pool else group
    mine = [Piece(i, p.start, p.end) for p in pieces]
    found = cells(group, c.geometry.rows(group), far.places, mine)
    carry(c, (near.pool.name, near.places[i], group.name), (pool.name, far.places[i], owner.name))
    if req is None or found.empty:
        return []
    c.written.add((pool.name, owner.name, far.places[i]))
    return [Write(c.area(owner, pool, found), c.number(owner), c.due_of(req, found, group))]


def _check(
    c: Compiler, event: Event, side: Access, owner: Group, pieces: list[Piece], near_place: int,
    group: Group, space: str, expects: object,
) -> Read | None:  # fmt: skip
    """What a transfer reads is due what it stands for, whoever asks for it."""
    assert side.pool is not None and group.pool is not None
    req = event.req
    if req is None:
        content = c.holds.get((group.pool.name, near_place, group.name))
        req = None if content is None else content[0]
    if req is None:
        return None
    pieces = judged(c, side, owner, side.pool, pieces, req)
    found = cells(group, c.geometry.rows(group), side.places, pieces)
    if not isinstance(found, Cells) or found.empty:
        return None
    wanted = expects if isinstance(expects, dict) else None
    area = c.area(owner, side.pool, found, space, wanted)
    about = About(event.pos, event.req, event.step, group.name, side.pool.name,
                  "store" if event.ev == "store_begin" else "load")  # fmt: skip
    return Read(area, c.number(owner), c.due_of(req, found, group), about)
