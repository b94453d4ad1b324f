"""What a flight recorder tells again and again, since its beginning is overwritten.

At some steps the `state` of the next few blocks is told, all of a pool in turn: a round. From the
first whole round on, a reader knows what the engine has, though it begins in the middle. One that
knows it already passes such events over, by their `round` (`hkvtool.store.derive_reads`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.recorder.vllm.late import (
    Holders,
    free_order,
    pools_of,
    running_requests,
    state,
)

_EVERY = 16
"""Steps from one such event to the next: what it costs is a small part of what they do."""

_LEAST, _PARTS = 64, 256
"""Blocks told at once: so many, and of a large pool as many as bring a round to an end after so
many events."""

_TURN = 4
"""Rounds begun while a ring is filled once, however much each step writes."""

Turns = Callable[[], float]
"""Says how often what has been written would fill the ring."""


class _Round:
    """How far the telling of one pool has come."""

    def __init__(self) -> None:
        self.number = 0
        self.at = 0
        self.held: Holders | None = None


class Rounds:
    """The rounds of every pool that a scheduler of this process plans with."""

    def __init__(self, hooks: Hooks, turns: Turns) -> None:
        self._hooks = hooks
        self._turns = turns
        self._rounds: dict[str, _Round] = {}
        self._steps = 0
        self._due = 0.0

    def step(self, scheduler: Any) -> None:
        """A step begins: tell what is due."""
        self._steps += 1
        if self._steps < _EVERY and self._turns() < self._due and self._rounds:
            return
        self._steps = 0
        self._hooks.settle()
        manager = scheduler.kv_cache_manager
        parts = 1
        for pool in pools_of(manager):
            known = self._hooks.pool(pool)
            mine = self._rounds.get(known.name)
            if mine is None:
                self._rounds[known.name] = _Round()
                # Whoever reads this reads from the beginning, and needs no round.
                self._hooks.tell.event(
                    {"ev": "state", "pool": known.name, "blocks": [], "round": 0}
                )  # fmt: skip
            else:
                self._tell(known, mine, manager)
            parts = max(parts, -(-len(pool.blocks) // _size(pool)))
        self._due = self._turns() + 1 / (_TURN * parts)

    def _tell(self, known: Any, mine: _Round, manager: Any) -> None:
        pool = known.pool
        if mine.held is None:
            mine.number += 1
            # Each request's table is told once more, at its next step.
            self._hooks.untold.update(running_requests(manager))
            # A walk through every table, so once a round; what has changed since is known by that.
            mine.held = Holders(known, manager)
        size = _size(pool)
        blocks = pool.blocks[mine.at : mine.at + size]
        event = state(known, [b for b in blocks if not b.is_null], mine.held)
        event["round"], event["first"] = mine.number, mine.at == 0
        mine.at += size
        event["last"] = mine.at >= len(pool.blocks)
        if event["last"]:
            mine.at, mine.held = 0, None
            event["free_order"] = free_order(pool)
        self._hooks.tell.event(event)


def _size(pool: Any) -> int:
    """Blocks of a pool that are told at once."""
    return max(_LEAST, -(-len(pool.blocks) // _PARTS))
