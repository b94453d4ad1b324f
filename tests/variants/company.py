"""The fixed story in company of the faulty one: a renamed copy of the good arm runs beside it."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import MARK, Case, Event
from .fields import Places, names_of, pools_of, rename
from .ids import Regions
from .load import DECLARES, cuts_of, lay_between
from .surface import lane_of

EXCLUDED = {
    "B16": "a swap of places concerns the whole pool",
    "B17": "a swap of places concerns the whole pool",
    "A04": "a swap of places concerns the whole pool",
    "B19": "a pool that moves moves for everybody",
    "D02": "a pool that moves moves for everybody",
    "D03": "a pool that moves moves for everybody",
    "D06": "the null block is shared, and zeroed for both",
    "S13": "the budget of bytes in flight is shared",
    "C": "waiting, blocks and progress are counted together",
    "F": "one stream of announcements, numbered through",
    "S23": "an unknown event names nothing that could be renamed",
}
_KINDS = ("req", "handle", "event", "graph", "buffer", "hash", "owner", "external")


def double(case: Case, rng: Random) -> Case:
    """Interleave both arms with the same copy of the good arm, in blocks of its own."""
    if case.id in EXCLUDED or case.id[0] in EXCLUDED:
        return case
    twin = _twin(case, rng)
    if twin is None:
        return case
    segments = _segments(twin)
    whole = case.has("reset")  # it would forget the other story's hashes
    seed = rng.random()
    return case.both(lambda arm: _beside(arm, segments, whole, Random(seed)))


def late(case: Case, rng: Random) -> Case:
    """The recording begins in the middle of the copy: nobody knows what it did before."""
    if case.id in EXCLUDED or case.id[0] in EXCLUDED or case.id == "S21":
        return case  # whether every request has ended is not known where some are not known
    twin = _twin(case, rng)
    if twin is None:
        return case
    cuts = [n for n in sorted({n for c in cuts_of(twin).values() for n in c}) if _closed(twin[:n])]
    rest = twin[rng.choice(cuts) :]

    def behind(arm: list[Event]) -> list[Event]:
        spot = min(n for found in cuts_of(arm).values() for n in found)
        return [*arm[:spot], *rest, *arm[spot:]]

    return case.both(behind)


def _closed(events: list[Event]) -> bool:
    """Whether no transfer, lease or edge is under way behind these events."""
    under_way: set[Any] = set()
    for e in events:
        if e["ev"] in ("store_begin", "load_begin"):
            under_way.add(e["handle"])
        elif e["ev"] in ("store_end", "load_end"):
            under_way.discard(e["handle"])
        elif e["ev"] == "signal":
            under_way.add(("edge", e["event"]))
        elif e["ev"] == "wait":
            under_way.discard(("edge", e["event"]))
    return not under_way


def _beside(arm: list[Event], segments: list[list[Event]], whole: bool, rng: Random) -> list[Event]:
    spots = [n for cuts in cuts_of(arm).values() for n in cuts]
    if whole:
        return lay_between(arm, segments, [spots[0]] * len(segments))
    return lay_between(arm, segments, sorted(rng.choice(spots) for _ in segments))


def _twin(case: Case, rng: Random) -> list[Event] | None:
    """The good arm without its declarations, everything in it called otherwise."""
    events = [e for e in case.good if e["ev"] not in DECLARES or e["ev"] == "capture"]
    compute = {lane_of(e) for e in events if e["ev"] in ("write", "use", "seal") and "step" in e}
    suffix = f"~{rng.getrandbits(24):x}"
    names: dict[str, dict[Any, Any]] = {}
    for kind in _KINDS:
        mine = [*names_of(case.bad, kind), *names_of(case.good, kind)]
        names[kind] = {name: f"{name}{suffix}" for name in mine}
    # Only the device is shared: a lane of transfers of its own adds no order to the other's.
    shared = compute | {"sched", "device"}
    lanes = {lane_of(e) for e in events} - shared
    names["actor"] = {lane: f"{lane}{suffix}" for lane in lanes}
    names["owner"].update(names["req"])

    places = Places(*case.arms)
    used = places.used(*case.arms)
    moves: dict[tuple[str, int], int] = {}
    regions = Regions(case)
    for pool, declared in pools_of(*case.arms).items():
        mine = sorted(used.get(pool, set()) - set(declared.get("reserved", ())))
        taken = used.get(pool, set()) | set(declared.get("reserved", ())) | {0}
        free: dict[tuple[bool, ...], list[int]] = {}
        for block in range(declared["blocks"]):
            if block not in taken:
                free.setdefault(regions.side(pool, block), []).append(block)
        for side, fits in free.items():
            here = [b for b in mine if regions.side(pool, b) == side]
            if len(fits) < len(here):
                return None
            moves.update(zip(((pool, b) for b in here), rng.sample(fits, len(here)), strict=True))
        if any((pool, b) not in moves for b in mine):
            return None
    steps = [e["step"] for arm in case.arms for e in arm if "step" in e]
    later = max(steps, default=0) + rng.randint(1, 50)

    def changed(e: Event) -> Event:
        moved = places.relocate(e, lambda pool, b: moves.get((pool, b), b))
        out = rename(moved, lambda kind, name: names.get(kind, {}).get(name, name))
        if "step" in e:
            out["step"] = e["step"] + later
        return {k: v for k, v in out.items() if k != MARK}

    return [changed(e) for e in events]


def _segments(events: list[Event]) -> list[list[Event]]:
    """Stretches between moments at which no step is in flight."""
    out: list[list[Event]] = []
    begin = 0
    for cuts in cuts_of(events).values():
        for n in cuts:
            if n > begin:
                out.append(events[begin:n])
                begin = n
    if begin < len(events):
        out.append(events[begin:])
    return out
