"""Block-id spaces shared or not: the same tables in pools of their own, or all in one pool."""

from __future__ import annotations

from functools import partial
from random import Random

from .case import Case, Event
from .fields import Places, groups_of, pools_of

_BY_POOL = {"alloc", "touch", "free", "zero", "pin", "unpin", "copy", "remap", "rebase", "refuse",
            "state", "lease", "dropped", "limits"}  # fmt: skip


def split_pool(case: Case, rng: Random) -> Case:
    """Give each table of a shared device pool a pool of its own, ids as they were."""
    groups = groups_of(case.bad)
    for name, pool in pools_of(case.bad).items():
        tables: dict[str, list[str]] = {}
        for group, g in groups.items():
            if g["pool"] == name:
                tables.setdefault(g.get("table", group), []).append(group)
        if len(tables) > 1 and pool["medium"] == "gpu" and _apart(case, name, tables):
            apart = list(tables.values())
            return case.both(partial(_split, pool=name, tables=apart))
    return case


def _apart(case: Case, pool: str, tables: dict[str, list[str]]) -> bool:
    """Whether no block is in two tables, and no event names blocks by the pool alone."""
    table_of = {g: t for t, groups in tables.items() for g in groups}
    owner: dict[int, str] = {}
    places = Places(*case.arms)
    for arm in case.arms:
        for e in arm:
            far = {e.get("from"), e.get("to")} - {None}
            if pool in far or (e.get("pool") == pool and e["ev"] in _BY_POOL):
                return False
            lists = e["blocks"] if isinstance(e.get("blocks"), dict) else None
            named = lists or ({e["group"]: _ids(e)} if "group" in e else {})
            for group, ids in named.items():
                if places.pool_of.get(group) != pool or e["ev"] == "pool":
                    continue
                for block in ids:
                    if owner.setdefault(block, table_of[group]) != table_of[group]:
                        return False
    return True


def _ids(e: Event) -> list[int]:
    return [
        b for key in ("blocks", "src", "dst") for b in e.get(key, ()) if isinstance(e[key], list)
    ]


def _split(arm: list[Event], pool: str, tables: list[list[str]]) -> list[Event]:
    names = [pool, *(f"{pool}-{n}" for n in range(1, len(tables)))]
    where = {g: name for name, groups in zip(names, tables, strict=True) for g in groups}
    out: list[Event] = []
    for e in arm:
        if e["ev"] in ("pool", "reset") and e.get("pool") == pool:
            out += [{**e, "pool": name} for name in names]
        elif e["ev"] == "group" and e["group"] in where:
            out.append({**e, "pool": where[e["group"]]})
        else:
            out.append(e)
    return out


def merge_pools(case: Case, rng: Random) -> Case:
    """Put the tables of two device pools of one engine into one, the second one's ids behind."""
    pools = pools_of(case.bad)
    far = {e.get("from") or e.get("to") for arm in case.arms for e in arm}
    mine = [
        name for name, p in pools.items()
        if p["medium"] == "gpu" and name not in far and "engine" not in p
    ]  # fmt: skip
    laid_out = any("region_bytes" in g.get("layout", {}) for g in groups_of(case.bad).values())
    if len(mine) < 2 or laid_out or case.id[0] == "C" or case.has("remap", "reset"):
        return case
    first, second = mine[:2]
    places = Places(*case.arms)
    offset = pools[first]["blocks"]
    focus = case.focus
    home = places.pool_of.get(focus.get("group") or "", "")
    used = places.used(*case.arms)

    def merged(arm: list[Event]) -> list[Event]:
        out = []
        for e in arm:
            e = places.relocate(e, lambda pool, b: b + offset if pool == second else b)
            if e["ev"] == "pool" and e["pool"] == first:
                reserved = [*e.get("reserved", ())]
                reserved += [b + offset for b in pools[second].get("reserved", ())]
                e = {**e, "blocks": offset + pools[second]["blocks"], "reserved": reserved}
            elif e["ev"] == "pool" and e["pool"] == second:
                continue
            elif e.get("pool") == second:
                e = {**e, "pool": first}
            out.append(e)
        return out

    blocks = set()
    for block in focus.get("blocks") or []:
        pool = (
            home if block in used.get(home, ()) else next((p for p in used if block in used[p]), "")
        )
        blocks.add(block + offset if pool == second else block)
    return case.both(merged).focused(blocks=sorted(blocks))
