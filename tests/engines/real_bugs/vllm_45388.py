"""Two loads are admitted each for what it loads; then the first needs more than is left.

The queue is looked through from its head, and stops where a request does not fit. The second, which
would fit, is behind it and is never reached: nothing runs and nothing can be preempted. Since 0.23
a load is admitted only if what earlier ones still need stays free.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan, full

UNIT = 16


def plan() -> Plan:
    return Plan([full(UNIT)], blocks=13, block=UNIT, connector="Remote")


def drive(engine: Engine) -> None:
    engine.sink({"ev": "limits", "stall_steps": 4})
    watch(engine, {"first": 2 * UNIT, "second": 8 * UNIT})
    engine.request("first", [i % 200 + 3 for i in range(10 * UNIT - 4)], output=2)
    engine.request("second", [i % 150 + 9 for i in range(10 * UNIT - 4)], output=2)
    engine.step()
    for _ in range(12):
        engine.step(received=engine.connector.loaded())
