"""Another order of what is independent: neighbours that share no request, block or lane edge."""

from __future__ import annotations

from random import Random

from .case import Case, Event
from .fields import Places, groups_of
from .surface import lane_of

_BOOKS = {"alloc", "touch", "free", "publish", "unpublish", "admit", "finish", "lookup"}
_ACCESSES = {"write", "seal", "index", "use"}

FIXED = {
    "C": "the order of refusals, preemptions and frees is the story",
    "F": "announcements follow their publish",
}


def swap_neighbours(case: Case, rng: Random) -> Case:
    """Let independent neighbours trade places, here and there."""
    if case.id[0] in FIXED:
        return case
    places = Places(*case.arms)
    rate = rng.choice((0.3, 0.8))

    def swapped(arm: list[Event]) -> list[Event]:
        out = list(arm)
        groups = groups_of(arm)
        for _ in range(2):
            n = 0
            while n + 1 < len(out):
                a, b = out[n], out[n + 1]
                if rng.random() < rate and _independent(a, b, places, groups):
                    out[n], out[n + 1] = b, a
                    n += 1
                n += 1
        return out

    return case.both(swapped)


def _independent(a: Event, b: Event, places: Places, groups: dict[str, Event]) -> bool:
    if a["ev"] in _BOOKS and b["ev"] in _BOOKS and lane_of(a) == lane_of(b):
        return _books_commute(a, b, places, groups)
    if a["ev"] in _ACCESSES and b["ev"] in _ACCESSES and a.get("step") == b.get("step"):
        if "step" not in a or a.get("pad") or b.get("pad"):
            return False
        apart = _linked(a["group"], groups).isdisjoint(_linked(b["group"], groups))
        return (apart or a.get("req") != b.get("req")) and _disjoint(a, b, places)
    return False


def _books_commute(a: Event, b: Event, places: Places, groups: dict[str, Event]) -> bool:
    """Whether the host could as well have done `b` first."""
    kinds = {a["ev"], b["ev"]}
    if not _disjoint(a, b, places):
        return False
    if a.get("req") != b.get("req"):
        # A lookup finds what was published before it.
        return "lookup" not in kinds or not kinds & {"publish", "unpublish"}
    if kinds == {"admit", "lookup"}:
        return "engine" not in a and "engine" not in b
    if a["ev"] == b["ev"] and a["ev"] in ("alloc", "touch", "free", "publish"):
        mine, other = a.get("group"), b.get("group")
        if mine is None or other is None:
            return False
        return _table(mine, groups) != _table(other, groups)
    return False


def _table(group: str, groups: dict[str, Event]) -> str:
    return str(groups[group].get("table", group))


def _linked(group: str, groups: dict[str, Event]) -> set[str]:
    """The group and those it serves or is served by, or shares a table with."""
    found = {group}
    for _ in groups:
        for name, g in groups.items():
            near = {g.get("serves"), name}
            if near & found or _table(name, groups) in {_table(x, groups) for x in found}:
                found |= {x for x in near if x}
    return found


def _disjoint(a: Event, b: Event, places: Places) -> bool:
    used = []
    for e in (a, b):
        if e["ev"] in ("unpublish", "publish") and "blocks" not in e:
            return False
        seen: set[tuple[str, int]] = set()

        def note(pool: str, block: int, seen: set[tuple[str, int]] = seen) -> int:
            seen.add((pool, block))
            return block

        places.relocate(e, note)
        used.append(seen)
    return used[0].isdisjoint(used[1])


def shuffle_frees(case: Case, rng: Random) -> Case:
    """A request may give its blocks back in any order."""
    if case.id[0] == "C":
        return case

    def shuffled(e: Event) -> Event:
        if e["ev"] != "free" or rng.random() < 0.3:
            return e
        return {**e, "blocks": rng.sample(e["blocks"], len(e["blocks"]))}

    return case.each(shuffled)


_PASSABLE = _BOOKS | {"resume", "slide", "preempt", "refuse", "abort", "dispatch", "pin", "unpin"}


def delay_accesses(case: Case, rng: Random) -> Case:
    """Let the device's lines come later, behind what the host did while the step was in flight.

    Between its dispatch and its retire nothing orders an access and the host's book-keeping.
    """
    if case.id[0] in FIXED or case.has("launch", "capture"):
        return case
    rate = rng.choice((0.5, 1.0))

    def delayed(arm: list[Event]) -> list[Event]:
        out = list(arm)
        for n in range(len(out) - 2, -1, -1):
            if out[n]["ev"] not in _ACCESSES or "step" not in out[n] or rng.random() > rate:
                continue
            m = n
            while m + 1 < len(out) and _passes(out[m], out[m + 1]):
                out[m], out[m + 1] = out[m + 1], out[m]
                m += 1
        return out

    return case.both(delayed)


def _passes(access: Event, e: Event) -> bool:
    return e["ev"] in _PASSABLE and lane_of(e) == "sched" and e.get("step") != access["step"]
