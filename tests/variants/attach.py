"""Recordings that begin in the middle, and recordings that lost something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from .tape import Event, make


def begin_late(
    rng: Random, head: Sequence[Event], events: Sequence[Event], rests: Sequence[int], told: bool
) -> list[Event]:
    """Keep the events behind a moment at which nothing is in flight.

    With `told` the state that held then is written down first; without it nothing is known.
    """
    inside = [n for n in rests if 0 < n < len(events)] or [0]
    cut = rng.choice(inside)
    state = _state(head, events[:cut]) if told else []
    return [*head, *state, *events[cut:]]


def say_again(
    rng: Random, head: Sequence[Event], events: Sequence[Event], rests: Sequence[int]
) -> list[Event]:
    """Put what holds at some moments, with nothing in flight, between the events."""
    inside = [n for n in rests if 0 < n < len(events)]
    out = [*head]
    begin = 0
    for cut in sorted(rng.sample(inside, min(len(inside), 2))):
        out += [*events[begin:cut], *_state(head, events[:cut])]
        begin = cut
    return [*out, *events[begin:]]


def _state(head: Sequence[Event], before: Sequence[Event]) -> list[Event]:
    """One `state` a pool: what the events before leave of each block that they named."""
    pool_of = {e["group"]: e["pool"] for e in head if e["ev"] == "group"}
    size_of = {e["group"]: e["block_tokens"] for e in head if e["ev"] == "group"}
    reserved = {e["pool"]: e.get("reserved", ()) for e in head if e["ev"] == "pool"}
    blocks: dict[tuple[str, int], dict[str, Any]] = {}
    order: dict[str, dict[int, None]] = {}
    slots: dict[tuple[str, int], set[int]] = {}
    peers: dict[Any, Event] = {}
    holders: dict[tuple[str, int], Counter[str]] = {}
    for e in before:
        pool = e.get("pool") or pool_of.get(e.get("group", ""), "")
        free = order.setdefault(pool, {})
        listed = e["ev"] not in _BY_GROUP and not e.get("pad")
        for i, block in enumerate(e.get("blocks", []) if listed else []):
            if block in reserved.get(pool, ()):
                continue
            key = (pool, block)
            it = blocks.setdefault(key, {"refs": 0, "gens": 0, "versions": 0, "hashes": None})
            who = str(e.get("req") or e.get("owner"))
            if e["ev"] == "alloc":
                it.update(refs=1, gens=it["gens"] + 1, versions=0, groups=e.get("group"))
                slots[key] = set()
                holders[key] = Counter([who])
                free.pop(block, None)
            elif e["ev"] == "touch":
                it["refs"] += 1
                holders[key][who] += 1
                free.pop(block, None)
            elif e["ev"] == "free":
                it["refs"] -= 1
                holders[key][who] -= 1
                if not it["refs"]:
                    free[block] = None
            elif e["ev"] == "publish":
                it["hashes"] = e["hashes"][i]
            elif e["ev"] == "unpublish":
                it["hashes"] = None
            elif e["ev"] == "write":
                it["versions"] += 1
                size = size_of[e["group"]]
                first = e["tokens"][0] // size + i
                a, b = max(e["tokens"][0], first * size), min(e["tokens"][1], (first + 1) * size)
                slots[key] |= {t % size for t in range(a, b)}
            elif e["ev"] in ("store_begin", "load_begin"):
                peers[e["handle"]] = e
        if e["ev"] in ("store_end", "load_end") and e.get("ok", True):
            _arrive(peers[e["handle"]], pool_of, slots, blocks)
        elif e["ev"] == "unpublish" and "hashes" in e:
            for it in blocks.values():
                if it["hashes"] in e["hashes"]:
                    it["hashes"] = None
        elif e["ev"] == "reset":
            for (name, _), it in blocks.items():
                if name == pool:
                    it["hashes"] = None
    return [
        _written_down(pool, blocks, slots, holders, list(free))
        for pool, free in order.items()
        if any(name == pool for name, _ in blocks)
    ]


_BY_GROUP = frozenset({"lookup", "resume"})


def _arrive(
    begin: Event, pool_of: dict[str, str], slots: dict[tuple[str, int], set[int]],
    blocks: dict[tuple[str, int], dict[str, Any]],
) -> None:  # fmt: skip
    """A transfer has ended: the content and its version came along."""
    far = str(begin.get("to") or begin.get("from"))
    near = pool_of[begin["group"]]
    for block, peer in zip(begin["blocks"], begin["peer"], strict=True):
        source, target = (near, block), (far, peer)
        if begin["ev"] == "load_begin":
            source, target = target, source
        slots[target] = set(slots[source])
        blocks[target]["versions"] = blocks[source]["versions"]


def _written_down(
    pool: str, blocks: dict[tuple[str, int], dict[str, Any]],
    slots: dict[tuple[str, int], set[int]], holders: dict[tuple[str, int], Counter[str]],
    free: list[int],
) -> Event:  # fmt: skip
    keys = [key for key in blocks if key[0] == pool]
    owners = [next((w for w, n in holders[k].items() if n > 0), None) for k in keys]
    return make(
        "state",
        pool=pool,
        blocks=[block for _, block in keys],
        refs=[blocks[k]["refs"] for k in keys],
        gens=[blocks[k]["gens"] for k in keys],
        hashes=[blocks[k]["hashes"] for k in keys],
        versions=[blocks[k]["versions"] for k in keys],
        written=[len(slots[k]) for k in keys],
        owners=owners,
        groups=[blocks[k]["groups"] for k in keys],
        free_order=free,
    )


def lose_events(rng: Random, events: Sequence[Event], head: int) -> list[Event]:
    """Lose a stretch of one lane's events; the recorder says how many."""
    first = rng.randrange(head, max(head + 1, len(events) - 1))
    lane = events[first].get("actor")
    kept = list(events[:first])
    lost = 0
    limit = rng.randint(1, 12)
    for n, event in enumerate(events[first:], first):
        if event.get("actor") == lane and lost < limit:
            lost += 1
            continue
        if lost >= limit:
            kept += events[n:]
            break
        kept.append(event)
    kept.insert(first, make("dropped", count=lost, actor=lane))
    return kept
