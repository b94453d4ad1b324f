"""What an event says of references and pins that cannot be: double frees, blocks handed out while
they are held, pins that are broken (HKV704)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.state.arrays import UNKNOWN
from hkvtool.state.fold import Fold
from hkvtool.state.scene import Scene
from hkvtool.state.serving import known
from hkvtool.state.wording import shown


class Breach(NamedTuple):
    """Blocks that an event takes or gives wrongly: in which way, and the events before it that
    show so."""

    slots: list[int]
    what: str
    events: list[int]


def breaches(scene: Scene, event: Event) -> list[Breach]:
    """What an event, before it is folded, breaks."""
    if event.ev == "free":
        return _free(scene, event)
    if event.ev == "alloc":
        return _alloc(scene, event)
    if event.ev == "unpin":
        times = Counter(s for s in scene.slots(event) if _certain(scene.fold, s))
        below = [s for s, n in times.items() if scene.fold.st.pins[s] < n]
        return _if(below, "unpinned more often than it was pinned")
    if event.ev == "unpublish" and event.get("reason") == "evict":
        sure = [s for s in scene.slots(event) if _certain(scene.fold, s)]
        return _if([s for s in sure if scene.fold.st.pins[s] > 0], "evicted while it is pinned")
    return []


def listed_while_held(scene: Scene, event: Event) -> list[Breach]:
    """What a `state` event, folded, lists as free and yet referenced."""
    if event.ev != "state" or not event.get("free_order"):
        return []
    fold = scene.fold
    _, pool = fold.place(event)
    listed = [] if pool is None else [fold.slot(pool, b) for b in event["free_order"]]
    held = [s for s in listed if _certain(fold, s) and fold.st.refs[s] > 0]
    return _if(held, "in the free list while it is referenced")


def sentence(fold: Fold, event: Event, breach: Breach) -> str:
    """The breach in words."""
    blocks = [fold.block_of[s] for s in breach.slots]
    one = f"block {blocks[0]} is" if len(blocks) == 1 else f"blocks {shown(blocks)} are"
    who = event.req if event.req is not None else event.get("owner")
    return f"{one} {breach.what}" + (f" (by {who})" if who is not None else "")


def _free(scene: Scene, event: Event) -> list[Breach]:
    st = scene.fold.st
    times = Counter(_judged(scene.fold, scene.slots(event)))
    below = [s for s, n in times.items() if st.refs[s] < n]
    if below:
        last = [st.free_pos[s] for s in below[:2]]
        return [Breach(below, "released more often than it was taken", last)]
    request = scene.request(event)
    if request is None:
        return []
    twice = [s for s, n in times.items() if n > 1 and 0 < request.held.get(s, 0) < n]
    return _if(twice, "listed twice for one owner")


def _alloc(scene: Scene, event: Event) -> list[Breach]:
    st = scene.fold.st
    slots = scene.slots(event)
    sure = _judged(scene.fold, slots)
    pinned = [s for s in sure if st.pins[s] > 0]
    found = _if(pinned, "handed out while it is pinned")
    held = [s for s in sure if st.refs[s] > 0 and s not in pinned]
    if held:
        where = [st.alloc_pos[s] for s in held[:2]]
        found.append(Breach(held, "handed out while it is still referenced", where))
    double = [s for s, n in Counter(s for s in slots if s >= 0).items() if n > 1]
    return found + _if(double, "handed out twice at once")


def _if(slots: list[int], what: str) -> list[Breach]:
    return [Breach(slots, what, [])] if slots else []


def _certain(fold: Fold, slot: int) -> bool:
    return slot >= 0 and known(fold, slot)


def _judged(fold: Fold, slots: Sequence[int]) -> list[int]:
    """Those that are known, and not reserved; all are of one pool."""
    st = fold.st
    told, unsure = st.known, st.unsure
    sure = [s for s in slots if s >= 0 and told[s] != UNKNOWN and unsure[s] == 0]
    if fold.gaps:
        sure = [s for s in sure if not fold.in_gap(s)]
    reserved = fold.pool_of(sure[0]).reserved if sure else None
    if not reserved:
        return sure
    block = fold.block_of
    return [s for s in sure if block[s] not in reserved]
