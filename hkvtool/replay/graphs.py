"""Captured graphs and the memory they were captured on.

Which memory that is says the table of pointers that the trace recorded. On a GPU what a launch
reads is captured and replayed for real (`hkvtool.replay.capturing`); on a CPU, where there is no
graph to capture, the table stands in. A graph that is launched with what is no longer so reads and
writes the memory it was captured on, or stops where a length that was baked in says so.
"""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event
from hkvtool.state.declarations import Declarations

LENGTHS = frozenset(
    {"max_seqlen_k", "max_seqlen", "max_seq_len", "max_seqlen_kv", "seqlen_k", "seq_len", "kv_len"}
)
"""Launch constants that bound how many tokens an attention kernel reads, as kernels name them."""


class Graphs:
    """Which memory each access sees. With `recapture` no graph is ever stale."""

    def __init__(self, recapture: bool = False, late: int | None = None) -> None:
        self.recapture = recapture
        self.late = late
        """A step that works on the memory of the time when it was dispatched."""
        self._sent: dict[str, int] = {}
        self.stale = 0
        self.lives: dict[str, int] = {}
        self._moved: set[str] = set()
        self._captured: dict[str, tuple[dict[str, Any], dict[str, int]]] = {}
        self._running: dict[tuple[str, int | None], tuple[dict[str, int], int | None]] = {}
        self._launched: dict[tuple[str, int | None], str] = {}

    def take(self, event: Event) -> None:
        """A capture or a launch."""
        name, pointers = str(event["graph"]), dict(event.get("pointers") or {})
        if event.ev == "capture":
            self._captured[name] = (pointers, dict(self.lives))
            return
        key = _lane(event)
        self._running.pop(key, None)
        self._launched.pop(key, None)
        baked = self._captured.get(name)
        if baked is None or event.get("bypass"):
            return
        self._launched[key] = name
        if self.recapture:
            return
        stale = {k for k, v in pointers.items() if k in baked[0] and baked[0][k] != v}
        lives, limit = dict(self.lives), None
        if stale & self._moved:
            lives = {pool: baked[1].get(pool, 0) for pool in self.lives}
        for constant in stale & LENGTHS:
            value = baked[0][constant]
            if isinstance(value, int):
                limit = value
        self.stale += limit is not None or lives != self.lives
        self._running[key] = (lives, limit)

    def dispatched(self, step: int) -> None:
        """A step is handed over with the addresses of now."""
        if step == self.late:
            self._sent = dict(self.lives)

    def pools(self, event: Event, declared: Declarations) -> list[str]:
        """The pools that a `rebase` is of."""
        if "pool" in event:
            return [str(event["pool"])]
        group = declared.groups.get(str(event.get("group")))
        if group is not None:
            return [group.pool.name]
        return [pool.name for pool in declared.pools.values() if not pool.tier]

    def rebase(self, event: Event, declared: Declarations) -> None:
        """Memory goes away or comes back elsewhere: what follows sees the pool's next life."""
        self._moved |= set(event.get("pointers") or {})
        if event.get("reason") != "sleep":
            for pool in self.pools(event, declared):
                self.lives[pool] = self.lives.get(pool, 0) + 1

    def suffix(self, pool: str) -> str:
        return _suffix(self.lives.get(pool, 0))

    def space(self, pool: str, event: Event | None) -> str:
        """Which life of a pool's memory an access sees, as the suffix of its storages."""
        if event is not None and event.step is not None and event.step == self.late:
            return _suffix(self._sent.get(pool, 0))
        running = self._of(event)
        if running is not None and pool in running[0]:
            return _suffix(running[0][pool])
        return self.suffix(pool)

    def launched(self, event: Event) -> str | None:
        """The graph that an access is part of."""
        return self._launched.get(_lane(event))

    def limit(self, event: Event) -> int | None:
        """Where a stale graph stops reading."""
        running = self._of(event)
        return None if running is None else running[1]

    def _of(self, event: Event | None) -> tuple[dict[str, int], int | None] | None:
        if event is None or event.step is None:
            return None
        return self._running.get(_lane(event))


def _lane(event: Event) -> tuple[str, int | None]:
    """The lane and step of a launch, and of what is part of it."""
    return event.actor if "actor" in event else "", event.step


def _suffix(life: int) -> str:
    return f"#{life}" if life else ""
