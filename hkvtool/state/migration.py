"""305: blocks that were to come from a lower tier, and did not."""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.model.event import Event
from hkvtool.state.declarations import Group
from hkvtool.state.faults import Fault, Kind
from hkvtool.state.moves import share
from hkvtool.state.reading import Read, brought
from hkvtool.state.requests import Request
from hkvtool.state.scene import Scene


def is_brought(scene: Scene, request: Request, group: Group, route: str | None) -> bool:
    """Whether the group's blocks were to come from a lower tier: by their route, or because
    the hit was there and not on the device."""
    if route is not None:
        return route == "load"
    lookup = request.lookup
    if lookup is None or lookup["hit"].get(group.name, 0) > 0:
        return False
    for name, tokens in lookup["hit"].items():
        tier = scene.fold.group(name)
        if tier is not None and not tier.participates and tokens > 0:
            if scene.fold.declared.mirror(tier, group.pool) is group:
                return True
    return False


def unmigrated(scene: Scene, fault: Fault, code: str = "HKV305") -> Fault:
    """The fault of a block that a load was to bring: if it is empty, no load made it resident,
    or the load brought what was stored from a group of another form."""
    if fault.slot < 0 or fault.kind is not Kind.EMPTY:
        return fault
    load = scene.moves.load(fault.slot)
    form = None if load is None else _form_loaded(scene, load, fault.slot)
    if form is not None:
        why = f"what was loaded into it was stored from a group of form {form}"
        return fault._replace(code="HKV601", kind=Kind.FOREIGN, why=why)
    why = "no load that ended well filled it"
    return fault._replace(code=code, kind=Kind.NOT_MIGRATED, why=why)


def _form_loaded(scene: Scene, load: Event, slot: int) -> str | None:
    """The form of the group whose content the peer of a loaded block holds, if another."""
    fold, stored = scene.fold, scene.moves.stored_to
    _, group, far = fold.transfers[str(load["handle"])]
    place = load["blocks"].index(fold.block_of[slot])
    peers = load.get("peer") or ()
    if far is None or place >= len(peers):
        return None
    peer = fold.slot(far, peers[place])
    if share(peer, group) in stored:
        return None
    for other in fold.declared.groups.values():
        if other.form != group.form and share(peer, other) in stored:
            return other.form
    return None


def of_migration(scene: Scene, read: Read, faults: Iterable[Fault]) -> list[Fault]:
    """The same faults, where a load was to bring the block as what became of that load."""
    resumed: set[int] = set()
    if read.resume is not None and read.request is not None:
        if is_brought(scene, read.request, read.group, read.route):
            ids = brought(scene, read.resume, read.group) or []
            resumed = {scene.fold.slot(read.group.pool, b) for b in ids}
    out: list[Fault] = []
    for fault in faults:
        if fault.slot in resumed:
            fault = unmigrated(scene, fault)
        elif fault.slot >= 0 and scene.moves.load(fault.slot) is not None:
            fault = unmigrated(scene, fault, "HKV603" if read.resume is None else "HKV305")
        # Without a resume nothing was decided about a load: it is read unreadable (603).
        if fault.code != "HKV305" or read.resume is not None:
            out.append(fault)
    return out
