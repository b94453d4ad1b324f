"""Other names: requests, groups, pools, handles, edges, graphs, lanes, buffers, hashes."""

from __future__ import annotations

from random import Random
from typing import Any

from .case import Case, Event
from .fields import names_of, rename

_WORDS = [
    "ash",
    "birch",
    "cedar",
    "elm",
    "fir",
    "hazel",
    "larch",
    "maple",
    "oak",
    "pine",
    "rowan",
    "spruce",
    "willow",
    "yew",
]
_DEFAULT_LANES = {"sched", "device"}
"""Lanes that an event without `actor` runs on: renamed, they would be other lanes."""


def rename_all(case: Case, rng: Random) -> Case:
    """Give everything a new name, the same in both arms; some become integers."""
    both: list[Event] = [*case.bad, *case.good]
    maps: dict[str, dict[Any, Any]] = {}
    for kind in ("group", "pool", "engine", "actor", "buffer", "graph", "kernel"):
        maps[kind] = _fresh(names_of(both, kind), rng, integers=False)
    for kind in ("req", "handle", "event", "hash", "external", "tenant"):
        maps[kind] = _fresh(names_of(both, kind), rng, integers=rng.random() < 0.4)
    maps["actor"].update({lane: lane for lane in _DEFAULT_LANES})
    # A table without a name of its own has its group's; an owner may be a request.
    maps["table"] = {**_fresh(names_of(both, "table"), rng, integers=False), **maps["group"]}
    maps["owner"] = {**_fresh(names_of(both, "owner"), rng, integers=False), **maps["req"]}

    def namer(kind: str, name: Any) -> Any:
        return maps[kind].get(name, name)

    renamed = case.each(lambda e: rename(e, namer))
    focus = case.focus
    req = focus.get("req")
    return renamed.focused(
        req=None if req is None else str(namer("req", req)),
        group=namer("group", focus.get("group")),
    )


def _fresh(names: list[Any], rng: Random, integers: bool) -> dict[Any, Any]:
    """New names that keep none of the order or spelling of the old ones."""
    if integers:
        return dict(zip(names, rng.sample(range(1, 1 << 20), len(names)), strict=True))
    style = rng.randrange(3)
    new: dict[str, None] = {}
    while len(new) < len(names):
        word = rng.choice(_WORDS)
        if style == 0:
            new[f"{word}-{rng.randrange(10_000)}"] = None
        elif style == 1:
            new[f"{rng.getrandbits(48):012x}"] = None
        else:
            new[f"{word}/{rng.choice(_WORDS)}:{len(new)}é"] = None
    return dict(zip(names, new, strict=True))
