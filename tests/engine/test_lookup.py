"""The prefix match against an oracle that tries every position."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.engine.geometry import Preset
from hkvtool.engine.lookup import lookup, trusting
from hkvtool.engine.pool import BlockPool
from hkvtool.model.forms import Form

from .tiny import CHUNKED, COMPRESSING, INDEXED, PLAIN, PRESETS, RECURRENT, WINDOWED, request

HYBRID = [p for p in PRESETS.values() if p is not PLAIN]


def filled(preset: Preset, random: Random, share: float, tiers: int) -> list[BlockPool]:
    """Pools that hold a random part of the request's blocks."""
    wanted = request(0, list(range(12)))
    pools = [BlockPool(name, name, 400) for name in ("gpu", "cpu", "disk")[:tiers]]
    for pool in pools:
        for table in preset.tables:
            size = table.lead.block_tokens
            keep = share if not table.history else share + (1 - share) / 2
            for index in range(wanted.prompt // size):
                if random.random() < keep:
                    (block,), _, _ = pool.take(table.name, [index * size])
                    pool.publish(table.name, wanted.key((index + 1) * size), block)
    return pools


def resumable(preset: Preset, pools: list[BlockPool], at: int) -> bool:
    """Whether every table has at `at` what the *Forms* table asks: a history from anywhere, in
    the order of the tiers, all else whole from one tier."""
    wanted = request(0, list(range(12)))
    for table in preset.tables:
        size = table.lead.block_tokens
        span = table.lead.span(*table.lead.needs(at))
        has = [
            [pool.find(table.name, wanted.key((i + 1) * size)) is not None for i in span]
            for pool in pools
        ]
        if table.history:
            tier = 0
            for i in range(len(span)):
                while tier < len(pools) and not has[tier][i]:
                    tier += 1
                if tier == len(pools):
                    return False
        elif not any(map(all, has)):
            return False
    return True


@given(
    st.sampled_from(HYBRID), st.integers(0, 10_000), st.sampled_from([0.3, 0.8, 0.95]),
    st.integers(1, 3), st.integers(1, 95),
)  # fmt: skip
def test_the_hit_is_the_largest_position_where_all_forms_are_there(
    preset: Preset, seed: int, share: float, tiers: int, last: int
) -> None:
    pools = filled(preset, Random(seed), share, tiers)
    hit = lookup(preset, request(0, list(range(12))), 96, pools, last)
    candidates = range(0, last + 1, preset.grain)
    assert hit.at == max(at for at in candidates if at == 0 or resumable(preset, pools, at))
    for table in preset.tables if hit.at else ():
        span = table.lead.span(*table.lead.needs(hit.at))
        assert [index for index, _, _ in hit.sources[table.name]] == list(span)
        for index, tier, block in hit.sources[table.name]:
            key = request(0, list(range(12))).key((index + 1) * table.lead.block_tokens)
            assert pools[tier].find(table.name, key) == block


def test_a_window_that_is_gone_limits_the_hit() -> None:
    pool = BlockPool("gpu", "gpu", 100)
    wanted = request(0, list(range(4)))
    for table in WINDOWED.tables:
        size = table.lead.block_tokens
        for index in range(32 // size):
            if table.lead.name == "swa" and index == 3:
                continue
            (block,), _, _ = pool.take(table.name, [index * size])
            pool.publish(table.name, wanted.key((index + 1) * size), block)
    hit = lookup(WINDOWED, wanted, 40, [pool], 39)
    assert (hit.at, hit.matched) == (24, 32)
    assert hit.own == {"full": 32, "swa": 24, "sparse": 32}
    assert trusting(WINDOWED, wanted, 40, [pool], 39).at == 32


@pytest.mark.parametrize("preset", [RECURRENT, COMPRESSING, CHUNKED, INDEXED])
def test_nothing_cached_is_no_hit(preset: Preset) -> None:
    hit = lookup(preset, request(0, [1, 2, 3, 4]), 32, [BlockPool("gpu", "gpu", 4)], 31)
    assert (hit.at, hit.matched, hit.loads()) == (0, 0, 0)


def test_a_recurrent_state_serves_one_position_only() -> None:
    pool = BlockPool("gpu", "gpu", 100)
    wanted = request(0, list(range(4)))
    for table in RECURRENT.tables:
        indices = [1] if table.lead.form is Form.RECURRENT else range(4)
        for index in indices:
            (block,), _, _ = pool.take(table.name, [index * 8])
            pool.publish(table.name, wanted.key((index + 1) * 8), block)
    assert lookup(RECURRENT, wanted, 32, [pool], 31).at == 16
    assert lookup(RECURRENT, wanted, 32, [pool], 15).at == 0


def test_a_plain_prompt_can_be_matched_into_its_last_block() -> None:
    pool = BlockPool("gpu", "gpu", 100)
    wanted = request(0, [1, 2, 3], tail=5)
    for index in range(2):
        (block,), _, _ = pool.take("kv", [index * 8])
        pool.publish("kv", wanted.key((index + 1) * 8), block)
    assert lookup(PLAIN, wanted, 21, [pool], 21).at == 16
    (block,), _, _ = pool.take("kv", [16])
    pool.publish("kv", wanted.key(21), block, partial=True)
    hit = lookup(PLAIN, wanted, 21, [pool], 21)
    assert hit.at == 21
    assert hit.sources["kv"][-1] == (2, 0, block)
