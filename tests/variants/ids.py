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
    for name, pool in pools_of(*case.arms).items():
        sizes[name] = _size(case, name, pool, rng)
        fixed = set(pool.get("reserved", ()))
        maps[name] = {b: b for b in fixed}
        ids = sorted(used.get(name, set()) - fixed)
        by_class: dict[tuple[bool, ...], list[int]] = {}
        for block in range(sizes[name]):
            if block not in fixed:
                by_class.setdefault(_inside(case, name, block), []).append(block)
        for inside, free in by_class.items():
            mine = [b for b in ids if _inside(case, name, b) == inside]
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


def _size(case: Case, name: str, pool: Event, rng: Random) -> int:
    """A pool may grow where no event counts its blocks and no region ends with them."""
    counted = any(
        "needs" in e or "free" in e for arm in case.arms for e in arm if e["ev"] != "free"
    )
    bounded = any(
        g["pool"] == name and "region_bytes" in g.get("layout", {})
        for arm in case.arms
        for g in groups_of(arm).values()
    )
    size: int = pool["blocks"]
    if counted or bounded or rng.random() < 0.5:
        return size
    return size * rng.randint(2, 5) + rng.randrange(100)


def _inside(case: Case, pool: str, block: int) -> tuple[bool, ...]:
    """Whether the block's payload lies in the registered region, arm by arm and group by group."""
    answers = []
    for arm in case.arms:
        for group in groups_of(arm).values():
            layout = group.get("layout", {})
            if group["pool"] == pool and "region_bytes" in layout:
                stride = layout.get("stride_bytes") or layout["page_bytes"]
                end = layout.get("offset", 0) + block * stride + layout["page_bytes"]
                answers.append(end <= layout["region_bytes"])
    return tuple(answers)
