"""Longer chains: the first block of every chain becomes several, all positions move along."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import lcm
from random import Random
from typing import Any

from .case import Case, Event
from .fields import TRANSFERS, Places, groups_of, pools_of
from .ids import Regions

EXCLUDED = {
    "A22": "a partial entry would become a full one",
    "A17": "the ring writes other positions into the same blocks",
    "A14": "one block holds the window of one request and the beginning of another",
    "C": "blocks are counted",
    "F": "which hash is announced is the story",
}
_HISTORY = ("compressed", "swa", "indexer")

Key = tuple[str, int, int]
"""(pool, block, generation)"""


def grow_chains(case: Case, rng: Random) -> Case:
    """Put `k` blocks more before what every chain holds; nothing else about them changes."""
    if case.id in EXCLUDED or case.id[0] in EXCLUDED or case.has("remap", "select", "state"):
        return case
    if any("recovering_bytes" in e for e in case.bad):
        return case
    groups = groups_of(case.bad)
    unit = lcm(*(g["block_tokens"] for g in groups.values()))
    delta = unit * rng.randint(1, 2 if unit > 256 else 4)
    grown = [_Chains(case, arm, delta) for arm in case.arms]
    ids: dict[Key, list[int]] = {}
    for chains in grown:
        if not chains.settle():
            return case
    for chains in grown:
        for key, n in chains.more.items():
            if key not in ids:
                fresh = _fresh(case, ids, key, n)
                if fresh is None:
                    return case
                ids[key] = fresh
    bad, good = (list(chains.rewritten(ids)) for chains in grown)
    blocks = set(case.focus.get("blocks") or [])
    return Case(case.id, case.info, bad, good).focused(blocks=sorted(blocks))


def _fresh(case: Case, taken: dict[Key, list[int]], key: Key, n: int) -> list[int] | None:
    """Ids that nothing names, on the same side of a region's end as the block they precede."""
    pool, block, _ = key
    declared = pools_of(*case.arms)[pool]
    used = Places(*case.arms).used(*case.arms).get(pool, set()) | {0}
    used |= set(declared.get("reserved", ()))
    used |= {b for (name, _, _), ids in taken.items() if name == pool for b in ids}
    regions = Regions(case)
    free = (b for b in range(declared["blocks"]) if b not in used)
    same = (b for b in free if regions.side(pool, b) == regions.side(pool, block))
    found = list(islice(same, n))
    return found if len(found) == n else None


