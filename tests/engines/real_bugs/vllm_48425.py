"""Attention's hit reaches deeper than any recurrent state, and the connector has nothing to load.

The other direction of #46453: the last states were evicted before the attention's blocks. The
attention's hit was taken, in the belief that the connector brings the state; nobody does.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan
from .vllm_46453 import UNIT, pressure
from .vllm_46453 import plan as _plan


def plan() -> Plan:
    return _plan()


def drive(engine: Engine) -> None:
    watch(engine, {})
    prompt = [i % 200 + 3 for i in range(4 * UNIT + 8)]
    engine.request("first", prompt, output=2)
    engine.run()
    engine.request("second", [*prompt, 5], output=1)
    engine.run()
    pressure(engine, keep=2)
    engine.request("third", [*prompt, 7, 7], output=2)
    engine.run()
