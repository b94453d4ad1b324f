"""A request that holds nothing stands in front of one whose load has come in.

The connector could not say at first what it has for the first request, so the second was admitted
and stands behind it. The first does not fit beside what the second has loaded, the look through the
queue ends there, and the second is never reached. Since 0.31 those that hold blocks come first.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan, full

UNIT = 16


def plan() -> Plan:
    return Plan([full(UNIT)], blocks=11, block=UNIT, connector="Remote")


def drive(engine: Engine) -> None:
    engine.sink({"ev": "limits", "stall_steps": 4})
    watch(engine, {"second": 6 * UNIT})
    engine.connector.undecided.add("first")
    engine.request("first", [i % 200 + 3 for i in range(9 * UNIT - 4)], output=2)
    engine.request("second", [i % 150 + 9 for i in range(8 * UNIT - 4)], output=2)
    engine.step()
    engine.connector.undecided.clear()
    for _ in range(12):
        engine.step(received=engine.connector.loaded())