class _Chains:
    """Which blocks of one arm begin a chain, generation by generation."""

    def __init__(self, case: Case, arm: list[Event], delta: int) -> None:
        self.arm = arm
        self.delta = delta
        self.places = Places(*case.arms)
        self.groups = groups_of(arm)
        self.more: dict[Key, int] = {}
        self._resumed = {e["req"]: e["at"] for e in arm if e["ev"] == "resume"}

    def _lists(self) -> Iterator[tuple[Event, dict[Key, None]]]:
        """Every event with the generation keys of its blocks at its line."""
        gens: dict[tuple[str, int], int] = {}
        for e in self.arm:
            if e["ev"] == "alloc":
                pool = self.places.pool(e)
                for b in e["blocks"]:
                    gens[pool, b] = gens.get((pool, b), 0) + 1
            seen: dict[Key, None] = {}

            def note(pool: str, b: int, seen: dict[Key, None] = seen) -> int:
                seen[pool, b, gens.get((pool, b), 0)] = None
                return b

            self.places.relocate(e, note)
            yield e, seen

    def settle(self) -> bool:
        """Find the first blocks; false where a block is both a first and a later one."""
        later: set[Key] = set()
        for _ in range(3):  # once for writes, again for what transfers carry on
            for e, keys in self._lists():
                gen = {(pool, b): g for pool, b, g in keys}
                group = self.groups.get(e.get("group", ""))
                if e["ev"] == "copy" and self.more.keys() & keys.keys():
                    return False
                if group is None or group["form"] not in _HISTORY or e.get("pad"):
                    continue
                here = self.places.pool(e)
                n = self.delta // group["block_tokens"]
                if e["ev"] in ("write", "seal", "index"):
                    first, *rest = [(here, b, gen[here, b]) for b in e["blocks"]]
                    later.update(rest)
                    if e["tokens"][0] == 0:
                        self.more[first] = n
                    elif e["tokens"][0] % group["block_tokens"] == 0:
                        later.add(first)
                elif e["ev"] in TRANSFERS:
                    far = str(e.get("to") or e.get("from"))
                    pairs = zip(e["blocks"], e.get("peer", ()), strict=False)
                    for i, (b, p) in enumerate(pairs):
                        near, there = (here, b, gen[here, b]), (far, p, gen[far, p])
                        if i:
                            later.update((near, there))
                        elif {near, there} & self.more.keys() or self._from_zero(e, group):
                            self.more[near] = self.more[there] = n
        return not later & set(self.more)

    def _from_zero(self, e: Event, group: Event) -> bool:
        """Whether a load brings a request's beginning."""
        if e["ev"] != "load_begin":
            return False
        if "tokens" in e:
            return bool(e["tokens"][0] == 0)
        size = len(e["blocks"]) * group["block_tokens"]
        at = self._resumed.get(e.get("req"))
        return at is None or bool(size >= at)

    def rewritten(self, ids: dict[Key, list[int]]) -> Iterator[Event]:
        hashes = self._hashes()
        for e, keys in self._lists():
            if e["ev"] in ("pool", "group", "kernel", "limits", "trace") or e.get("pad"):
                yield e
                continue
            tokens = e.get("tokens")
            if isinstance(tokens, list) and tokens[0]:
                yield self._shifted(e)  # it starts inside the chain: no block comes before
                continue
            gen = {(pool, b): g for pool, b, g in keys}
            out = self._shifted(e)

            def grown(pool: str, blocks: list[int], gen: Any = gen) -> list[int]:
                out: list[int] = []
                for b in blocks:
                    key = (pool, b, gen[pool, b])
                    out += [*(ids[key] if key in self.more else ()), b]
                return out

            here = self.places.pool(e)
            if isinstance(e.get("blocks"), dict):
                out["blocks"] = {
                    g: grown(self.places.pool_of[g], b) for g, b in e["blocks"].items()
                }
            elif "blocks" in e:
                out["blocks"] = grown(here, e["blocks"])
                if "bytes" in e:
                    out["bytes"] = e["bytes"] // len(e["blocks"]) * len(out["blocks"])
            for side in ("src", "dst"):
                if side in e:
                    out[side] = grown(self.places.pool(e, side), e[side])
            if "peer" in e:
                out["peer"] = grown(str(e.get("to") or e.get("from")), e["peer"])
            if "failed" in e:
                out["failed"] = grown(self.places.near[e["handle"]], e["failed"])
            if isinstance(e.get("hashes"), list):
                out["hashes"] = [x for h in e["hashes"] for x in _several(h, hashes.get(h, 0))]
            yield out

    def _hashes(self) -> dict[str, int]:
        """How many hashes more each hash of a first block brings."""
        found: dict[str, int] = {}
        for e, keys in self._lists():
            if e["ev"] == "publish":
                gen = {(pool, b): g for pool, b, g in keys}
                here = self.places.pool(e)
                for b, h in zip(e["blocks"], e["hashes"], strict=True):
                    if n := self.more.get((here, b, gen[here, b])):
                        found[h] = n
        return found

    def _shifted(self, e: Event) -> Event:
        """Positions behind the beginning move by `delta`."""
        out = dict(e)

        def move(t: int) -> int:
            return t + self.delta if t else 0

        for key in ("tokens", "peer_tokens"):
            if isinstance(e.get(key), list):
                out[key] = [move(t) for t in e[key]]
        if e["ev"] == "lookup":
            out["tokens"] = move(e["tokens"])
            out["hit"] = {g: move(n) for g, n in e["hit"].items()}
        for key in ("at", "to", "window_start"):
            if isinstance(e.get(key), int):
                out[key] = move(e[key])
        return out


def _several(name: str, n: int) -> list[str]:
    return [*(f"{name}.{i}" for i in range(n)), name]
