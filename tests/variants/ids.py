"""Other block ids: each pool's ids through a random injection, into a larger pool where it may."""

from __future__ import annotations

from random import Random

from .case import Case, Event
from .fields import Places, groups_of, pools_of


def permute_ids(case: Case, rng: Random) -> Case:
    """Move every block to another id, the same one in both arms."""
    places = Places(*case.arms)
    used = places.used(*case.arms)
    sizes: dict[str, int] = {}
    maps: dict[str, dict[int, int]] = {}
    regions = Regions(case)
    for name, pool in pools_of(*case.arms).items():
        sizes[name] = _size(case, pool, regions.bounded(name), rng)
        fixed = set(pool.get("reserved", ()))
        maps[name] = {b: b for b in fixed}
        ids = sorted(used.get(name, set()) - fixed)
        by_class: dict[tuple[bool, ...], list[int]] = {}
        for block in range(sizes[name]):
            if block not in fixed:
                by_class.setdefault(regions.side(name, block), []).append(block)
        for inside, free in by_class.items():
            mine = [b for b in ids if regions.side(name, b) == inside]
            maps[name].update(zip(mine, rng.sample(free, len(mine)), strict=True))

    def place(pool: str, block: int) -> int:
        return maps.get(pool, {}).get(block, block)

    def change(e: Event) -> Event:
        if e["ev"] == "pool":
            return {**e, "blocks": sizes[e["pool"]]}
        return places.relocate(e, place)

    focus = case.focus
    home = places.pool_of.get(focus.get("group") or "", "")
    blocks = []
    for block in focus.get("blocks") or []:
        # A focus may list blocks of a neighbour group: then the pool that uses the id is meant.
        near = block in used.get(home, ())
        where = home if near else next((p for p in used if block in used[p]), home)
        blocks.append(place(where, block))
    return case.each(change).focused(blocks=sorted(set(blocks)))


def _size(case: Case, pool: Event, bounded: bool, rng: Random) -> int:
    """A pool may grow where no event counts its blocks and no region ends with them."""
    counted = any(
        "needs" in e or "free" in e for arm in case.arms for e in arm if e["ev"] != "free"
    )
    size: int = pool["blocks"]
    if counted or bounded or rng.random() < 0.5:
        return size
    return min(size * rng.randint(2, 5) + rng.randrange(100), max(size, 100_000))


class Regions:
    """Which side of the end of its registered region a block's payload lies on.

    A block keeps its side when it moves: whether a region is long enough is never changed by
    which ids are in use.
    """

    def __init__(self, case: Case) -> None:
        self._ends: dict[str, list[tuple[int, int]]] = {}
        for arm in case.arms:
            for group in groups_of(arm).values():
                layout = group.get("layout", {})
                if "region_bytes" in layout:
                    stride = layout.get("stride_bytes") or layout["page_bytes"]
                    last = layout["region_bytes"] - layout["page_bytes"] - layout.get("offset", 0)
                    self._ends.setdefault(group["pool"], []).append((stride, last))

    def bounded(self, pool: str) -> bool:
        return pool in self._ends

    def side(self, pool: str, block: int) -> tuple[bool, ...]:
        """Whether the block is inside, for each region of the pool in either arm."""
        return tuple(block * stride <= last for stride, last in self._ends.get(pool, ()))
