"""Changes of the writing only: step numbers, clocks, counters, unknown keys, key order."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import MARK, Case, Event

_ACCESSES = {"write", "seal", "index", "zero", "copy", "use", "buffer", "select"}
_AMBIGUOUS = ("launch", "capture")
"""Events with a step and no actor whose lane the format leaves open: `seq` counts by lane."""


def lane_of(e: Event) -> str:
    """The lane an event runs on."""
    if "actor" in e:
        return str(e["actor"])
    return "device" if "step" in e and e["ev"] in _ACCESSES else "sched"


def renumber_steps(case: Case, rng: Random) -> Case:
    """Other step numbers in the same order; with gaps where no patience is counted in steps."""
    old = sorted({e["step"] for arm in case.arms for e in arm if "step" in e})
    patient = any("stall_steps" in e for arm in case.arms for e in arm)
    start = rng.randint(0, 5_000)
    new: dict[int, int] = {}
    for step in old:
        if patient:
            new[step] = step + start
        else:
            start += rng.randint(1, 9)
            new[step] = start
    return case.each(lambda e: {**e, "step": new[e["step"]]} if "step" in e else e)


def add_clock(case: Case, rng: Random) -> Case:
    """A `ts` on every event, growing along the lines."""
    start = rng.randrange(1 << 50)

    def clocked(arm: list[Event]) -> list[Event]:
        now = start
        out = []
        for e in arm:
            now += rng.randint(1, 50_000)
            out.append({**e, "ts": now})
        return out

    return case.both(clocked)


def add_counters(case: Case, rng: Random) -> Case:
    """A gapless `seq` on each lane, starting anywhere."""
    both = [*case.bad, *case.good]
    if any(e["ev"] in _AMBIGUOUS and "step" in e and "actor" not in e for e in both):
        return case
    starts = {lane: rng.randrange(1 << 30) for lane in sorted({lane_of(e) for e in both})}

    def counted(arm: list[Event]) -> list[Event]:
        seq = dict(starts)
        out = []
        for e in arm:
            lane = lane_of(e)
            out.append({**e, "seq": seq[lane]})
            seq[lane] += 1
        return out

    return case.both(counted)


def add_unknown_keys(case: Case, rng: Random) -> Case:
    """Keys that no reader knows, and ids that a client knows its requests by."""
    tenant = f"team-{rng.randrange(100)}"
    extras: list[tuple[str, Any]] = [
        ("x_host", "node-3"), ("x_pid", 4211), ("x_note", None), ("x_ids", [1, 2, 3]),
        ("x_more", {"blocks": [9999], "step": 7}),
    ]  # fmt: skip

    def widened(e: Event) -> Event:
        out = dict(e)
        if e["ev"] == "admit":
            out.setdefault("tenant", tenant)
            out.setdefault("external", f"cmpl-{e['req']}")
        if e["ev"] != "trace" and rng.random() < 0.5:
            out.update(rng.sample(extras, rng.randint(1, 3)))
        return out

    return case.each(widened)


def shuffle_keys(case: Case, rng: Random) -> Case:
    """The keys of an object have no order."""

    def shuffled(e: Event) -> Event:
        pairs = [(k, v) for k, v in e.items() if k != MARK]
        rng.shuffle(pairs)
        return {**dict(pairs), **({MARK: e[MARK]} if MARK in e else {})}

    return case.each(shuffled)
