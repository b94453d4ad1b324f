"""Faults of allocation and content: blocks freed, taken, read or left unwritten."""

from __future__ import annotations

from random import Random

from .mutation import mutation, pick, where, without
from .tape import Event


@mutation("704", tight=True)
def double_free(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, (n for n in where(events, "free") if "req" in events[n]))
    if n is None:
        return None
    again = {**events[n], "blocks": events[n]["blocks"][:1]}
    return [*events[: n + 1], again, *events[n + 1 :]]


@mutation("904", family="full_swa")
def never_freed(events: list[Event], rng: Random) -> list[Event] | None:
    """The last request leaves the blocks of one group behind."""
    return without(events, max(where(events, "free")))


@mutation("704 904", tight=True)
def touch_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, (n for n in where(events, "touch") if "req" in events[n]))
    return None if n is None else without(events, n)


@mutation("704", tight=True)
def held_block_taken(events: list[Event], rng: Random) -> list[Event] | None:
    """A block is allocated that another request still holds."""
    held: dict[int, str] = {}
    sites = []
    for n, e in enumerate(events):
        if e["ev"] == "alloc":
            foreign = [b for b, who in held.items() if who != e["req"]]
            if foreign and held:
                sites.append((n, foreign))
            held.update(dict.fromkeys(e["blocks"], e["req"]))
        elif e["ev"] == "free":
            for b in e["blocks"]:
                held.pop(b, None)
    if not sites:
        return None
    n, foreign = rng.choice(sites)
    old, new = events[n]["blocks"][-1], rng.choice(foreign)
    out = list(events)
    out[n] = {**events[n], "blocks": [*events[n]["blocks"][:-1], new]}
    for m in range(n + 1, len(out)):
        if out[m].get("req") == events[n]["req"] and isinstance(out[m].get("blocks"), list):
            out[m] = {**out[m], "blocks": [new if b == old else b for b in out[m]["blocks"]]}
    return out


@mutation("101 102 103 704 105", tight=True)
def foreign_block_read(events: list[Event], rng: Random) -> list[Event] | None:
    """One entry of a table row is another request's."""
    uses = [n for n in where(events, "use") if len(events[n]["blocks"]) > 2]
    for n in rng.sample(uses, len(uses)):
        for m in range(n - 1, max(0, n - 40), -1):
            e = events[m]
            if e["ev"] == "use" and e["step"] == events[n]["step"] and e["req"] != events[n]["req"]:
                foreign = [b for b in e["blocks"][:-1] if b not in events[n]["blocks"]]
                if foreign:
                    blocks = [*events[n]["blocks"][:-2], foreign[0], events[n]["blocks"][-1]]
                    return [*events[:n], {**events[n], "blocks": blocks}, *events[n + 1 :]]
    return None


@mutation("101 102 103")
def write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """A whole chunk is never written, and read all the same."""
    n = pick(rng, (n for n in where(events, "write") if len(events[n]["blocks"]) > 2))
    return None if n is None else without(events, n)


@mutation("303 101 103", family="swa_only")
def window_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, (n for n in where(events, "write") if len(events[n]["blocks"]) > 2))
    return None if n is None else without(events, n)


@mutation("306 103", family="full_recurrent", requests=12)
def state_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    """A checkpoint that somebody resumes from was never written."""
    for n in where(events, "resume"):
        slots = events[n]["blocks"].get("mamba")
        if slots and events[n]["route"].get("mamba") == "reuse":
            before = [m for m in where(events[:n], "write") if events[m]["blocks"] == slots]
            if before and events[before[-1]]["group"] == "mamba":
                return without(events, before[-1])
    return None


@mutation("304 103", family="mla")
def index_forgotten(events: list[Event], rng: Random) -> list[Event] | None:
    full = (n for n in where(events, "index") if events[n]["tokens"][1] % 8 == 0)
    n = pick(rng, full)
    return None if n is None else without(events, n)


@mutation("304", family="mla")
def index_of_old_version(events: list[Event], rng: Random) -> list[Event] | None:
    n = pick(rng, (n for n in where(events, "index") if events[n]["kv_version"] > 1))
    if n is None:
        return None
    e = {**events[n], "kv_version": events[n]["kv_version"] - 1}
    used = any(
        m["ev"] == "use" and m["group"] == e["group"] and e["blocks"][0] in m["blocks"]
        for m in events[n : n + 30]
    )
    return [*events[:n], e, *events[n + 1 :]] if used else None


@mutation("302", family="c4")
def tail_write_lost(events: list[Event], rng: Random) -> list[Event] | None:
    tails = where(events, "write", group="c4tail")
    # A unit at least, so that an entry is sealed from it.
    n = pick(rng, (n for n in tails if events[n]["tokens"][1] - events[n]["tokens"][0] >= 8))
    return None if n is None else without(events, n)
