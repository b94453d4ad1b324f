"""The free list as the cache."""

from __future__ import annotations

import pytest

from hkvtool.engine.pool import BlockPool


@pytest.fixture
def pool() -> BlockPool:
    return BlockPool("gpu", "gpu", 8, reserved=1)


def taken(pool: BlockPool, count: int, table: str = "kv") -> list[int]:
    return pool.take(table, [0] * count)[0]


def test_the_null_block_is_never_handed_out(pool: BlockPool) -> None:
    assert taken(pool, 7) == [1, 2, 3, 4, 5, 6, 7]
    assert pool.available == 0


def test_blocks_without_a_hash_come_back_first_those_with_one_last(pool: BlockPool) -> None:
    blocks = taken(pool, 5)
    for block in blocks[:3]:
        assert pool.publish("kv", 100 + block, block)
    front = pool.release(blocks[::-1])
    assert front == [5, 4]
    # Freed last block first: of the cached ones the end of the prefix is evicted before its head.
    assert list(pool.free) == [4, 5, 6, 7, 3, 2, 1]


def test_taking_a_cached_block_evicts_it_and_starts_a_generation(pool: BlockPool) -> None:
    blocks = taken(pool, 7)
    pool.publish("kv", 1, blocks[0])
    pool.release(blocks)
    assert pool.find("kv", 1) == blocks[0]
    got, reformed, evicted = pool.take("swa", [0] * 7)
    assert sorted(got) == blocks
    assert evicted == {"kv": [blocks[0]]} and pool.evictions == 1
    assert set(reformed) == set(blocks) and set(reformed.values()) == {"kv"}
    assert pool.find("kv", 1) is None
    assert {pool.generation[block] for block in blocks} == {2}


def test_a_touched_block_is_not_taken(pool: BlockPool) -> None:
    (block,) = taken(pool, 1)
    pool.publish("kv", 1, block)
    pool.release([block])
    pool.touch([block])
    assert block not in taken(pool, 6)
    pool.touch([block])
    assert pool.release([block]) == [] and pool.refs[block] == 1


def test_the_first_to_publish_a_content_keeps_it(pool: BlockPool) -> None:
    one, two = taken(pool, 2)
    assert pool.publish("kv", 9, one)
    assert not pool.publish("kv", 9, two)
    assert pool.publish("swa", 9, two), "another table is another content"
    assert pool.release([two, one]) == []


def test_a_partial_entry_is_dropped_with_its_block(pool: BlockPool) -> None:
    (block,) = taken(pool, 1)
    pool.publish("kv", 5, block, partial=True)
    assert pool.cached(block)
    assert pool.promote(block) == 5
    assert pool.find("kv", 5) is None and not pool.cached(block)
    pool.publish("kv", 6, block, partial=True)
    pool.forget(block)
    assert pool.find("kv", 6) is None


def test_a_copy_holds_what_its_source_holds(pool: BlockPool) -> None:
    other = BlockPool("cpu", "cpu", 4, places=1)
    (block,) = taken(pool, 1)
    pool.filled[block], pool.versions[0][block] = 8, 3
    (copy,) = taken(other, 1)
    pool.adopt(block, other, copy)
    assert (other.filled[copy], other.versions[0][copy]) == (8, 3)
