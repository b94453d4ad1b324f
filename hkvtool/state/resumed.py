"""What a resume takes for each group, and why a group cannot resume from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.fold import Fold
from hkvtool.state.needs import aligned, needed
from hkvtool.state.reading import brought, reader_number, route_of
from hkvtool.state.requests import Request
from hkvtool.state.resume import group_faults, index_faults
from hkvtool.state.scene import Scene
from hkvtool.state.serving import absent_code, hashed, known, live_entries

SKIPPING = frozenset({"recompute", "bypass"})
"""Routes that bring nothing because the content is made again."""


class Resumed(NamedTuple):
    """What a resume takes for one group: the blocks it brings, by which route."""

    event: Event
    request: Request
    group: Group
    blocks: list[int]
    route: str | None


def resumed_groups(scene: Scene, event: Event, request: Request) -> Iterator[Resumed]:
    """What a resume takes for each participating group of its engine. Groups whose content is made
    again, or comes by a load that names no block, are left out: nothing is taken for them."""
    if "blocks" not in event:
        return
    engine = request.engine
    for name in event["blocks"] or {}:
        group = scene.fold.group(name)
        if group is not None:
            engine = group.pool.engine
    for group in scene.groups_of(engine):
        if not group.participates:
            continue
        route = route_of(scene, event, group)
        blocks = brought(scene, event, group) or []
        if route in SKIPPING or (route == "reindex" and group.form == "indexer"):
            continue
        if route == "load" and not blocks:
            continue
        yield Resumed(event, request, group, blocks, route)


def resume_faults(scene: Scene, resumed: Resumed) -> list[Fault]:
    """Why the group cannot resume as things stand; codecs are not looked at."""
    event, request, group, blocks, route = resumed
    fold = scene.fold
    at = event["at"]
    faults = group_faults(fold, group, blocks, at, reader_number(scene, request))
    if not needed(fold, group, at):
        return faults
    if group.form == "indexer":
        served = fold.declared.served(group)
        theirs = brought(scene, event, served) if served else None
        if served is not None and theirs:
            faults += index_faults(fold, group, served, blocks, theirs)
    if route in (None, "reuse") and group.form != "indexer":
        faults += unhashed_faults(scene, event, request, group, blocks)
    return faults


def due(faults: Iterable[Fault], route: str | None) -> tuple[list[Fault], list[Fault]]:
    """Which faults of a resume are to be told now, and which the use will show."""
    now: list[Fault] = []
    later: list[Fault] = []
    for fault in faults:
        if fault.kind is Kind.LOADING and route is None:
            now.append(fault._replace(why="it is still being loaded, and no route says so"))
        elif fault.kind is Kind.LOADING and route != "load":
            why = f"it is still being loaded, and the route is {route}"
            now.append(fault._replace(code="HKV602", why=why))
        elif fault.waiting:
            later.append(fault)
        else:
            now.append(fault)
    return now, later


def unhashed_faults(
    scene: Scene, event: Event, request: Request, group: Group, blocks: Sequence[int]
) -> list[Fault]:
    """Blocks of another request that no live hash led to, at the hit or now: whatever they
    hold, nothing says that it is this sequence's. Also those that the hit did not find."""
    fold = scene.fold
    reader = reader_number(scene, request)
    code, unit = absent_code(group), group.block_tokens
    found = _found(fold, request, group)
    start = aligned(group, len(blocks), event["at"])
    faults: list[Fault] = []
    for i, block in enumerate(blocks):
        slot = fold.slot(group.pool, block)
        if slot < 0 or not known(fold, slot) or block in group.pool.reserved:
            continue
        if fold.st.owner[slot] == reader and slot in request.held:
            continue
        if fold.st.loads[slot] > 0 or scene.moves.load(slot) is not None:
            continue
        if not fold.hashes_known(slot):
            continue
        first = start + i * unit
        span = (max(0, first), max(0, first + unit))
        seen = request.seen.get(slot)
        if not hashed(fold, group, slot) and not (seen is not None and seen.hashed):
            faults.append(Fault(code, Kind.UNHASHED, slot, span, "no live hash leads to it"))
        elif found is not None and slot not in found and not _same_hash(fold, slot, found):
            why = "the lookup had found other blocks"
            faults.append(Fault(code, Kind.UNHASHED, slot, span, why))
    return faults


def _found(fold: Fold, request: Request, group: Group) -> set[int] | None:
    """Slots that the request's lookup found for a group, or None where it lists none."""
    lookup = request.lookup
    blocks = None if lookup is None else (lookup.get("blocks") or {}).get(group.name)
    if not blocks or group.form != "compressed":
        return None
    return {fold.slot(group.pool, b) for b in blocks}


def _same_hash(fold: Fold, slot: int, found: set[int]) -> bool:
    """Whether the block shares a hash with one that was found: a copy of the same content."""
    names = _hashes(fold, slot)
    return any(names & _hashes(fold, other) for other in found if other >= 0)


def _hashes(fold: Fold, slot: int) -> set[int]:
    return {fold.st.e_hash[entry] for entry in live_entries(fold, slot)}
