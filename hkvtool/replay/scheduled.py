"""A schedule that fails on the state level, run on real caches: whose bytes does the read get?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hkvtool.model.findings import Finding, Report
from hkvtool.replay import arms
from hkvtool.replay.arms import Arm, Plan, Setting
from hkvtool.replay.compiling import Block
from hkvtool.replay.confirming import CANNOT, CONFIRMED, NOT, Concern, in_words
from hkvtool.replay.ops import Account
from hkvtool.replay.program import Program
from hkvtool.replay.slicing import SHORT, Slice, sliced
from hkvtool.replay.window import Window


@dataclass
class Scheduled:
    """What real caches say of one schedule: it as fault arm, the recorded order as control."""

    verdict: str
    reason: str
    fault: Arm | None = None
    control: Arm | None = None
    first: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        def arm(one: Arm | None) -> dict[str, Any] | None:
            return None if one is None else {"runs": one.runs, "corrupt": one.corrupt}

        return {
            "verdict": self.verdict, "reason": self.reason, "fault_arm": arm(self.fault),
            "control_arm": arm(self.control), "first": self.first,
        }  # fmt: skip


def on_caches(
    setting: Setting, window: Window, order: Sequence[int], places: frozenset[Block],
    report: Report | None = None, finding: Finding | None = None,
) -> Scheduled:  # fmt: skip
    """Run the ops of a window in an order, everything else around them, on real bytes.

    Where the recorded order reads wrong bytes itself, it is the fault and the schedule the control.
    """
    part = _part(setting, places, report, finding)
    chain = tuple((window.ops[i].pos, window.ops[i].moves) for i in order)
    given = Plan("in the order of the schedule", along=chain)
    recorded = Plan("in the order of the recording")
    concern = None
    if report is not None and finding is not None:
        concern = Concern(setting.events, report, finding)

    def mine(program: Program, account: Account) -> set[int]:
        there = {pos for pos, blocks in account.blocks_at.items() if blocks & places}
        return there | (concern.positions(program, account) if concern else set())

    def counts(program: Program, account: Account) -> bool:
        return bool(mine(program, account))

    setting.programs.clear()
    tried = arms.run(setting, given, part, counts, 1)
    if tried is None:
        return Scheduled(NOT, "edges between events that the window leaves out forbid this order")
    if not tried.account.reads:
        return Scheduled(CANNOT, "needs a read of these blocks: nothing in the trace reads them")
    plain = arms.run(setting, recorded, part, counts, 1)
    assert plain is not None
    if bool(tried.corrupt) == bool(plain.corrupt):
        both = "wrong bytes in both orders" if tried.corrupt else "the same bytes in both orders"
        return Scheduled(NOT, f"reads get {both}", tried, plain)
    bad, good = (given, recorded) if tried.corrupt else (recorded, given)
    fault = arms.run(setting, bad, part, counts, setting.runs)
    control = arms.run(setting, good, part, counts, setting.runs)
    assert fault is not None and control is not None
    if fault.corrupt < fault.runs or control.corrupt:
        return Scheduled(NOT, "the runs do not agree", fault, control)
    wanted = mine(fault.program, fault.account)
    wrong = next((w for w in fault.account.wrong if w.about.pos in wanted), None)
    first = None if wrong is None else arms.told(fault.program, wrong)
    reason = "wrong bytes" if first is None else in_words(first)
    if bad is recorded:
        reason += ", in the recorded order; the schedule reads right ones"
    return Scheduled(CONFIRMED, reason, fault, control, first)


def _part(
    setting: Setting, places: frozenset[Block], report: Report | None, finding: Finding | None
) -> Slice | None:
    if report is not None and finding is not None:
        return sliced(setting.events, report, finding)
    if len(setting.events) <= SHORT:
        return None
    return Slice(places, 0, setting.events[-1].pos, frozenset())
