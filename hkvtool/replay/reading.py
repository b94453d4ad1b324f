"""What reads are due: kernels' reads of blocks, of what lies behind, of padding and of tails."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.replay.cells import Cells, cells
from hkvtool.replay.encoding import mask
from hkvtool.replay.ops import (
    About,
    Op,
    Read,
    ReadBehind,
    ReadClear,
    ReadPromised,
    ReadVersions,
    Write,
)
from hkvtool.replay.placing import Piece, held, needed_from
from hkvtool.state.accesses import Access, accesses
from hkvtool.state.declarations import Group, Pool
from hkvtool.state.serving import filled

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler


def use(c: Compiler, event: Event) -> None:
    """A `use`: the reader's own tokens, or padding."""
    for access in accesses(event, c.fold.declared):
        group, pool = access.group, access.pool
        if group is None or pool is None:
            continue
        if event.get("pad"):
            _pad(c, event, access, group, pool)
        elif event.req is not None:
            _read(c, event, access, group, pool, event.req)


def _read(c: Compiler, event: Event, access: Access, group: Group, pool: Pool, req: str) -> None:
    at = c.author(req).extent.get(group.name, 0)
    tokens = event.get("tokens")
    if at <= 0 and not tokens:
        return
    start, end = tokens or (_from(c, event, req, group, at), at)
    pieces = held(group, len(access.places), (start, end), end)
    _pieces(c, event, access, group, pool, pieces, req)
    if tokens is None and group.form != "recurrent":
        _behind(c, event, access, group, pool, pieces)


def _from(c: Compiler, event: Event, req: str, group: Group, at: int) -> int:
    """The first token read where the event does not say: the window of its first query."""
    step, start = c.author(req).wrote.get(group.name, (None, 0))
    query = start if step is not None and step == event.step else at - 1
    return needed_from(c.fold.declared, group, at, query)


def _pieces(
    c: Compiler, event: Event, access: Access, group: Group, pool: Pool, pieces: list[Piece],
    req: str, what: str = "read",
) -> None:  # fmt: skip
    chosen = judged(c, access, group, pool, c.chosen(pool, access.places, pieces), req)
    found = cells(group, c.geometry.rows(group), access.places, chosen)
    if found.empty:
        return
    expects = None
    if c.believed and not c.believed.moves and c.believed.group == group.name:
        expects = c.believed.expects
    area = c.area(group, pool, found, c.graphs.space(pool.name, event), expects)
    about = About(event.pos, event.req, event.step, group.name, pool.name, what)
    due = c.due_of(req, found, group)
    by = None if expects is None else mask(group.layout.get("codec"), expects.get("codec"))
    ops: list[Op] = [
        Read(area, c.number(group), due, about, c.graphs.limit(event), by, c.graphs.launched(event))
    ]
    served = c.fold.declared.served(group) if group.form == "indexer" else None
    if served is not None and served.table == group.table and served.ratio == group.ratio:
        beside = c.area(served, pool, found, c.graphs.space(pool.name, event))
        what = "read of the index beside its data"
        about = About(event.pos, event.req, event.step, group.name, pool.name, what)
        ops.append(ReadVersions(area, beside, about))
    ops += _promised(c, event, group, pool, found)
    c.emit(event, ops)


def _promised(c: Compiler, event: Event, group: Group, pool: Pool, found: Cells) -> list[Op]:
    """Of which version blocks are that a hash led to, where it says of which."""
    ops: list[Op] = []
    if not c.promised:
        return ops
    for place, start, end in zip(found.blocks, found.starts, found.ends, strict=True):
        version = c.promised.get((pool.name, place, group.name))
        if version is None or end - start < group.block_tokens:
            continue
        one = Cells((place,), (start,), (end,), group.ratio, found.rows)
        about = About(event.pos, event.req, event.step, group.name, pool.name, "read by its hash")
        area = c.area(group, pool, one, c.graphs.space(pool.name, event))
        ops.append(ReadPromised(area, version, about))
    return ops


def judged(
    c: Compiler, access: Access, group: Group, pool: Pool, pieces: list[Piece], req: str
) -> list[Piece]:
    """The pieces that can be judged: those of blocks that the trace has filled, and of unknown
    ones the rows that are taken for the same by all their readers."""
    found: list[Piece] = []
    for piece in pieces:
        place = access.places[piece.place]
        block = access.blocks[piece.place] if piece.place < len(access.blocks) else -1
        begun = c.begun.get((pool.name, group.name, place))
        if begun is not None:
            found += _seed(c, group, pool, place, piece, req, begun)
        elif _unknown(c, group, pool, block, place):
            found += _seed(c, group, pool, place, piece, req)
        else:
            found.append(piece)
    return found


