"""Random programs: what the engine believes, what the fold says and what the bytes are agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hkvtool.analyzers import check
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.pool import NO_KEY, BlockPool
from hkvtool.model.event import Event
from hkvtool.state.fold import Fold
from hkvtool.state.view import block_state

from .tiny import PRESETS, conversations

PROGRAMS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10_000),
        "count": st.integers(2, 14),
        "gap": st.sampled_from([0, 1_000_000, 20_000_000]),
        "blocks": st.sampled_from([40, 64, 90, 160]),
        "tiers": st.sampled_from([(0, 0), (60, 0), (60, 200), (12, 24)]),
        "asynchronous": st.booleans(),
        "cap": st.sampled_from([None, 4, 64]),
        "abort_rate": st.sampled_from([0.0, 0.3]),
        "budget": st.sampled_from([16, 48, 200]),
        "stride": st.sampled_from([1, 3, 8]),
    }
)


def _program(seed: int, count: int, blocks: int, tiers: tuple[int, int], **more: Any) -> Any:
    return {
        "seed": seed, "count": count, "gap": 0, "blocks": blocks, "tiers": tiers,
        "asynchronous": False, "cap": None, "abort_rate": 0.0, "budget": 16, "stride": 1, **more,
    }  # fmt: skip


def invariants(pool: BlockPool) -> None:
    """What must hold of a pool's books at any moment."""
    free = set(pool.free)
    for block in range(pool.reserved, pool.blocks):
        assert pool.refs[block] >= 0
        assert (pool.refs[block] == 0) == (block in free), block
        if pool.key[block] != NO_KEY:
            assert pool.hashes[str(pool.table[block])][pool.key[block]] == block
    assert not free & set(range(pool.reserved))
    led = [block for known in pool.hashes.values() for block in known.values()]
    assert len(led) == len(set(led)), "a block is known by two hashes"
    assert all(pool.cached(block) for block in led)


def same(fold: Fold, engine: Engine) -> None:
    """The fold of the trace so far and the allocator say the same of every block."""
    for pool in engine.allocator.pools:
        suffix = "" if pool.medium == "gpu" else f"@{pool.name}"
        for block in range(pool.reserved, pool.blocks):
            if pool.table[block] is None:
                continue
            group = fold.group(f"{pool.table[block]}{suffix}")
            assert group is not None
            seen = block_state(fold, group, block)
            assert seen is not None
            mine = engine.allocator.state(block, pool)
            assert (seen.ref_count, seen.generation, seen.published, seen.form) == (
                mine.ref_count, mine.generation, mine.published, mine.form,
            ), (pool.name, block, seen, mine)  # fmt: skip
            if mine.published is None or not mine.recoverable:
                continue
            assert seen.recoverable, (block, seen, mine)
            assert seen.version == mine.version, (block, seen, mine)
            if group.form != "recurrent":
                assert (seen.tokens, seen.written) == (mine.tokens, mine.written), (seen, mine)


@pytest.mark.parametrize("name", PRESETS)
@settings(max_examples=max(20, settings().max_examples // 5))
@given(program=PROGRAMS)
# A load ends into a full pool; a block is loaded while it is written to disk.
@example(program=_program(383, 11, 40, (60, 0), budget=200))
@example(program=_program(2968, 14, 64, (12, 24), asynchronous=True, abort_rate=0.3))
def test_three_witnesses_agree(name: str, program: dict[str, Any]) -> None:
    program = dict(program)
    seed, count, gap = (program.pop(key) for key in ("seed", "count", "gap"))
    cpu, disk = program.pop("tiers")
    requests = conversations(seed, count, gap)
    config = Config(
        PRESETS[name], seed=seed, cpu_blocks=cpu, disk_blocks=disk, token_ns=50_000, **program
    )
    longest = max(request.total for request in requests)
    if PRESETS[name].blocks_for(longest) + 30 > config.blocks:
        config = Config(**(vars(config) | {"blocks": config.blocks + 120}))
    fold = Fold()
    events: list[Event] = []

    def witness(data: dict[str, Any]) -> None:
        event = Event.of(len(events) + 1, data)
        assert event.problem is None, event
        events.append(event)
        assert fold.apply(event) is None, event
        if event.ev == "dispatch":
            for pool in engine.allocator.pools:
                invariants(pool)
            same(fold, engine)

    engine = Engine(config.fitted(longest), witness)
    with engine:
        engine.run(requests)
        same(fold, engine)
    assert engine.memory.bad_reads == 0, engine.memory.mismatches[:2]
    for pool in engine.allocator.pools:
        invariants(pool)
        assert not any(pool.refs[pool.reserved :])
    report = check(iter(events))
    assert {f.code for f in report.findings} <= {"HKV308"}, [
        (f.code, f.events, f.message) for f in report.findings if f.code != "HKV308"
    ][:3]
    ratios = report.ratios
    assert ratios.resumable <= ratios.matched <= ratios.asked
