"""The deepest group's hit is taken for the whole model's.

A full-attention group whose later blocks were evicted and a recurrent group whose state survived
at the end disagree about how far a prefix is cached. With a connector the larger one was taken,
and the request goes on from a position up to which the attention has nothing.
"""

from __future__ import annotations

from .connector import watch
from .engine import Engine, Plan, full, recurrent

UNIT = 64


def plan() -> Plan:
    return Plan(
        [full(UNIT), recurrent(UNIT)], blocks=40, block=UNIT, budget=UNIT,
        connector="Remote",
    )  # fmt: skip


def drive(engine: Engine) -> None:
    watch(engine, {})
    prompt = [i % 200 + 3 for i in range(4 * UNIT + 8)]
    engine.request("first", prompt, output=2)
    engine.run()
    # Its client goes while the step is in flight: the attention's blocks are given back before
    # the state that the step reads, and so go first when room is needed.
    engine.request("second", [*prompt, 5], output=2)
    engine.plan_step()
    engine.abort("second")
    engine.end_step()
    pressure(engine, keep=2)
    engine.request("third", [*prompt, 7, 7], output=2)
    engine.run()


def pressure(engine: Engine, keep: int) -> None:
    """Another request runs until it has taken all but the first blocks of the first prompt."""
    pool = engine.scheduler.kv_cache_manager.block_pool
    ours = [b for b in pool.blocks if b.block_hash is not None]
    chain = [b for b in ours if bytes(b.block_hash).endswith(bytes(4))]
    filler = [i % 97 + 100 for i in range(30 * UNIT)]
    engine.request("filler", filler, output=1)
    while sum(b.block_hash is not None and b in chain for b in chain) > keep:
        engine.step()
        chain = [b for b in chain if b.block_hash is not None and b.ref_cnt == 0]
    engine.abort("filler")
    engine.step()
