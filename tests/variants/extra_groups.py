"""Innocent groups beside the guilty one."""

from __future__ import annotations

from random import Random

from .case import MARK, Case, Event
from .fields import TRANSFERS, groups_of, names_of, pools_of

MIRRORED = {
    "A01": "mb", "A02": "fa", "A03": "fa", "A04": "fa", "A05": "fa", "A14": "c4", "A17": "full",
    "A19": "attn", "E06": "mb", "S15": "sw", "S17": "full", "S21": "full",
}  # fmt: skip
"""The group of each case that does everything right, in both arms, and moves nothing."""


def declare_idle_group(case: Case, rng: Random) -> Case:
    """A group that nothing happens in, on a pool of its own or on one that is there."""
    # On the far side of a transfer a group would be taken for the copy of the near one.
    far = {e.get("to") or e.get("from") for arm in case.arms for e in arm if e["ev"] in TRANSFERS}
    near = [name for name in pools_of(case.bad) if name not in far]
    own = rng.random() < 0.5 or not near
    name = _unused(case, "pool", "spare") if own else rng.choice(near)
    group: Event = {
        "ev": "group", "group": _unused(case, "group", "idle"),
        "form": rng.choice(("compressed", "swa", "recurrent")), "pool": name,
        "block_tokens": rng.choice((16, 64, 100)), "participates": False,
    }  # fmt: skip
    if group["form"] == "swa":
        group["window"] = 200
    pool = [{"ev": "pool", "pool": name, "medium": "gpu", "blocks": 8}] if own else []
    return case.both(lambda arm: _declared(arm, [*pool, group]))


def _declared(arm: list[Event], lines: list[Event]) -> list[Event]:
    last = max(n for n, e in enumerate(arm) if e["ev"] in ("pool", "group"))
    return [*arm[: last + 1], *lines, *arm[last + 1 :]]


def _unused(case: Case, kind: str, base: str) -> str:
    taken = {str(x) for arm in case.arms for x in names_of(arm, kind)}
    n = 0
    while f"{base}{n}" in taken:
        n += 1
    return f"{base}{n}"


def add_private_state(case: Case, rng: Random) -> Case:
    """Each request keeps a small state of its own, which no resume needs and nobody shares."""
    if case.id[0] == "C":
        return case  # a group more is a need more where blocks are what is short
    pool, group = _unused(case, "pool", "side"), _unused(case, "group", "side")
    lines: list[Event] = [
        {"ev": "pool", "pool": pool, "medium": "gpu", "blocks": 64, "reserved": [0]},
        {"ev": "group", "group": group, "form": "recurrent", "pool": pool, "block_tokens": 8,
         "participates": False},
    ]  # fmt: skip
    start = rng.randint(1, 30)

    def stateful(arm: list[Event]) -> list[Event]:
        out: list[Event] = []
        slots: dict[str, int] = {}
        counts: dict[str, int] = {}
        fresh = start
        last = _last_accesses(arm)
        for n, e in enumerate(arm):
            if e["ev"] == "dispatch":
                for req in last.get(e["step"], {}):
                    if req not in slots:
                        slots[req] = fresh
                        counts[req] = 0
                        fresh += 1
                        out.append({"ev": "alloc", "req": req, "group": group,
                                    "blocks": [slots[req]]})  # fmt: skip
            out.append(e)
            req = str(e.get("req"))
            if "step" in e and last.get(e["step"], {}).get(req) == n:
                same = {"req": req, "group": group, "blocks": [slots[req]], "step": e["step"]}
                if "actor" in e:
                    same["actor"] = e["actor"]
                k = counts[req]
                if k:
                    out.append({"ev": "use", **same})
                out.append({"ev": "write", **same, "tokens": [k, k + 1]})
                counts[req] += 1
            if e["ev"] in ("finish", "abort", "preempt") and req in slots:
                gone = [slots.pop(req)]
                out.append({"ev": "free", "req": req, "group": group, "blocks": gone})
        return _declared(out, lines)

    return case.both(stateful)


def _last_accesses(arm: list[Event]) -> dict[int, dict[str, int]]:
    """Step and request to the position of the last access that one has in the other."""
    ended: set[str] = set()
    last: dict[int, dict[str, int]] = {}
    for n, e in enumerate(arm):
        if e["ev"] in ("write", "use", "seal", "index") and "step" in e and "req" in e:
            # A step that outlives its request gets no state: the slot is gone with the request.
            if e["req"] not in ended:
                last.setdefault(e["step"], {})[e["req"]] = n
        if e["ev"] in ("finish", "abort", "preempt"):
            ended.add(e["req"])
        elif e["ev"] == "admit":
            ended.discard(e["req"])
    return last


def mirror_group(case: Case, rng: Random) -> Case:
    """A second group that does what an innocent one does, in blocks of its own."""
    group = MIRRORED.get(case.id)
    if group is None:
        return case
    twin, pool = _unused(case, "group", "twin"), _unused(case, "pool", "twin")
    declared = groups_of(case.bad)[group]
    size = pools_of(case.bad)[declared["pool"]]["blocks"]
    shift = rng.randint(1, 40)

    def moved(blocks: list[int]) -> list[int]:
        return [b + shift for b in blocks]

    def mirrored(arm: list[Event]) -> list[Event]:
        out: list[Event] = []
        for e in arm:
            twice = dict(e)
            for key in ("hit", "blocks", "route"):
                if isinstance(e.get(key), dict) and group in e[key]:
                    mine = e[key][group]
                    more = moved(mine) if key == "blocks" else mine
                    twice[key] = {**e[key], twin: more}
            out.append(twice)
            if e.get("group") == group and e["ev"] != "kernel":
                copy = {k: v for k, v in e.items() if k not in (MARK, "layout")}
                copy["group"] = twin
                if e["ev"] == "group":
                    reserved = [0]
                    out.insert(-1, {"ev": "pool", "pool": pool, "medium": "gpu",
                                    "blocks": size + shift, "reserved": reserved})  # fmt: skip
                    out.append({**copy, "pool": pool})
                    continue
                copy["blocks"] = moved(e["blocks"])
                if "hashes" in e:
                    copy["hashes"] = [f"{h}~2" for h in e["hashes"]]
                out.append(copy)
        return out

    return case.both(mirrored)
