"""Which blocks an event names, each as (pool, block): the thread of a block's history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hkvtool.model.event import Event

BEGINS = frozenset({"store_begin", "load_begin"})
ENDS = frozenset({"store_end", "load_end"})


class Place(NamedTuple):
    """One block that an event names. `pool` is None where nothing tells it.

    `role` is `block`, or `src` and `dst` of a copy, `peer` for the far side of a transfer.
    """

    pool: str | None
    group: str | None
    block: int
    role: str


class Places:
    """Finds the blocks of events, which must come in order: groups are declared before use, and
    the end of a transfer names no block but is part of the history of those its begin named."""

    def __init__(self) -> None:
        self._pool_of: dict[str, str] = {}
        self._begun: dict[str, list[Place]] = {}

    def of(self, event: Event) -> list[Place]:
        """The blocks that one event names, in its own order."""
        if event.problem is not None:
            return []
        if event.ev == "group":
            self._pool_of[str(event["group"])] = str(event["pool"])
            return []
        if event.ev in ("pool", "trace"):
            return []
        return list(self._places(event))

    def _places(self, event: Event) -> Iterator[Place]:
        data = event.data
        group = _text(data.get("group"))
        pool = _text(data.get("pool")) or self._pool(group)
        if event.ev in ENDS:
            yield from self._begun.get(str(data["handle"]), ())
        elif event.ev in BEGINS:
            far = _text(data.get("to" if event.ev == "store_begin" else "from"))
            places = list(_each(pool, group, data["blocks"], "block"))
            places += _each(far, group, data.get("peer") or (), "peer")
            self._begun[str(data["handle"])] = places
            yield from places
        elif event.ev == "copy":
            src, dst = _text(data.get("src_group")), _text(data.get("dst_group"))
            yield from _each(self._pool(src) if src else pool, src or group, data["src"], "src")
            yield from _each(self._pool(dst) if dst else pool, dst or group, data["dst"], "dst")
        elif event.ev in ("lookup", "resume"):
            for name, blocks in (data.get("blocks") or {}).items():
                yield from _each(self._pool(name), name, blocks, "block")
        elif event.ev == "remap":
            yield from _each(pool, group, map(int, data["map"]), "block")
        elif event.ev == "lease" and "blocks" not in data:
            yield from self._begun.get(str(data["handle"]), ())
        else:
            yield from _each(pool, group, data.get("blocks") or (), "block")

    def _pool(self, group: str | None) -> str | None:
        return None if group is None else self._pool_of.get(group)


def _each(pool: str | None, group: str | None, blocks: Iterable[int], role: str) -> Iterator[Place]:
    for block in blocks:
        yield Place(pool, group, block, role)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
