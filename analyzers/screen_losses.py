"""What a screen does where events were lost: as the rules do, it lets go of what it remembers."""

from __future__ import annotations

from typing import Any

import numpy as np

from hkvtool.analyzers import screen_arrays as s
from hkvtool.analyzers.check import Check
from hkvtool.analyzers.screen_fold import ScreenedFold
from hkvtool.analyzers.screen_sql import first_dispatches
from hkvtool.model.event import Event
from hkvtool.model.rows import MISSING
from hkvtool.state.batch import Batch
from hkvtool.state.codes import DISPATCH, RETIRE

_FORGOTTEN = (
    ("w_index", 0), ("r_index", 0), ("history", s.NOBODY), ("b_index", 0), ("b_read_index", 0),
    ("trips", 0), ("block_trips", 0),
)  # fmt: skip
"""Whose accesses may race, and what travelled in vain."""


class Losses:
    """Where events of a trace were lost, and what that makes uncertain."""

    def __init__(self, trace: Any, fold: ScreenedFold, check: Check) -> None:
        self.fold, self.check = fold, check
        self.told: list[int] = []
        """Events that end a gap, or are of a step whose dispatch may have been lost."""
        steps, places = first_dispatches(trace) if trace.kinds.get("dropped") else ([], [])
        self.steps = np.array(steps, np.int64)
        self.places = np.array(places, np.int64)

    def strange(self, batch: Batch) -> Any:
        """Rows that name blocks in a step that nobody had dispatched by then."""
        rows = (batch.step != MISSING) & (batch.ev != DISPATCH) & (batch.ev != RETIRE)
        rows &= np.diff(batch.blocks.offsets) > 0
        if not rows.any() or not len(self.steps):
            return np.zeros(batch.n, bool)
        at = np.minimum(np.searchsorted(self.steps, batch.step), len(self.steps) - 1)
        sent = (self.steps[at] == batch.step) & (self.places[at] < batch.pos)
        return rows & ~sent & (batch.pos > self.places.min())

    def unsent(self, step: int, pos: int) -> bool:
        """Whether events were lost, and nobody dispatched a step before a position."""
        at = int(np.searchsorted(self.steps, step))
        known = at < len(self.steps) and int(self.steps[at]) == step
        return bool(self.fold.sc.h[s.BLIND]) and not (known and int(self.places[at]) < pos)

    def regained(self, batch: Batch, row: int, lane: str) -> None:
        """The lane of a row is seen again: what was lost is before it."""
        pos, ctx = int(batch.pos[row]), self.check.ctx
        gap = Event.of(pos, dict(self.fold.regain(lane, pos).data))
        ctx.blind, ctx.event = pos, gap
        self.check.let_go(gap)
        self.told.append(pos)

    def forget(self) -> None:
        """Let go of what may have changed meanwhile."""
        sc = self.fold.sc
        for name, empty in _FORGOTTEN:
            getattr(sc, name)[:] = empty
        sc.h[s.BLIND], sc.h[s.RECOVERING], sc.h[s.FLOWN] = 1, 0, sc.h[s.INSTANCES]

    def met(self, batch: Batch, stops: Any, row: int) -> None:
        """From a row on, say of each whether its step was dispatched as far as was told."""
        strange = self.strange(batch)
        strange[:row] = False
        self.told += batch.pos[strange].tolist()
        stops[strange & (stops == 0)] = s.STRANGE
