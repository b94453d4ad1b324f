"""What else touches bytes: freed blocks, memory that goes away, leases, metadata buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hkvtool.model.event import Event
from hkvtool.replay.cells import Area, Cells
from hkvtool.replay.geometry import BUFFER_ENTRIES
from hkvtool.replay.ops import About, Poison, Read, Write
from hkvtool.replay.sequences import sequence
from hkvtool.state.declarations import Pool

if TYPE_CHECKING:
    from hkvtool.replay.compiling import Compiler

_USUAL = 8
"""Entries of a buffer where nobody says how many."""


def dispatched(c: Compiler, event: Event) -> None:
    c.in_flight.add(event["step"])
    c.graphs.dispatched(event["step"])


def retired(c: Compiler, event: Event) -> None:
    c.in_flight.discard(event["step"])
    bury(c, event)


def released(c: Compiler, event: Event) -> list[int]:
    """Slots of device blocks that lose their last reference by this event."""
    if event.ev != "free":
        return []
    _, pool = c.fold.place(event)
    if pool is None or pool.tier:
        return []
    st = c.fold.st
    slots = [c.fold.slot(pool, b) for b in event["blocks"] if b not in pool.reserved]
    return [s for s in slots if s >= 0 and st.refs[s] == 1 and st.known[s] != 0]


def dies(c: Compiler, event: Event, slot: int) -> None:
    """A block that is free and that no hash leads to is nobody's: its rows are marked, as soon as
    nothing that was handed out before can still read them."""
    fold = c.fold
    if fold.st.refs[slot] > 0 or fold.st.live[slot] > 0 or not fold.hashes_known(slot):
        return
    block = (fold.pool_of(slot).name, fold.block_of[slot])
    moving = {handle for handle, blocks in c.moving.items() if block in blocks}
    c.dead.append((slot, int(fold.st.gen[slot]), set(c.in_flight), moving))
    bury(c, event)


def bury(c: Compiler, event: Event) -> None:
    """Mark the rows of dead blocks whose last possible reader is done."""
    if not c.dead:
        return
    kept = []
    st = c.fold.st
    for slot, gen, steps, moving in c.dead:
        if st.gen[slot] != gen or st.refs[slot] > 0 or st.live[slot] > 0:
            continue
        if not steps.isdisjoint(c.in_flight) or not moving.isdisjoint(c.moving):
            kept.append((slot, gen, steps, moving))
            continue
        pool, block = c.fold.pool_of(slot), c.fold.block_of[slot]
        place = pool.map.get(block, block)
        if c.kept(pool, place):
            space = c.graphs.space(pool.name, None)
            areas = tuple(
                c.whole(g, pool, [place], space) for g in c.fold.declared.groups.values()
                if g.pool is pool and g.table_id == st.table[slot]
            )  # fmt: skip
            c.emit(event, [Poison(areas)] if areas else [])
    c.dead = kept


def leased(c: Compiler, event: Event) -> None:
    """Behind its lease the far side may give lent bytes to anyone: they are marked freed."""
    pool = c.fold.declared.pools.get(str(event.get("pool")))
    begin = c.begins.get(str(event["handle"]))
    group = None if begin is None else c.fold.group(begin["group"])
    if pool is None or group is None:
        return
    places = [b for b in event.get("blocks") or () if c.kept(pool, b)]
    if places:
        granted = event["op"] == "grant"
        c.emit(event, [Poison((c.whole(group, pool, places),), lifted=granted)])


def buffer(c: Compiler, event: Event) -> None:
    """A metadata buffer is rows of stamps: which version each entry is of."""
    name = str(event["name"])
    last, valid = c.buffers.get(name, (0, 0))
    writes = event["op"] == "write"
    version = event.get("version", last + 1 if writes else last)
    count = event.get("valid" if writes else "extent")
    if count is None:
        count = _USUAL if writes else valid or _USUAL
    count = min(int(count), BUFFER_ENTRIES)
    if not writes and not last:
        return
    if writes:
        c.buffers[name] = (version, count)
    if count <= 0:
        return
    number = sequence(f"buffer {name}", version)
    c.names[number] = f"{name} version {version}"
    share = c.geometry.buffer(name)
    pool = Pool(-1, f"buffer {name}", "gpu", 1, frozenset(), None, False, 0)
    cells = Cells((0,), (0,), (count,), 1, BUFFER_ENTRIES)
    area: Area = c.touch(share, pool, cells)
    due = ((0, count, number),)
    if writes:
        c.emit(event, [Write(area, 0, due)])
        return
    about = About(event.pos, event.req, event.step, name, pool.name, "read of the buffer")
    c.emit(event, [Read(area, 0, due, about)])


def graph(c: Compiler, event: Event) -> None:
    c.graphs.take(event)
