"""Codecs stood in for: rows of one codec, read as another's, are not rows of anything.

What a codec does to numbers is the engine's; that bytes which one codec wrote mean nothing to
another is not. So where a trace says that content is of another codec than its reader's, its bytes
are masked by both names.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hkvtool.kernels import operations as kernels
from hkvtool.model.event import Event
from hkvtool.replay.cells import Area, whole
from hkvtool.state.declarations import Group, Pool

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler
    from hkvtool.replay.memory import Memory
    from hkvtool.replay.ops import Account, Op

_WIDTH = 64


def mask(own: object, other: object) -> bytes | None:
    """What rows of one codec look like to a reader of another, as bytes to flip; None where both
    are the same, or one is not known."""
    if not own or not other or own == other:
        return None
    names = "\0".join(sorted((str(own), str(other))))
    return hashlib.blake2b(names.encode(), digest_size=_WIDTH).digest()


def flipped(packed: torch.Tensor, by: bytes) -> torch.Tensor:
    """Packed rows ``uint8[n, row_bytes]`` under a mask."""
    count = packed.shape[1]
    repeated = (by * -(-count // len(by)))[:count]
    pad = torch.frombuffer(bytearray(repeated), dtype=torch.uint8).to(packed.device)
    return packed ^ pad


@dataclass(frozen=True)
class Recode:
    """Rows become those of another codec."""

    area: Area
    by: bytes

    def run(self, memory: Memory, account: Account) -> None:
        buffer, rows = memory.at(self.area)
        kernels.scatter(buffer, rows, flipped(kernels.gather(buffer, rows), self.by))


def loaded(c: Compiler, event: Event, group: Group, pool: Pool, place: int, space: str) -> list[Op]:
    """What arrives is of the codec that the load names."""
    key = (pool.name, place, group.name)
    by = mask(group.layout.get("codec"), event.get("codec"))
    if by is None:
        c.masked.discard(key)
        return []
    c.masked.add(key)
    return [Recode(c.area(group, pool, whole(c.geometry.rows(group), [place]), space), by)]


def published(c: Compiler, event: Event) -> None:
    """A hash says of which codec the content is."""
    group = c.fold.group(event["group"])
    by = None if group is None else mask(group.layout.get("codec"), event.get("codec"))
    if group is None or by is None:
        return
    pool = group.pool
    places = [pool.map.get(block, block) for block in event["blocks"]]
    mine = [
        place for place in places
        if c.kept(pool, place) and (pool.name, place, group.name) not in c.masked
        and (pool.name, group.name, place) in c.written
    ]  # fmt: skip
    if mine:
        c.masked.update((pool.name, place, group.name) for place in mine)
        space = c.graphs.space(pool.name, event)
        area = c.area(group, pool, whole(c.geometry.rows(group), mine), space)
        c.emit(event, [Recode(area, by)])
