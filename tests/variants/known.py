"""Things said that were known before: older state, idle edges, evidence, positions of blocks."""

from __future__ import annotations

from random import Random

from .case import Case, Event
from .fields import Places, groups_of, pools_of
from .load import DECLARES

IMPLIED_ELSEWHERE = {
    "B13": "no event of the good arm shows that lanes were seen",
    "B15": "no event shows that edges between lanes were seen",
}


def _first(arm: list[Event]) -> int:
    """Position of the first event that is no declaration."""
    return next(n for n, e in enumerate(arm) if e["ev"] not in DECLARES)


def remember(case: Case, rng: Random) -> Case:
    """The recording goes on from an older one: some blocks are known that nobody names again."""
    used = Places(*case.arms).used(*case.arms)
    lines: list[Event] = []
    for name, pool in pools_of(case.bad).items():
        groups = [g for g, e in groups_of(case.bad).items() if e["pool"] == name]
        taken = used.get(name, set()) | set(pool.get("reserved", ())) | {0}
        free = [b for b in range(min(pool["blocks"], 5_000)) if b not in taken]
        n = min(len(free), rng.randint(1, 4))
        if case.id[0] == "C" or not n or not groups:
            continue
        blocks = rng.sample(free, n)
        refs = [rng.randint(0, 1) for _ in blocks]
        size = groups_of(case.bad)[groups[0]]["block_tokens"]
        line: Event = {
            "ev": "state", "pool": name, "blocks": blocks, "refs": refs,
            "gens": [rng.randint(1, 9) for _ in blocks],
            "owners": ["ghost" if r else None for r in refs],
            "written": [size for _ in blocks], "groups": [groups[0]] * n,
        }  # fmt: skip
        if "wire" not in case.evidence:
            line["hashes"] = [f"old-{name}-{b}" for b in blocks]
        lines.append(line)
    return case.both(lambda arm: [*arm[: _first(arm)], *lines, *arm[_first(arm) :]])


def add_edges(case: Case, rng: Random) -> Case:
    """Signals that nobody waits for, and edges from a lane to itself: they order nothing."""
    if "stream" not in case.evidence:
        return case

    def idle(arm: list[Event]) -> list[Event]:
        out: list[Event] = []
        for n, e in enumerate(arm):
            if e["ev"] not in DECLARES and rng.random() < 0.15:
                name = f"idle-{n}"
                out.append({"ev": "signal", "event": name})
                if rng.random() < 0.5:
                    out.append({"ev": "wait", "event": name})
            out.append(e)
        return out

    return case.both(idle)


def restate_evidence(case: Case, rng: Random) -> Case:
    """The same evidence once more, somewhere on the way."""
    line: Event = {"ev": "evidence", "evidence": sorted(case.evidence)}

    def restated(arm: list[Event]) -> list[Event]:
        n = rng.randint(_first(arm), len(arm))
        return [*arm[:n], line, *arm[n:]]

    return case.both(restated)


def imply_evidence(case: Case, rng: Random) -> Case:
    """Leave the evidence to what the kinds of events imply."""
    if case.id in IMPLIED_ELSEWHERE:
        return case
    return case.each(
        lambda e: {k: v for k, v in e.items() if e["ev"] != "trace" or k != "evidence"}
    )


def state_positions(case: Case, rng: Random) -> Case:
    """Say which tokens a request's first blocks are for, where the first write shows it."""

    def positioned(arm: list[Event]) -> list[Event]:
        groups = groups_of(arm)
        out = []
        seen: set[tuple[str, str]] = set()
        for n, e in enumerate(arm):
            if e["ev"] in ("alloc", "touch") and "req" in e and "group" in e:
                key = (e["req"], e["group"])
                if e["ev"] == "alloc" and key not in seen and "tokens" not in e:
                    size = groups[e["group"]]["block_tokens"]
                    if groups[e["group"]]["form"] == "compressed" and _begins(e, arm[n:]):
                        e = {**e, "tokens": [0, size * len(e["blocks"])]}
                seen.add(key)
            elif e["ev"] in ("finish", "abort", "preempt"):
                seen = {k for k in seen if k[0] != e["req"]}
            out.append(e)
        return out

    return case.both(positioned)


def _begins(alloc: Event, after: list[Event]) -> bool:
    """Whether the request's next write of the group fills these blocks from token 0 on."""
    for e in after:
        same = e.get("req") == alloc["req"] and e.get("group") == alloc["group"]
        if same and e["ev"] in ("write", "seal"):
            n = min(len(e["blocks"]), len(alloc["blocks"]))
            return bool(e["tokens"][0] == 0 and e["blocks"][:n] == alloc["blocks"][:n])
        if same and e["ev"] in ("touch", "load_begin"):
            return False
    return False
