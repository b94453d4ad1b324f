"""Two requests with one prefix are admitted in one step, the second on a state of that same step.

Attention may do so: the keys of a step are written before they are read. A recurrent layer reads
its states first. Since 0.17 a request that would start from such a state waits for the next step.
"""

from __future__ import annotations

from .engine import Engine, Plan, full, recurrent

UNIT = 64


def plan() -> Plan:
    return Plan([full(UNIT), recurrent(UNIT)], blocks=40, block=UNIT, budget=8 * UNIT)


def drive(engine: Engine) -> None:
    prompt = [i % 200 + 3 for i in range(2 * UNIT)]
    engine.request("first", [*prompt, 5, 6], output=2)
    engine.request("second", [*prompt, 7, 8], output=2)
    engine.run()
