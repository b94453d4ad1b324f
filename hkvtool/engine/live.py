"""A request in the engine: how far it is, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from hkvtool.engine.geometry import Preset, Work
from hkvtool.engine.workload import Request


class Stage(Enum):
    """Where a request stands. A recovering one waits for a load and must not be scheduled."""

    WAITING = "waiting"
    RECOVERING = "recovering"
    RUNNING = "running"
    OVER = "over"


@dataclass(slots=True)
class Live:
    """One request. Positions count tokens: `known` exist, `target` shall, `ahead` are in steps
    that were dispatched, `done` in steps that retired; `firm` of those are beyond rejection."""

    request: Request
    known: int
    target: int
    stage: Stage = Stage.WAITING
    ahead: int = 0
    done: int = 0
    firm: int = 0
    in_flight: int = 0
    epoch: int = 0
    """Counts preemptions: what a step of an earlier epoch computed is void."""
    admitted: int = 0
    hit: int = 0
    refused: bool = False
    aborted: bool = False
    route: dict[str, str] = field(default_factory=dict)

    def restart(self, at: int) -> None:
        """Continue from `at`, with nothing computed behind it."""
        self.ahead = self.done = self.firm = at

    def next_work(self, preset: Preset, budget: int, stride: int) -> Work | None:
        """The next stretch to compute, within a budget of tokens; None where there is none yet.

        A prompt is cut where all blocks end at once, so that each cut is a checkpoint, and the
        last such point before its end is always one.
        """
        start, grain = self.ahead, preset.grain
        if start < self.known:
            end = min(self.known, start + budget)
            cut = end // grain * grain
            if end < self.known or (preset.checkpoints and cut > start):
                end = cut
            return Work(start, end, 0, self.firm_ahead(start)) if end > start else None
        if preset.draft and self.in_flight:
            return None
        end = min(start + stride, self.target)
        draft = min(preset.draft, self.target - end)
        if end <= start or end + draft - start > budget:
            return None
        return Work(start, end, draft, self.firm_ahead(start), decode=True)

    def firm_ahead(self, start: int) -> int:
        """Tokens before `start` whose compression units are sealed by then: with drafts, those
        verified when they were dispatched; without, all."""
        return self.firm if self.done == start else start
