"""What writes do to bytes: kernels' writes, padding, clears and copies on one pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.replay import reading
from hkvtool.replay.cells import cells
from hkvtool.replay.ops import Move, Op, Write, Zero
from hkvtool.replay.placing import Piece, written
from hkvtool.replay.sequences import sequence
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.blocks import generation
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.serving import filled

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler

PADDING = "padding"
_BITS = (1 << 31) - 1


def write(c: Compiler, event: Event) -> None:
    """A `write`, `seal` or `index`: rows of the request's tokens."""
    for access in accesses(event, c.fold.declared):
        group, pool = access.group, access.pool
        if group is None or pool is None:
            continue
        if event.get("pad"):
            _pad(c, event, access, group, pool)
            continue
        tokens = _tokens(c, event, group)
        if tokens is None or event.req is None:
            continue
        if event.ev == "seal" and "from" in event:
            reading.tail(c, event, access, tokens)
        pieces = written(group, len(access.places), tokens)
        _note(c, event, group, pool, access.places, pieces)
        chosen = c.chosen(pool, access.places, pieces)
        found = cells(group, c.geometry.rows(group), access.places, chosen)
        if found.empty:
            continue
        area = c.area(group, pool, found, c.graphs.space(pool.name, event))
        due = c.due_of(event.req, found, group)
        marks = [_mark(c, event, group, pool, access, p) for p in chosen]
        gens, versions = tuple(g for g, _ in marks), tuple(v for _, v in marks)
        c.emit(event, [Write(area, c.number(group), due, gens, versions)])


def _tokens(c: Compiler, event: Event, group: Group) -> tuple[int, int] | None:
    """The tokens written: stated, or those that the blocks were allocated for."""
    tokens = event.get("tokens")
    if tokens:
        return tokens[0], tokens[1]
    blocks = event["blocks"]
    slot = c.fold.find(group.pool, blocks[0]) if blocks else None
    if slot is None or c.fold.st.start[slot] == MISSING:
        return None
    start = int(c.fold.st.start[slot])
    return start, start + len(blocks) * group.block_tokens


def _note(
    c: Compiler, event: Event, group: Group, pool: Pool, places: Sequence[int], pieces: list[Piece]
) -> None:
    """In line order the blocks now hold these tokens, and the request has come so far."""
    req = str(event.req)
    author = c.author(req)
    for place, start, end in pieces:
        spot = (pool.name, group.name, places[place])
        if spot in c.begun or (spot not in c.written and reading.unseen(c, pool, places[place])):
            rows, ratio = c.geometry.rows(group), group.ratio
            filled = range(start // ratio, max(end // ratio, start // ratio + 1))
            c.begun.setdefault(spot, set()).update(row % rows for row in filled)
        c.written.add(spot)
        key = (pool.name, places[place], group.name)
        c.masked.discard(key)
        c.promised.pop(key, None)
        last = c.holds.get(key)
        if last is not None and last[0] == req and last[1] <= start <= last[2]:
            start = last[1]
        c.holds[key] = (req, start, end)
        author.extent[group.name] = max(author.extent.get(group.name, 0), end)
    if pieces:
        first = min(p.start for p in pieces)
        author.wrote[group.name] = (event.step, first)
        if not author.epochs or author.epochs[-1][1] != c.epoch:
            author.epochs = [e for e in author.epochs if e[0] < first]
            author.epochs.append((first, c.epoch))


def _mark(
    c: Compiler, event: Event, group: Group, pool: Pool, access: Access, piece: Piece
) -> tuple[int, int]:
    """Generation and version of a block that is being written."""
    if piece.place >= len(access.blocks):
        return 0, 0
    slot = c.fold.find(pool, access.blocks[piece.place])
    if slot is None:
        return 0, 1
    gen = int(generation(c.fold.st, slot, event.get("step", MISSING)))
    key = "kv_version" if event.ev == "index" else "version"
    version = event.get(key)
    if version is None:
        at = c.fold.component(slot, group)
        version = int(c.fold.st.ver[at]) + 1 if filled(c.fold, slot, at) else 1
    return gen & _BITS, version & _BITS


def _pad(c: Compiler, event: Event, access: Access, group: Group, pool: Pool) -> None:
    """Padding rows land wherever their table says, in the null block or in a live one."""
    places = [p for p in access.places if c.kept(pool, p)]
    start, end = event.get("tokens") or (0, 1)
    pieces = written(group, len(places), (start, end))
    found = cells(group, c.geometry.rows(group), places, pieces)
    if found.empty:
        return
    number = sequence(PADDING)
    c.names[number] = PADDING
    c.written.update((pool.name, group.name, place) for place in places)
    area = c.area(group, pool, found, c.graphs.space(pool.name, event))
    c.emit(event, [Write(area, c.number(group), ((0, end, number),))])


def zero(c: Compiler, event: Event) -> None:
    """Whole blocks are cleared, of one group or of all."""
    for access in accesses(event, c.fold.declared):
        pool = access.pool
        if pool is None:
            continue
        places = [p for p in access.places if c.kept(pool, p)]
        if places:
            space = c.graphs.space(pool.name, event)
            groups = _groups(c, pool, access.group)
            c.emit(event, [Zero(tuple(c.whole(g, pool, places, space) for g in groups))])


def copy(c: Compiler, event: Event) -> None:
    """Blocks are copied whole, pair by pair."""
    sides = accesses(event, c.fold.declared)
    if len(sides) != 2 or sides[0].pool is None or sides[1].pool is None:
        return
    source, target = sides[0].pool, sides[1].pool
    pairs = [
        (a, b) for a, b in zip(sides[0].places, sides[1].places, strict=False)
        if c.kept(target, b)
    ]  # fmt: skip
    if not pairs:
        return
    ops: list[Op] = []
    for group in _groups(c, source, sides[0].group):
        to = sides[1].group or group
        space = c.graphs.space(source.name, event)
        outside = [(a, b) for a, b in pairs if not c.kept(source, a)]
        ops += [_as_it_is(c, group, to, source, target, a, b, space) for a, b in outside]
        inside = [pair for pair in pairs if pair not in outside]
        if inside and c.geometry.rows(group) == c.geometry.rows(to):
            here = c.whole(group, source, [a for a, _ in inside], space)
            ops.append(Move(here, c.whole(to, target, [b for _, b in inside], space)))
        for a, b in pairs:
            carry(c, (source.name, a, group.name), (target.name, b, to.name))
    c.emit(event, ops)


def _as_it_is(
    c: Compiler, group: Group, to: Group, source: Pool, target: Pool, a: int, b: int, space: str
) -> Op:
    """Content of a block that is left out comes into one that is kept: as what it is."""
    content = c.holds.get((source.name, a, group.name))
    if content is None:
        return Zero(())
    req, start, end = content
    found = cells(to, c.geometry.rows(to), [b], [Piece(0, start, end)])
    if found.empty:
        return Zero(())
    return Write(c.area(to, target, found, space), c.number(to), c.due(req, start, end, group))


def _groups(c: Compiler, pool: Pool, group: Group | None) -> list[Group]:
    """The groups whose rows a whole block has: the one named, or all of its pool."""
    if group is not None:
        return [group]
    every = list(c.fold.declared.groups.values())
    return [g for g in every if g.pool is pool] or every


def carry(c: Compiler, source: tuple[str, int, str], target: tuple[str, int, str]) -> None:
    """In line order the target holds what the source does."""
    content = c.holds.get(source)
    if content is None:
        c.holds.pop(target, None)
    else:
        c.holds[target] = content
    if (source[0], source[2], source[1]) in c.written:
        c.written.add((target[0], target[2], target[1]))
