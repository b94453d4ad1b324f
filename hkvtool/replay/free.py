"""Lanes without a given order: real threads that wait for what edges say and for nothing else.

The two arms of a confirmation force the order that corrupts; here chance decides, as it does in an
engine. How often a race is lost is counted, and never a proof that it cannot be.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding, Report
from hkvtool.replay.arms import Plan, Setting, compiled, told
from hkvtool.replay.confirming import Concern, race_of
from hkvtool.replay.lanes import MOST
from hkvtool.replay.memory import Memory, OverBudget
from hkvtool.replay.ops import Account
from hkvtool.replay.program import Program, Step
from hkvtool.replay.slicing import Slice, sliced

MOST_STEPS = 20_000
"""Steps that threads are let loose on at once."""


@dataclass
class Free:
    """How often free lanes read wrong bytes; `held` is the same with a race's missing edge."""

    runs: int
    corrupt: int
    first: dict[str, Any] | None
    held: int | None
    lanes: int
    steps: int
    jitter: int

    def as_json(self) -> dict[str, Any]:
        held = None if self.held is None else {"runs": self.runs, "corrupt": self.held}
        return {
            "runs": self.runs, "corrupt": self.corrupt, "first": self.first, "held": held,
            "lanes": self.lanes, "steps": self.steps, "jitter_us": self.jitter,
        }  # fmt: skip


class _Shared(Account):
    """An account that several lanes keep at once."""

    def __init__(self, own: frozenset[tuple[str, int]] | None) -> None:
        super().__init__(own=own)
        self._lock = threading.Lock()

    def judge(self, *args: Any, **kwargs: Any) -> None:
        with self._lock:
            super().judge(*args, **kwargs)


def run_free(
    setting: Setting, report: Report | None = None, finding: Finding | None = None, *,
    jitter: int = 0, seed: int = 0, told_run: Callable[[int], None] | None = None,
) -> Free:  # fmt: skip
    """Run a trace, or what one finding concerns, `setting.runs` times with free lanes.

    Before each step a lane may sleep up to `jitter` microseconds. Raises HkvError where there are
    too many steps.
    """
    part = concerns = pair = None
    if report is not None and finding is not None:
        part = sliced(setting.events, report, finding)
        concerns = Concern(setting.events, report, finding)
        pair = race_of(finding, setting.events)
    program, memory = _mapped(setting, part)
    steps = [step for step in program.steps if step.ops]
    if len(steps) > MOST_STEPS:
        raise HkvError(
            f"{len(steps):,} steps, and lanes run free over {MOST_STEPS:,} at most",
            hint="ask about one finding (--finding)",
        )
    chance = random.Random(seed)
    needs = program.waits(steps)
    corrupt = 0
    held: int | None = None
    first: dict[str, Any] | None = None

    def one(steps: Sequence[Step], needs: Sequence[Sequence[int]]) -> bool:
        account = _Shared(None if part is None else part.own)
        memory.reset()
        _let_loose(steps, needs, memory, account, jitter, chance)
        bad = bool(account.wrong_at) if concerns is None else concerns.hurt(program, account)
        nonlocal first
        if bad and first is None and account.wrong:
            mine = None if concerns is None else concerns.positions(program, account)
            wrong = next(w for w in account.wrong if mine is None or w.about.pos in mine)
            first = told(program, wrong)
        return bad

    with memory:
        for number in range(setting.runs):
            corrupt += one(steps, needs)
            if told_run is not None:
                told_run(number + 1)
        if pair is not None:
            early, late = pair
            order: Sequence[Step] | None = steps
            if one(steps, [[i - 1] if i else [] for i in range(len(steps))]):
                early, late = late, early
                order = program.second_first(*pair)
            if order is not None:
                order = [step for step in order if step.ops]
                edge = _with_edge(order, program.waits(order), early, late)
                held = sum(one(order, edge) for _ in range(setting.runs))
    lanes = len({step.lane for step in steps})
    return Free(setting.runs, corrupt, first, held, lanes, len(steps), jitter)


def _mapped(setting: Setting, part: Slice | None) -> tuple[Program, Memory]:
    plan = Plan("with free lanes")
    program = compiled(setting, plan, part)
    try:
        return program, Memory(program.touched, setting.device, setting.budget)
    except OverBudget:
        program = compiled(setting, plan, part, thin=True)
        return program, Memory(program.touched, setting.device, setting.budget)


def _with_edge(
    steps: Sequence[Step], needs: Sequence[Sequence[int]], first: int, second: int
) -> list[list[int]]:
    """The waits with what event `second` does behind what event `first` does."""
    ahead = [i for i, step in enumerate(steps) if step.pos == first]
    return [
        [*mine, *(i for i in ahead if step.pos == second and i < at)]
        for at, (step, mine) in enumerate(zip(steps, needs, strict=True))
    ]


def _let_loose(
    steps: Sequence[Step], needs: Sequence[Sequence[int]], memory: Memory, account: Account,
    jitter: int, chance: random.Random,
) -> None:  # fmt: skip
    """One run. Lanes beyond the most threads share the last in line order, so that what a step
    waits for is never behind it."""
    names = list(dict.fromkeys(step.lane for step in steps))
    number = {name: min(i, MOST - 1) for i, name in enumerate(names)}
    queues: dict[int, list[int]] = {}
    for index, step in enumerate(steps):
        queues.setdefault(number[step.lane], []).append(index)
    over = [threading.Event() for _ in steps]
    pauses = [chance.random() * jitter / 1e6 if jitter else 0.0 for _ in steps]
    failed: list[BaseException] = []

    def lane(queue: list[int]) -> None:
        for index in queue:
            for other in needs[index]:
                over[other].wait()
            try:
                if pauses[index]:
                    time.sleep(pauses[index])
                if not failed:
                    for op in steps[index].ops:
                        op.run(memory, account)
            except BaseException as e:
                failed.append(e)
            finally:
                over[index].set()

    threads = [threading.Thread(target=lane, args=(queue,)) for queue in queues.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
