"""Other words for the same: optional keys left out or spelled out, lists cut in two."""

from __future__ import annotations

from random import Random

from .case import MARK, Case, Event
from .fields import groups_of

KEEP_REASONS = {
    "C01": "what a request waits for is part of the story",
    "C03": "a preemption is tied to a refusal by its reason",
    "C05": "what a request waits for is part of the story",
    "C08": "what a request waits for is part of the story",
}
_FREE_TEXT = ("abort", "finish", "preempt", "refuse")


def drop_optional(case: Case, rng: Random) -> Case:
    """Leave out keys that say nothing the trace does not say elsewhere."""
    counted = bool(case.evidence & {"layout"}) or case.has("limits")
    reqs, reasons, sizes, ok, notes = (rng.random() < 0.5 for _ in range(5))
    reasons = reasons and case.id not in KEEP_REASONS
    notes = notes and case.bad[0].get("note") is not None

    def shortened(e: Event) -> Event:
        gone: set[str] = set()
        if reqs and e["ev"] == "retire":
            gone.add("reqs")
        if reasons and e["ev"] in _FREE_TEXT:
            gone.add("reason")
        if sizes and not counted and e["ev"] in ("store_begin", "load_begin"):
            gone.add("bytes")
        if ok and e["ev"] in ("store_end", "load_end") and e.get("ok") is True:
            gone.add("ok")
        if notes and e["ev"] == "trace":
            gone.update(("note", "engine"))
        return {k: v for k, v in e.items() if k not in gone}

    return case.each(shortened)


def spell_out(case: Case, rng: Random) -> Case:
    """Say what is understood: the pool of an alloc, the default of a flag."""
    pools, ok, defaults = (rng.random() < 0.6 for _ in range(3))

    def longer(arm: list[Event]) -> list[Event]:
        groups = groups_of(arm)
        out = []
        for e in arm:
            e = dict(e)
            if pools and e["ev"] == "alloc" and "group" in e:
                e.setdefault("pool", groups[e["group"]]["pool"])
            if ok and e["ev"] in ("store_end", "load_end"):
                e.setdefault("ok", True)
            if defaults and e["ev"] == "group":
                e.setdefault("ratio", 1)
                e.setdefault("participates", True)
                e.setdefault("table", e["group"])
                if e["form"] == "swa":
                    e.setdefault("window_kind", "sliding")
            out.append(e)
        return out

    return case.both(longer)


def name_pool_or_group(case: Case, rng: Random) -> Case:
    """References by pool instead of by group; by group where only one has the pool."""
    rate = rng.choice((0.3, 1.0))

    def other(arm: list[Event]) -> list[Event]:
        groups = groups_of(arm)
        leads: dict[str, list[str]] = {}
        for name, group in groups.items():
            if group.get("table", name) == name or group.get("table") not in groups:
                leads.setdefault(group["pool"], []).append(name)
        out = []
        for e in arm:
            if e["ev"] in ("free", "touch") and rng.random() < rate:
                if "group" in e:
                    e = {**e, "pool": groups[e["group"]]["pool"]}
                    del e["group"]
                elif len(leads.get(e["pool"], ())) == 1:
                    e = {**e, "group": leads[e["pool"]][0]}
                    del e["pool"]
            out.append(e)
        return out

    return case.both(other)


def cut_lists(case: Case, rng: Random) -> Case:
    """One book-keeping event about several blocks becomes two that follow each other."""
    if case.id.startswith("C"):
        return case  # an alloc in two would let a refused request hold part of what it needs

    def cut(arm: list[Event]) -> list[Event]:
        out: list[Event] = []
        for e in arm:
            blocks = e.get("blocks")
            plain = e["ev"] in ("alloc", "free", "touch") and "tokens" not in e and "front" not in e
            alone = not case.is_focus(e)
            if plain and alone and len(blocks or ()) > 1 and rng.random() < 0.4:
                n = rng.randint(1, len(e["blocks"]) - 1)
                rest = {k: v for k, v in e.items() if k != MARK}
                out += [{**e, "blocks": e["blocks"][:n]}, {**rest, "blocks": e["blocks"][n:]}]
            elif e["ev"] == "write" and alone and _cuttable(e, arm) and rng.random() < 0.4:
                out += _write_in_two(e, arm, rng)
            elif e["ev"] == "publish" and alone and _whole(e, arm) and rng.random() < 0.4:
                out += _publish_in_two(e, arm, rng)
            else:
                out.append(e)
        return out

    return case.both(cut)


def _whole(e: Event, arm: list[Event]) -> bool:
    """Whether every block of a publish is full, so that it can be cut at any of them."""
    group = groups_of(arm)[e["group"]]
    size = group["block_tokens"]
    a, b = e.get("tokens", (0, 0))
    n = len(e["blocks"])
    return group["form"] != "recurrent" and n > 1 and "tokens" in e and b - a == n * size


def _cuttable(e: Event, arm: list[Event]) -> bool:
    """Whether a write covers several blocks, each of which it alone brings forward."""
    form = groups_of(arm)[e["group"]]["form"]
    return form in ("compressed", "swa") and len(e["blocks"]) > 1 and not {"pad", "index"} & set(e)


def _write_in_two(e: Event, arm: list[Event], rng: Random) -> list[Event]:
    size = groups_of(arm)[e["group"]]["block_tokens"]
    n = rng.randint(1, len(e["blocks"]) - 1)
    middle = (e["tokens"][0] // size + n) * size
    rest = {k: v for k, v in e.items() if k != MARK}
    return [
        {**e, "blocks": e["blocks"][:n], "tokens": [e["tokens"][0], middle]},
        {**rest, "blocks": e["blocks"][n:], "tokens": [middle, e["tokens"][1]]},
    ]


def _publish_in_two(e: Event, arm: list[Event], rng: Random) -> list[Event]:
    size = groups_of(arm)[e["group"]]["block_tokens"]
    n = rng.randint(1, len(e["blocks"]) - 1)
    middle = e["tokens"][0] + n * size
    rest = {k: v for k, v in e.items() if k != MARK}
    return [
        {**e, "blocks": e["blocks"][:n], "hashes": e["hashes"][:n],
         "tokens": [e["tokens"][0], middle]},
        {**rest, "blocks": e["blocks"][n:], "hashes": e["hashes"][n:],
         "tokens": [middle, e["tokens"][1]]},
    ]  # fmt: skip
