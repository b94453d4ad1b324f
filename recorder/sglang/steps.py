"""The steps of one cache: those that are planned, under way, and what their requests were told to
have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hkvtool.recorder.sglang.hooks import Hooks

DEVICE = "device"
"""The lane of everything that runs in the order of the stream that computes."""

RESULT = "hkvtool_steps"
"""Attribute of the engine's result of a batch: whose steps it is of."""

BLOCK_TABLE = "block_table"
"""The buffer whose read marks where the device begins a step."""

APPEND, REPLACE = 0, 1
"""How a request's part of `tables` changes what it has."""

Row = tuple[bool, Sequence[Sequence[int]]]
"""Whether it is all that a request has, and the blocks, group by group."""

Event = dict[str, Any]
Besides = tuple[Sequence[Event], Sequence[Event]]
"""Accesses of a step that do not follow from its tables: before those that do, and behind."""


class Steps:
    """Tells the steps of one cache."""

    def __init__(self, hooks: Hooks, first_table: int) -> None:
        self._hooks = hooks
        self._first = first_table
        self._known: set[str] = set()
        self._planned: list[tuple[int, Besides]] = []
        self._handed: list[int] = []
        self._marked = False

    def knows(self, req: str) -> bool:
        """Whether all that a request has was told, so that what is added is enough."""
        return req in self._known

    def forget(self, req: str) -> None:
        """What a request has may be something else by now."""
        self._known.discard(req)

    def plan(
        self, reqs: list[str], starts: list[int], counts: list[int], rows: Sequence[Row],
        besides: Besides = ((), ()),
    ) -> None:  # fmt: skip
        """A batch is ready. What it does `besides` is told of steps that say where they begin."""
        tables: list[int] = []
        for i, (whole, groups) in enumerate(rows):
            if whole or any(groups):
                tables += (i, REPLACE if whole else APPEND, self._first, len(groups))
                for blocks in groups:
                    tables.append(len(blocks))
                    tables += blocks
        step = self._hooks.next_step()
        goes_on = (reqs, starts) == self._hooks.last and not any(whole for whole, _ in rows)
        self._known.update(reqs)
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        self._hooks.last = reqs, ends
        self._planned.append((step, besides))
        tell = self._hooks.tell.dispatch
        if goes_on and counts == [1] * len(counts):
            tell(step, None, None, None, tables or None, None, None)
        else:
            tell(step, reqs, starts, counts, tables or None, None, None)

    def without_snapshots(self, reqs: set[str]) -> None:
        """What is planned of these requests leaves nothing behind but what they hold."""
        self._planned = [
            (step, (before, [e for e in behind if e["req"] not in reqs]))
            for step, (before, behind) in self._planned
        ]

    def mark(self) -> None:
        """Say that from here on each step tells where it begins."""
        if not self._marked:
            self._marked = True
            self._hooks.tell.event(
                {"ev": "buffer", "name": BLOCK_TABLE, "op": "write", "actor": DEVICE}
            )

    def begin(self) -> None:
        """What is planned begins on the device."""
        planned, self._planned = self._planned, []
        if planned:
            self.mark()
        for step, (before, behind) in planned:
            for event in before:
                self._hooks.tell.event({**event, "step": step})
            self._hooks.tell.event(
                {"ev": "buffer", "name": BLOCK_TABLE, "op": "read", "step": step}
            )
            for event in behind:
                self._hooks.tell.event({**event, "step": step})
            self._handed.append(step)

    def handed_out(self) -> list[int]:
        """Steps that have begun since this was asked last."""
        handed, self._handed = self._handed, []
        return handed

    def retire(self, steps: Sequence[int]) -> None:
        """These are over."""
        for step in steps:
            self._hooks.tell.retire(step)
