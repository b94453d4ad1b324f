"""A block that one request held twice in turn is stored twice at once, and freed twice.

A sliding window gives a block back and the same request takes it again before an eager offloader
has looked at it: its list holds the block twice, takes two references and drops both in one call.
Up to 0.22 that call put the block on the free list once for each entry.
"""

from __future__ import annotations

from typing import Any

from .engine import Engine, Plan, full, sliding

CODE = "HKV704"
AFFECTED, FIXED = "0.22.1", "0.23.0"
UNIT = 16


CPU_BLOCKS = 5


def plan() -> Plan:
    groups = [full(4 * UNIT), sliding(UNIT, 2 * UNIT)]
    page = groups[0].kv_cache_spec.page_size_bytes + groups[1].kv_cache_spec.page_size_bytes
    return Plan(
        groups, blocks=12, block=UNIT, budget=64, connector="SimpleCPUOffloadConnector",
        connector_config={"cpu_bytes_to_use": CPU_BLOCKS * page},
    )  # fmt: skip


def drive(engine: Engine) -> None:
    engine.request("long", [i % 200 + 3 for i in range(20)], output=230)
    engine.request("other", [i % 50 + 3 for i in range(20)], output=2)
    copying: list[int] = []
    for _ in range(300):
        if not engine.scheduler.has_unfinished_requests():
            break
        step = engine.plan_step()
        # Copies are slow: what was begun is done once the host pool has been full for a while.
        late = len(copying) > 3 and engine.scheduler.requests["long"].num_computed_tokens % 160 == 0
        done, copying = (copying, []) if late else ([], copying)
        engine.end_step(worker_meta=_stored(done))
        event = getattr(step.kv_connector_metadata, "store_event", -1)
        if event >= 0:
            copying.append(event)
    step = engine.plan_step()
    engine.end_step(worker_meta=_stored(copying))
    engine.request("next", [i % 60 + 9 for i in range(40)], output=40)
    engine.run(60)


def _stored(events: list[int]) -> Any:
    """The worker reports what it has copied."""
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

    if not events:
        return None
    return SimpleCPUOffloadWorkerMetadata(completed_store_events=dict.fromkeys(events, 1))
