"""One arm of a confirmation: a program in an order, run on real bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay.compiling import Believed, Compiler
from hkvtool.replay.lanes import Lanes
from hkvtool.replay.memory import BUDGET, Memory, OverBudget
from hkvtool.replay.ops import Account, Wrong
from hkvtool.replay.program import Program, Step
from hkvtool.replay.sequences import Sequences
from hkvtool.replay.slicing import Slice
from hkvtool.state.fold import Fold

RUNS = 20
"""Runs of an arm: it must come out the same every time."""


@dataclass
class Setting:
    """What every arm of a trace has in common."""

    events: Sequence[Event]
    sequences: Sequences
    device: str = "cpu"
    budget: int = BUDGET
    runs: int = RUNS
    programs: dict[tuple[object, ...], Program] = field(default_factory=dict)
    """Programs of the finding under way: plans that differ in their order only share one."""


@dataclass
class Plan:
    """How an arm differs from the recording: its events, its layouts, its order, in words."""

    words: str
    events: Sequence[Event] | None = None
    believed: Believed | None = None
    recapture: bool = False
    late: int | None = None
    along: tuple[tuple[int, bool], ...] = ()
    """Events, and moves of transfers, that come one after the other."""
    fresh: frozenset[tuple[str, int]] = frozenset()
    """Blocks that the recording never names."""
    flip: tuple[int, int] | None = None


@dataclass
class Arm:
    """What the runs of an arm found. `program` names groups and requests of stamps."""

    plan: Plan
    program: Program
    account: Account
    runs: int = 0
    corrupt: int = 0
    accounts: list[Account] = field(default_factory=list)


def survey(events: Sequence[Event]) -> Sequences:
    """Learn whose tokens each request's are."""
    fold, sequences = Fold(), Sequences()
    for event in events:
        event = event.meant
        if event.problem is None and fold.apply(event) is None:
            sequences.learn(event, fold)
    return sequences


def compiled(setting: Setting, plan: Plan, part: Slice | None, *, thin: bool = False) -> Program:
    """The program of a plan."""
    key = (id(plan.events), repr(plan.believed), plan.recapture, plan.late, thin, part)
    found = setting.programs.get(key)
    if found is None:
        compiler = Compiler(
            setting.sequences, keep=None if part is None else part.blocks | plan.fresh, thin=thin,
            believed=plan.believed, recapture=plan.recapture, late=plan.late,
        )  # fmt: skip
        found = compiler.compile(setting.events if plan.events is None else plan.events)
        if part is not None:
            filled = _filled(setting.events, part.since)
            found.steps = [
                s for s in found.steps
                if not s.pos or part.since <= s.pos <= part.until or s.pos in filled
            ]  # fmt: skip
        setting.programs[key] = found
    return found


def _filled(events: Sequence[Event], since: int) -> set[int]:
    """Where each metadata buffer was written last before a slice: its content is read in there."""
    last = {
        event.get("name"): event.pos
        for event in events
        if event.pos < since and event.ev == "buffer" and event.get("op") == "write"
        and event.problem is None
    }  # fmt: skip
    return set(last.values())


def run(
    setting: Setting, plan: Plan, part: Slice | None,
    counts: Callable[[Program, Account], bool], runs: int,
) -> Arm | None:  # fmt: skip
    """Run a plan so many times; None where edges forbid its order. `counts` says whether what a
    run found is the corruption looked for."""
    program = compiled(setting, plan, part)
    try:
        memory = Memory(program.touched, setting.device, setting.budget)
    except OverBudget:
        program = compiled(setting, plan, part, thin=True)
        memory = Memory(program.touched, setting.device, setting.budget)
    with memory:
        steps: list[Step] | None = program.in_order()
        if plan.flip is not None:
            steps = program.second_first(*plan.flip)
        elif plan.along:
            steps = program.along(plan.along)
        if steps is None:
            return None
        lanes = Lanes(program.lanes, memory)
        try:
            arm = Arm(plan, program, Account())
            for _ in range(runs):
                arm.account = lanes.run(steps, None if part is None else part.own | plan.fresh)
                arm.accounts.append(arm.account)
                arm.runs += 1
                arm.corrupt += counts(program, arm.account)
        finally:
            lanes.close()
    return arm


def told(program: Program, wrong: Wrong) -> dict[str, Any]:
    """A wrong row in the words of the JSON contract."""
    about = wrong.about
    return {
        "event": about.pos, "request": about.req, "step": about.step, "group": about.group,
        "pool": about.pool, "block": wrong.block, "row": wrong.row, "token": wrong.token,
        "what": about.what, "expected": _named(program, wrong.expected),
        "found": _named(program, wrong.found),
    }  # fmt: skip


def _named(program: Program, stamp: dict[str, Any]) -> dict[str, Any]:
    """A stamp with the names behind its numbers."""
    if "sequence" not in stamp:
        return stamp
    out = dict(stamp)
    number = out["sequence"]
    out["request"] = program.sequences.get(number)
    out["group"] = program.groups.get(out["group"], None if out["group"] == 0 else out["group"])
    out["sequence"] = f"{number & (1 << 64) - 1:016x}"
    return out
