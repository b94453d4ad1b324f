"""Other lanes for the same order: several workers where every step is retired before the next."""

from __future__ import annotations

from random import Random

from .case import Case, Event
from .surface import lane_of

_ACCESSES = {"write", "seal", "index", "zero", "copy", "use", "select"}


def one_at_a_time(arm: list[Event]) -> bool:
    """Whether every step is retired before the next one is dispatched."""
    open_steps: set[int] = set()
    for e in arm:
        if e["ev"] == "dispatch":
            if open_steps:
                return False
            open_steps.add(e["step"])
        elif e["ev"] == "retire":
            open_steps.discard(e["step"])
    return True


def _compute_lanes(case: Case) -> set[str]:
    return {lane_of(e) for arm in case.arms for e in arm if e["ev"] in _ACCESSES and "step" in e}


def _only_steps(case: Case, lane: str) -> bool:
    """Whether nothing but accesses of steps runs on `lane`."""
    return all(
        e["ev"] in _ACCESSES and "step" in e for arm in case.arms for e in arm if lane_of(e) == lane
    )


def split_by_step(case: Case, rng: Random) -> Case:
    """Steps that never overlap may run on different workers: dispatch and retire order them."""
    lanes = _compute_lanes(case)
    if case.has("launch") or len(lanes) != 1:
        return case  # a launch covers what follows on its lane: that must not move away
    if not all(one_at_a_time(arm) for arm in case.arms):
        return case
    (lane,) = lanes
    if not _only_steps(case, lane):
        return case
    steps = sorted({e["step"] for arm in case.arms for e in arm if "step" in e})
    workers = [f"worker:{n}" for n in range(rng.randint(2, 3))]
    chosen = {step: rng.choice(workers) for step in steps}

    def moved(e: Event) -> Event:
        if e["ev"] in _ACCESSES and "step" in e:
            return {**e, "actor": chosen[e["step"]]}
        return e

    return case.each(moved)


def default_lane(case: Case, rng: Random) -> Case:
    """One compute lane without edges of its own is the default device lane, named or not."""
    lanes = _compute_lanes(case)
    if len(lanes) != 1:
        return case
    (lane,) = lanes
    if not _only_steps(case, lane):
        return case
    named = rng.random() < 0.4

    def moved(e: Event) -> Event:
        if e["ev"] not in _ACCESSES or "step" not in e:
            return e
        out = {k: v for k, v in e.items() if k != "actor"}
        return {**out, "actor": "device"} if named else out

    return case.each(moved)


def name_scheduler(case: Case, rng: Random) -> Case:
    """The scheduler's lane spelled out on some events."""

    def named(e: Event) -> Event:
        declares = e["ev"] in ("trace", "pool", "group", "kernel", "limits", "launch", "capture")
        if "actor" in e or declares or lane_of(e) != "sched" or rng.random() < 0.5:
            return e
        return {**e, "actor": "sched"}

    return case.each(named)