def _unknown(c: Compiler, group: Group, pool: Pool, block: int, place: int) -> bool:
    """Whether the trace does not say what a block held before."""
    if (pool.name, group.name, place) in c.lays:
        return True
    if (pool.name, group.name, place) in c.written:
        return False
    slot = c.fold.find(pool, block)
    if slot is None:
        return True
    if (pool.name, place) in c.stated:
        return True
    st = c.fold.st
    if st.known[slot] == 0 or st.unsure[slot]:
        return True
    return bool(st.alloc_pos[slot] < 0 and filled(c.fold, slot, c.fold.component(slot, group)))


def unseen(c: Compiler, pool: Pool, place: int) -> bool:
    """Whether the trace has not seen a block handed out that it now sees in use."""
    if pool.map:
        return False
    slot = c.fold.find(pool, place)
    return slot is None or (c.fold.st.alloc_pos[slot] < 0 and c.fold.st.known[slot] == 0)


def _seed(
    c: Compiler, group: Group, pool: Pool, place: int, piece: Piece, req: str,
    begun: Collection[int] = (),
) -> list[Piece]:  # fmt: skip
    """Lay down what an unknown block is taken for; returns the rows that others take for the
    same, and those that the trace has filled itself."""
    rows = c.geometry.rows(group)
    one = Cells((place,), (piece.start,), (piece.end,), group.ratio, rows,
                group.form == "recurrent")  # fmt: skip
    due = c.due(req, piece.start, piece.end, group)
    good: list[Piece] = []
    ours: list[Piece] = []
    seeded = c.seeded.setdefault((pool.name, group.name, place), {})
    ratio = 1 if one.state else group.ratio
    _, entries, tokens = one.laid_out()
    for row, token in zip(entries.tolist(), tokens.tolist(), strict=True):
        if row in begun:
            ours.append(Piece(piece.place, token + 1 - ratio, token + 1))
            continue
        number = next((n for a, b, n in due if a <= token < b), 0)
        known = seeded.setdefault(row, (token, number))
        if known == (token, number):
            good.append(Piece(piece.place, token + 1 - ratio, token + 1))
    if good:
        spot = [place] * (piece.place + 1)
        lay = c.lays.get((pool.name, group.name, place))
        (c.seeds if lay is None else lay.ops).append(
            Write(c.area(group, pool, cells(group, rows, spot, good)), c.number(group), due)
        )
    return [*good, *ours]


def _behind(
    c: Compiler, event: Event, access: Access, group: Group, pool: Pool, pieces: list[Piece]
) -> None:
    """Rows behind the last token of a partly filled block, which a kernel loads too."""
    rows, unit = c.geometry.rows(group), group.block_tokens
    chosen = c.chosen(pool, access.places, pieces[-1:])
    if not chosen or chosen[0].end % unit == 0 or group.form == "tail":
        return
    place, _, end = chosen[0]
    if place >= len(access.blocks) or _unknown(c, group, pool, access.blocks[place],
                                               access.places[place]):  # fmt: skip
        return
    rest = Cells((access.places[place],), (end % unit // group.ratio,), (rows,), 1, rows)
    mates = frozenset(c.number(g) for g in c.fold.declared.mates(group))
    area = c.area(group, pool, rest, c.graphs.space(pool.name, event))
    about = About(event.pos, event.req, event.step, group.name, pool.name,
                  "load of the whole block")  # fmt: skip
    c.emit(event, [ReadBehind(area, mates, about)])


def _pad(c: Compiler, event: Event, access: Access, group: Group, pool: Pool) -> None:
    """What padding has written is known not to be clear; the rest is as it was born."""
    places = [p for p in access.places if c.kept(pool, p)
              and (pool.name, group.name, p) in c.written]  # fmt: skip
    if not places:
        return
    first = Cells(tuple(places[:1]), (0,), (1,), 1, c.geometry.rows(group))
    area = c.area(group, pool, first, c.graphs.space(pool.name, event))
    about = About(event.pos, event.req, event.step, group.name, pool.name, "read by padding rows")
    c.emit(event, [ReadClear(area, about)])


def tail(c: Compiler, event: Event, sealing: Access, tokens: tuple[int, int]) -> None:
    """What a seal takes from the request's tail."""
    group = c.fold.group(event["from"])
    request = c.requests.by_name.get(str(event.req))
    if group is None or request is None:
        return
    slots = list(request.table(group.table_id))
    starts = [int(c.fold.st.start[slot]) for slot in slots]
    if MISSING not in starts:
        # A block taken late may stand for tokens further ahead.
        slots = [slot for _, slot in sorted(zip(starts, slots, strict=True))]
    blocks = tuple(c.fold.block_of[slot] for slot in slots)
    places = tuple(group.pool.map.get(b, b) for b in blocks)
    access = Access(False, sealing.span, group.pool, group, places, blocks)
    at = max(tokens[1], c.author(str(event.req)).extent.get(group.name, 0))
    pieces = held(group, len(blocks), tokens, at)
    _pieces(c, event, access, group, group.pool, pieces, str(event.req), "seal from the tail")
