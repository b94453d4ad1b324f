"""What blocks hold: token runs, rings, versions, states, copies, zeroes, rollbacks, weights."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.rows import MISSING
from hkvtool.state import arrays as a
from hkvtool.state.content import add_run, covers
from tests.state.stories import Story


@pytest.fixture
def story() -> Story:
    return Story()


# --- runs of tokens ------------------------------------------------------------------------

WRITES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=1, max_size=8)


def component() -> Any:
    """The arrays of one component that was written to."""
    arrays = a.Arrays(*([] for _ in a.Arrays._fields))
    for name, extent in a.EXTENTS.items():
        getattr(arrays, name).append(extent.empty)
    arrays.cid[0], arrays.cgen[0] = 1, 1
    return arrays


def held(arrays: Any) -> set[int]:
    return {*range(arrays.lo[0], arrays.hi[0]), *range(arrays.lo2[0], arrays.hi2[0])}


@given(st.integers(1, 8), WRITES)
def test_a_token_takes_the_slot_of_every_token_it_is_congruent_to(
    unit: int, writes: list[tuple[int, int]]
) -> None:
    arrays = component()
    slots: list[int | None] = [None] * unit
    for start, count in writes:
        add_run(arrays, 0, start, start + count, unit)
        for token in range(start, start + count):
            slots[token % unit] = token
        truth = {token for token in slots if token is not None}
        assert start + count - 1 in range(arrays.lo[0], arrays.hi[0])
        if not arrays.vague[0]:
            assert held(arrays) == truth
        else:
            # Two runs could not say it once; what they do say is true.
            assert held(arrays) <= truth
        for token in range(start, start + count):
            assert covers(arrays, 0, 1, token, token + 1, unit) or token not in truth


@given(st.integers(1, 8), WRITES)
def test_vague_is_only_what_two_runs_cannot_say(unit: int, writes: list[tuple[int, int]]) -> None:
    arrays = component()
    slots: list[int | None] = [None] * unit
    for start, count in writes:
        before = arrays.vague[0]
        add_run(arrays, 0, start, start + count, unit)
        for token in range(start, start + count):
            slots[token % unit] = token
        truth = {token for token in slots if token is not None}
        runs = sum(token - 1 not in truth for token in truth)
        assert arrays.vague[0] == (a.VAGUE if runs > 2 else before)
        if before or runs > 2:
            break


@given(st.integers(2, 8), st.integers(0, 9), st.integers(0, 20), st.integers(1, 4))
def test_counted_slots_get_their_places_from_the_first_write(
    unit: int, count: int, start: int, length: int
) -> None:
    arrays = component()
    arrays.vague[0], arrays.hi[0] = a.COUNTED, count
    assert covers(arrays, 0, 1, 0, min(count, unit), unit)
    assert count >= unit or not covers(arrays, 0, 1, count, count + 1, unit)
    length = min(length, unit - start % unit)
    add_run(arrays, 0, start, start + length, unit)
    if start % unit >= count:
        lap = start - start % unit
        assert held(arrays) == {*range(lap, lap + count), *range(start, start + length)}
        assert not arrays.vague[0]
    elif length < unit:
        # Was it a token of this lap that was written again, or one of the next?
        assert arrays.vague[0] == a.VAGUE and held(arrays) == set(range(start, start + length))
    else:
        assert not arrays.vague[0]


def test_tokens_are_spread_over_the_blocks(story: Story) -> None:
    story.alloc(1, 2, 3).write(2, 9, 1, 2, 3)
    assert [story.runs(b) for b in (1, 2, 3)] == [[(2, 4)], [(4, 8)], [(8, 9)]]
    assert [story.state(b).tokens for b in (1, 2, 3)] == [(2, 4), (4, 8), (8, 9)]


def test_a_list_too_short_for_the_tokens_is_a_ring(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1, 2, group="w").write(0, 14, 1, 2, group="w")
    # Laps 0-3, 4-7, 8-11, 12-13: only the last ones stay, each in its own place.
    assert story.runs(1, "w") == [(8, 12)] and story.runs(2, "w") == [(12, 14)]
    story.write(14, 18, 2, 1, group="w")
    assert story.runs(2, "w") == [(12, 16)]
    assert story.runs(1, "w") == [(16, 18), (10, 12)]


def test_a_write_of_no_tokens_fills_nothing(story: Story) -> None:
    story.alloc(1).write(0, 0, 1)
    assert story.state(1).written == 0 and not story.state(1).recoverable


def test_padding_fills_nothing(story: Story) -> None:
    story.alloc(1).write(0, 4, 1, pad=True)
    assert story.state(1).written == 0 and story.state(1).version == 0


# --- versions ------------------------------------------------------------------------------


def test_each_write_is_a_version_unless_one_is_stated(story: Story) -> None:
    story.alloc(1).write(0, 2, 1).write(2, 3, 1)
    assert story.state(1).version == 2
    story.write(3, 4, 1, version=9)
    assert story.state(1).version == 9
    story.alloc(1).write(0, 1, 1)
    assert story.state(1).version == 1


def test_equal_content_ids_mean_equal_bytes(story: Story) -> None:
    story.alloc(1, 2, 3).write(0, 4, 1).say("copy", group="kv", src=[1], dst=[2])
    assert story.of(1, "cid") == story.of(2, "cid") > 0
    story.write(0, 4, 3)
    assert story.of(3, "cid") != story.of(1, "cid")
    story.write(3, 4, 1)
    assert story.of(1, "cid") != story.of(2, "cid")


def test_new_weights_make_older_content_stale(story: Story) -> None:
    story.alloc(1, 2).write(0, 4, 1).publish({1: "h"}).say("weights", version=2)
    story.write(4, 8, 2)
    assert story.state(1).why_not == "HKV105" and story.state(2).recoverable
    assert (story.of(1, "epoch"), story.of(2, "epoch")) == (0, 1)


# --- components ----------------------------------------------------------------------------


def test_groups_of_a_table_lie_side_by_side(story: Story) -> None:
    story.declare("ix", "indexer", table="kv", serves="kv")
    story.alloc(1).write(0, 4, 1)
    assert story.state(1, "ix").generation == 1 and story.state(1, "ix").written == 0
    story.say("index", group="ix", blocks=[1], version=1, kv_version=1)
    # Without tokens it brings up to date what the block was allocated for.
    assert story.runs(1, "ix") == [(0, 4)] and story.of(1, "kver", "ix") == 1
    assert story.of(1, "kver") == a.EXTENTS["kver"].empty


def test_a_seal_fills_what_the_block_was_allocated_for(story: Story) -> None:
    story.alloc(1, 2).say("seal", group="kv", blocks=[2], version=3)
    assert story.runs(2) == [(4, 8)] and story.state(2).version == 3
    story.alloc(3).say("seal", group="kv", blocks=[3], version=1, tokens=[8, 10])
    assert story.runs(3) == [(8, 10)]


def test_a_state_stands_for_the_end_of_what_was_read() -> None:
    story = Story("recurrent")
    story.alloc(1).write(0, 6, 1)
    assert story.state(1).tokens == (4, 6)
    assert story.state(1).written == 2
    story.write(6, 7, 1)
    # It replaces the state that stood there; it does not go on behind it.
    assert story.runs(1) == [(6, 7)]
    story.say("rollback", req="a", to=6)
    assert story.state(1).written == 0
    story.write(6, 7, 1).say("rollback", req="a", to=7)
    assert story.runs(1) == [(6, 7)]


def test_the_last_states_of_several_blocks() -> None:
    story = Story("recurrent")
    story.alloc(1, 2).write(0, 12, 1, 2)
    assert [story.state(b).tokens for b in (1, 2)] == [(4, 8), (8, 12)]


# --- other bytes ---------------------------------------------------------------------------


def test_zero_clears_one_component_or_all(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1).write(0, 4, 1).write(0, 4, 1, group="w")
    story.say("zero", group="w", blocks=[1])
    assert (story.state(1).written, story.state(1, "w").written) == (4, 0)
    assert story.of(1, "cpos", "w") == story.pos and story.of(1, "cpos") == -1
    story.say("zero", pool="gpu", blocks=[1])
    assert story.state(1).written == 0


def test_nothing_is_left_of_what_was_cleared(story: Story) -> None:
    story.declare("ix", "indexer", table="kv", serves="kv")
    held = ("cid", "lo", "hi", "lo2", "hi2", "vague")
    story.alloc(1).write(8, 9, 1, group="ix").write(10, 11, 1, group="ix")
    story.say("index", group="ix", blocks=[1], version=3, kv_version=2, tokens=[12, 13])
    assert story.of(1, "kver", "ix") == 2 and all(story.of(1, f, "ix") for f in held[:5])
    story.say("zero", group="kv", blocks=[1]).say("zero", group="ix", blocks=[1])
    assert [story.of(1, field, "ix") for field in held] == [0] * 6
    assert story.of(1, "kver", "ix") == MISSING
    story.say("state", pool="gpu", blocks=[2], refs=[1]).say("zero", pool="gpu", blocks=[2])
    assert story.of(2, "vague") == 0 and not story.state(2).recoverable


def test_a_copy_brings_what_the_source_holds(story: Story) -> None:
    story.alloc(1).write(0, 3, 1, version=5).alloc(2, req="b")
    story.say("copy", group="kv", src=[1], dst=[2])
    copied = story.state(2)
    assert (copied.tokens, copied.version, copied.generation) == ((0, 3), 5, 1)
    story.write(3, 4, 2, req="b")
    assert story.runs(2) == [(0, 4)] and story.runs(1) == [(0, 3)]


def test_a_copy_of_an_empty_block_empties_the_other(story: Story) -> None:
    story.alloc(1, 2).write(4, 8, 2).say("copy", group="kv", src=[1], dst=[2])
    assert story.state(2).written == 0


def test_a_copy_of_a_block_nobody_described_claims_nothing(story: Story) -> None:
    story.alloc(1).say("copy", group="kv", src=[5], dst=[1])
    assert story.of(1, "vague") == a.VAGUE and story.state(1).why_not is None


def test_a_copy_without_a_group_takes_every_component(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1, 2).write(0, 4, 1).write(0, 2, 1, group="w")
    story.say("copy", pool="gpu", src=[1], dst=[2])
    assert story.runs(2) == [(0, 4)] and story.runs(2, "w") == [(0, 2)]


def test_a_copy_into_another_group(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1).write(0, 4, 1).alloc(2, group="w", req="b")
    story.say("copy", src=[1], dst=[2], src_group="kv", dst_group="w")
    assert story.runs(2, "w") == [(0, 4)] and story.runs(2) == []


def test_whose_bytes_lie_under_a_partial_overwrite(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1).write(0, 4, 1).alloc(1, group="w", req="b").write(0, 2, 1, group="w", req="b")
    kv, w = (story.fold.declared.groups[name].id for name in ("kv", "w"))
    assert (story.of(1, "by"), story.of(1, "dirt")) == (w, kv)
    story.write(2, 4, 1, group="w", req="b")
    assert story.of(1, "dirt") == -1
    story.alloc(1).say("zero", pool="gpu", blocks=[1])
    assert (story.of(1, "by"), story.of(1, "dirt")) == (-1, -1)


# --- rollback ------------------------------------------------------------------------------


def test_rejected_tokens_are_void_in_every_block_of_the_request(story: Story) -> None:
    story.alloc(1, 2, 3).write(0, 10, 1, 2, 3).alloc(4, req="b").write(0, 4, 4, req="b")
    story.say("rollback", req="a", to=6)
    assert [story.runs(b) for b in (1, 2, 3, 4)] == [[(0, 4)], [(4, 6)], [], [(0, 4)]]
    # They are written again behind.
    story.write(6, 9, 2, 3)
    assert story.runs(2) == [(4, 8)] and story.runs(3) == [(8, 9)]


def test_a_rollback_of_a_ring_keeps_the_lap_before(story: Story) -> None:
    story.declare("w", "swa", window=4)
    story.alloc(1, group="w").write(0, 4, 1, group="w").write(4, 6, 1, group="w")
    assert story.runs(1, "w") == [(2, 6)]
    story.say("rollback", req="a", to=4)
    assert story.runs(1, "w") == [(2, 4)]


def test_a_rollback_voids_a_hash_that_covers_what_was_rejected(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2).publish({1: "h1", 2: "h2"}, tokens=[0, 8])
    story.say("rollback", req="a", to=5)
    assert story.state(1).recoverable
    assert story.of(2, "pver") == a.VOIDED
    story.write(5, 8, 2)
    # The bytes are there again, but they are others.
    assert story.state(2).why_not == "HKV105"


def test_a_rollback_behind_the_hash_leaves_it(story: Story) -> None:
    story.alloc(1).write(0, 2, 1).publish({1: "h"}, tokens=[0, 2]).write(2, 4, 1)
    story.say("rollback", req="a", to=2)
    assert story.of(1, "pver") != a.VOIDED and story.state(1).recoverable
