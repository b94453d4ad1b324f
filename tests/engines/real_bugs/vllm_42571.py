"""A block that one request held twice in turn is stored twice at once, and freed twice.

A sliding window gives a block back and the same request takes it again before an eager offloader
has looked at it: its list holds the block twice, takes two references and drops both in one call.
Up to 0.23 that call put the block on the free list once for each entry.
"""

from __future__ import annotations

from typing import Any

from .engine import Engine, Plan, full, sliding

UNIT = 16


CPU_BLOCKS = 13
FULL_AT = 512
"""Tokens at which the first copies are done: the host pool has been full for a while."""


def plan() -> Plan:
    groups = [full(4 * UNIT), sliding(UNIT, 2 * UNIT)]
    size = sum(group.kv_cache_spec.page_size_bytes for group in groups) * CPU_BLOCKS
    return Plan(
        groups, blocks=22, block=UNIT, budget=64, connector="SimpleCPUOffloadConnector",
        connector_config={"cpu_bytes_to_use": size},
    )  # fmt: skip


def drive(engine: Engine) -> None:
    long = engine.request("long", [i % 200 + 3 for i in range(40 * UNIT)], output=2)
    copying: list[int] = []
    for _ in range(700):
        if not engine.scheduler.has_unfinished_requests():
            break
        step = engine.plan_step()
        late = long.num_computed_tokens >= FULL_AT or not step.num_scheduled_tokens
        done, copying = (copying, []) if late else ([], copying)
        engine.end_step(worker_meta=_stored(done))
        event = getattr(step.kv_connector_metadata, "store_event", -1)
        if event >= 0:
            copying.append(event)
    engine.plan_step()
    engine.end_step(worker_meta=_stored(copying))
    # The pool counts more free blocks than there are when it next has to refuse somebody.
    engine.request("next", [i % 60 + 9 for i in range(4 * UNIT)], output=20)
    engine.step()
    engine.request("large", [i % 70 + 9 for i in range(80 * UNIT)], output=2)
    engine.step()
    engine.abort("large")
    engine.abort("next")
    engine.step()


def _stored(events: list[int]) -> Any:
    """The worker reports what it has copied."""
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

    if not events:
        return None
    return SimpleCPUOffloadWorkerMetadata(completed_store_events=dict.fromkeys(events, 1))
