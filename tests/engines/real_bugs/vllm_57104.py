"""A load is admitted without room for the tokens that the drafter will speculate.

Two loads fill the pool to the last block. The first has come in and needs one more block for its
first speculative step, which nobody can give back. Since 0.31 that block is set aside.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan, full

UNIT = 16


def plan() -> Plan:
    return Plan([full(UNIT)], blocks=8, block=UNIT, drafts=1, connector="Remote")


def drive(engine: Engine) -> None:
    engine.sink({"ev": "limits", "stall_steps": 4})
    watch(engine, {"first": 4 * UNIT, "second": 3 * UNIT})
    engine.request("first", [i % 200 + 3 for i in range(4 * UNIT)], output=2)
    engine.request("second", [i % 150 + 9 for i in range(3 * UNIT)], output=2)
    engine.step()
    for _ in range(12):
        engine.step(received=engine.connector.loaded())
