"""Where an event keeps names, block ids and token counts, so that a transform can change them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .case import Event

Namer = Callable[[str, Any], Any]
"""(kind of name, name) to the new name."""

Placer = Callable[[str, int], int]
"""(pool, block id) to the new id."""

_NAMES = {
    "req": "req", "pool": "pool", "handle": "handle", "event": "event", "graph": "graph",
    "actor": "actor", "group": "group", "src_group": "group", "dst_group": "group",
    "serves": "group", "kernel": "kernel", "external": "external", "tenant": "tenant",
}  # fmt: skip
_BY_GROUP = ("hit", "blocks", "route", "hashes")
TRANSFERS = ("store_begin", "load_begin")


def rename(e: Event, namer: Namer) -> Event:
    """Every name of the event through `namer`."""
    ev = e["ev"]
    out = dict(e)
    for key, kind in _NAMES.items():
        if key in e:
            out[key] = namer(kind, e[key])
    if ev == "buffer":
        out["name"] = namer("buffer", e["name"])
    if "engine" in e and ev != "trace":
        out["engine"] = namer("engine", e["engine"])
    for key, kind in (("owner", "owner"), ("table", "table")):
        if key in e:
            out[key] = namer(kind, e[key])
    for key, kind in (("reqs", "req"), ("groups", "group"), ("owners", "owner")):
        if key in e:
            out[key] = [None if x is None else namer(kind, x) for x in e[key]]
    if isinstance(e.get("hashes"), list):
        out["hashes"] = [None if x is None else namer("hash", x) for x in e["hashes"]]
    for key in _BY_GROUP:
        if isinstance(e.get(key), dict):
            out[key] = {namer("group", g): x for g, x in e[key].items()}
    if isinstance(out.get("hashes"), dict):
        out["hashes"] = {g: [namer("hash", h) for h in x] for g, x in out["hashes"].items()}
    if "from" in e:
        out["from"] = namer("group" if ev == "seal" else "pool", e["from"])
    if ev == "store_begin" and "to" in e:
        out["to"] = namer("pool", e["to"])
    return out


def names_of(events: Iterable[Event], kind: str) -> list[Any]:
    """The names of one kind, in order of appearance."""
    seen: dict[Any, None] = {}

    def note(k: str, name: Any) -> Any:
        if k == kind:
            seen[name] = None
        return name

    for e in events:
        rename(e, note)
    return list(seen)


class Places:
    """Which pool a list of block ids belongs to."""

    def __init__(self, *arms: Iterable[Event]) -> None:
        self.pool_of: dict[str, str] = {}
        self.near: dict[Any, str] = {}
        for arm in arms:
            for e in arm:
                if e["ev"] == "group":
                    self.pool_of[e["group"]] = e["pool"]
                elif e["ev"] in TRANSFERS:
                    self.near[e["handle"]] = self.pool_of[e["group"]]

    def pool(self, e: Event, side: str = "") -> str:
        """The pool of `blocks`; of `src` or `dst` with `side`."""
        group = e.get(f"{side}_group") or (e.get("group") if side else None)
        if group:
            return self.pool_of[group]
        return e.get("pool") or self.pool_of.get(e.get("group", ""), "")

    def relocate(self, e: Event, place: Placer) -> Event:
        """Every block id of the event through `place`."""
        if e["ev"] in ("pool", "dropped"):
            return e
        out = dict(e)

        def move(key: str, pool: str) -> None:
            if isinstance(e.get(key), list):
                out[key] = [place(pool, b) for b in e[key]]

        here = self.pool(e)
        for key in ("blocks", "front", "free_order", "index"):
            move(key, here)
        for side in ("src", "dst"):
            move(side, self.pool(e, side))
        if e["ev"] in TRANSFERS:
            move("peer", e.get("to") or e.get("from") or "")
        if "failed" in e:
            move("failed", self.near[e["handle"]])
        if isinstance(e.get("blocks"), dict):
            out["blocks"] = {
                g: [place(self.pool_of[g], b) for b in ids] for g, ids in e["blocks"].items()
            }
        if e["ev"] == "remap":
            out["map"] = {str(place(here, int(a))): place(here, b) for a, b in e["map"].items()}
        return out

    def used(self, *arms: Iterable[Event]) -> dict[str, set[int]]:
        """The block ids that the arms name, by pool."""
        seen: dict[str, set[int]] = {}

        def note(pool: str, block: int) -> int:
            seen.setdefault(pool, set()).add(block)
            return block

        for arm in arms:
            for e in arm:
                self.relocate(e, note)
        return seen


def pools_of(*arms: Iterable[Event]) -> dict[str, Event]:
    return {e["pool"]: e for arm in arms for e in arm if e["ev"] == "pool"}


def groups_of(arm: Iterable[Event]) -> dict[str, Event]:
    return {e["group"]: e for e in arm if e["ev"] == "group"}
