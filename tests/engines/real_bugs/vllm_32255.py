"""An abort gives back the blocks of a remote load that is still landing.

The next request computes into them while the transfer of the first still writes there. Since
0.16 an aborted load keeps its blocks until the connector says that it has ended.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan, full

UNIT = 16


def plan() -> Plan:
    return Plan([full(UNIT)], blocks=12, block=UNIT, connector="Remote")


def drive(engine: Engine) -> None:
    watch(engine, {"loading": 4 * UNIT})
    engine.request("loading", [i % 200 + 3 for i in range(5 * UNIT)])
    engine.step()
    engine.abort("loading")
    engine.request("next", [i % 90 + 7 for i in range(8 * UNIT)], output=2)
    engine.step()
    engine.step(received=["loading"])
    engine.run()
