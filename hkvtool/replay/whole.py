"""A whole trace on real bytes, in the order of its lines: what its reads found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hkvtool.replay.arms import Plan, Setting, compiled, told
from hkvtool.replay.lanes import Lanes
from hkvtool.replay.memory import Memory, OverBudget
from hkvtool.replay.ops import Account
from hkvtool.replay.program import Program


@dataclass
class Replayed:
    """One run of a trace as it was recorded."""

    program: Program
    account: Account
    bytes: int
    lanes: int
    device: str

    def as_json(self) -> dict[str, Any]:
        account = self.account
        return {
            "events": self.program.events, "reads": account.reads, "rows": account.rows,
            "wrong_rows": account.wrong_rows, "wrong_events": sorted(account.wrong_at),
            "first": told(self.program, account.wrong[0]) if account.wrong else None,
            "bytes": self.bytes, "lanes": self.lanes, "device": self.device,
            "rows_kept_thin": self.program.thin,
        }  # fmt: skip


def replay(setting: Setting, until: int | None = None) -> Replayed:
    """Run every access of a trace; rows are one stamp long where the budget is too small for the
    recorded ones."""
    thin = False
    while True:
        program = compiled(setting, Plan("in the order of the recording"), None, thin=thin)
        try:
            memory = Memory(program.touched, setting.device, setting.budget)
            break
        except OverBudget:
            if thin:
                raise
            thin = True
    steps = [s for s in program.in_order() if until is None or s.pos <= until]
    with memory:
        lanes = Lanes(program.lanes, memory)
        try:
            account = lanes.run(steps)
        finally:
            lanes.close()
        return Replayed(program, account, memory.bytes, len(program.lanes), setting.device)
