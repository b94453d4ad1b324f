"""Blocks as space: generations, references, the free list, owners, pins, steps in flight."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.state.arrays import STEPS
from tests.state.stories import Story


@pytest.fixture
def story() -> Story:
    return Story()


def test_an_alloc_starts_the_next_generation(story: Story) -> None:
    story.alloc(1, 2).write(0, 4, 1).say("free", group="kv", blocks=[1])
    kept = story.state(1)
    assert (kept.generation, kept.ref_count, kept.written, kept.version) == (1, 0, 4, 1)
    story.alloc(1, req="b")
    taken = story.state(1)
    assert (taken.generation, taken.ref_count, taken.written, taken.version) == (2, 1, 0, 0)
    assert (taken.owner, story.state(2).generation) == ("b", 1)


def test_references_are_counted_and_may_go_below_zero(story: Story) -> None:
    story.alloc(1).say("touch", group="kv", blocks=[1], req="b")
    assert story.state(1).ref_count == 2 and story.free() == []
    for _ in range(3):
        story.say("free", pool="gpu", blocks=[1])
    assert story.state(1).ref_count == -1
    # A double free does not put the block into the list twice.
    assert story.free() == [1]
    story.alloc(1)
    assert story.state(1).ref_count == 1 and story.free() == []


def test_a_block_nobody_described_joins_no_free_list(story: Story) -> None:
    story.say("free", group="kv", blocks=[3])
    assert story.free() == [] and story.state(3).ref_count == 0 and story.state(3).uncertain


def test_a_touched_block_leaves_the_free_list_and_keeps_what_it_holds(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2).say("free", group="kv", blocks=[1, 2])
    story.say("touch", group="kv", blocks=[1], req="b")
    assert story.free() == [2]
    assert story.state(1).written == 4 and story.state(1).generation == 1


def test_front_is_reused_first_in_its_own_order(story: Story) -> None:
    story.alloc(1, 2, 3, 4, 5).say("free", group="kv", blocks=[5, 1])
    story.say("free", group="kv", blocks=[2, 3, 4], front=[3, 2])
    assert story.free() == [3, 2, 5, 1, 4]


BLOCKS = st.lists(st.integers(1, 6), max_size=4, unique=True)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), BLOCKS),
        st.tuples(st.just("touch"), BLOCKS),
        st.tuples(st.just("free"), BLOCKS),
        st.tuples(st.just("front"), BLOCKS),
    ),
    min_size=10,
    max_size=40,
)


@given(OPS)
def test_the_free_list_is_an_ordered_dictionary(ops: list[tuple[str, list[int]]]) -> None:
    story = Story()
    refs: dict[int, int] = {}
    free: OrderedDict[int, None] = OrderedDict()
    for op, blocks in ops:
        keys = {"front": blocks[::2]} if op == "front" else {}
        story.say("free" if op == "front" else op, group="kv", blocks=blocks, **keys)
        for block in blocks:
            if op == "alloc":
                refs[block] = 1
                free.pop(block, None)
            elif op == "touch":
                if refs.get(block, 0) <= 0:
                    free.pop(block, None)
                refs[block] = refs.get(block, 0) + 1
            elif block in refs and story.of(block, "known"):
                refs[block] -= 1
                if refs[block] == 0:
                    free[block] = None
        if op == "front":
            for block in reversed(blocks[::2]):
                if refs.get(block) == 0 and story.of(block, "known"):
                    free[block] = None
                    free.move_to_end(block, last=False)
        assert story.free() == list(free)


def test_owners_hold_what_they_allocated_last(story: Story) -> None:
    story.alloc(1, 2, 3, req="a").alloc(4, req="b")
    assert story.owned("a") == [3, 2, 1]
    story.alloc(2, req="b")
    assert story.owned("a") == [3, 1] and story.owned("b") == [2, 4]
    story.alloc(3, 1, 4, req="c")
    assert story.owned("a") == [] and story.owned("b") == [2]
    story.say("alloc", group="kv", blocks=[2])
    assert story.owned("b") == [] and story.state(2).owner is None


@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), BLOCKS), max_size=20))
def test_owner_chains_are_what_was_allocated(allocs: list[tuple[str | None, list[int]]]) -> None:
    story = Story()
    owner: OrderedDict[int, str | None] = OrderedDict()
    for req, blocks in allocs:
        story.say("alloc", group="kv", blocks=blocks, **({"req": req} if req else {}))
        for block in blocks:
            owner[block] = req
            owner.move_to_end(block)
        for who in {req for req, _ in allocs if req} & set(owner.values()):
            assert story.owned(who) == [b for b, other in reversed(owner.items()) if other == who]


def test_tokens_go_on_behind_the_last_block_of_the_request(story: Story) -> None:
    story.alloc(1, 2).alloc(3)
    assert [story.state(b).tokens for b in (1, 2, 3)] == [(0, 4), (4, 8), (8, 12)]
    story.alloc(4, tokens=[21, 22]).alloc(5)
    assert [story.state(b).tokens for b in (4, 5)] == [(20, 24), (24, 28)]
    # A hit is a block of the request as well, and a request that ends starts anew.
    story.say("touch", group="kv", blocks=[1, 2, 3], req="b").alloc(6, req="b")
    assert story.state(6).tokens == (12, 16)
    story.say("finish", req="b").alloc(7, req="b")
    assert story.state(7).tokens == (0, 4)


def test_each_table_of_a_request_goes_on_by_itself(story: Story) -> None:
    story.declare("w", "swa")
    story.alloc(1, 2).alloc(3, group="w").alloc(4)
    assert [story.of(b, "start") for b in (1, 2, 3, 4)] == [0, 4, 0, 8]


def test_a_block_is_of_the_table_it_was_allocated_for(story: Story) -> None:
    w = story.declare("w", "swa", window=8)
    story.alloc(1).alloc(2, group="w").say("alloc", pool="gpu", blocks=[3])
    assert [story.of(b, "table") for b in (1, 2, 3)] == [0, w.table_id, -1]
    story.alloc(1, group="w")
    assert story.state(1).why_not == "HKV601" and story.of(1, "table") == w.table_id


def test_when_a_block_was_freed(story: Story) -> None:
    story.alloc(1, 2, 3).say("free", group="kv", blocks=[1, 2])
    freed = story.pos
    assert [story.of(b, "free_pos") for b in (1, 2, 3)] == [freed, freed, -1]
    story.say("touch", group="kv", blocks=[1]).alloc(2)
    assert [story.of(b, "free_pos") for b in (1, 2)] == [-1, -1]


def test_pins_are_counted(story: Story) -> None:
    story.alloc(1).say("pin", pool="gpu", blocks=[1], owner="conn")
    story.say("pin", group="kv", blocks=[1, 2]).say("unpin", pool="gpu", blocks=[2, 2])
    assert (story.state(1).pins, story.state(2).pins) == (2, -1)


def test_the_last_event_that_named_a_block_is_its_last_touch(story: Story) -> None:
    story.alloc(1, 2, 3)
    at = story.pos
    story.write(0, 4, 1, 2)
    # A write that reaches fewer blocks than it names names them all the same.
    assert [story.state(b).last_touch for b in (1, 2, 3)] == [at + 1, at + 1, at]
    story.say("seal", group="kv", blocks=[3, 7], version=1)
    assert story.state(7).last_touch == at + 2 and story.state(7).uncertain
    for ev, keys in (
        ("touch", {"group": "kv"}),
        ("free", {"group": "kv"}),
        ("free", {"group": "kv", "front": [6]}),
        ("pin", {"pool": "gpu"}),
        ("slide", {"group": "kv", "req": "a"}),
        ("zero", {"pool": "gpu"}),
        ("publish", {"group": "kv", "hashes": ["h"]}),
        ("unpublish", {"group": "kv"}),
        ("store_begin", {"group": "kv", "handle": "t"}),
    ):
        story.say(ev, blocks=[2], **keys)
        assert story.state(2).last_touch == story.pos, ev
        assert "front" not in keys or story.state(6).last_touch == story.pos
    story.say("copy", group="kv", src=[2], dst=[3])
    assert story.state(2).last_touch == story.state(3).last_touch == story.pos


# --- steps in flight -----------------------------------------------------------------------


def test_a_late_write_means_the_generation_that_was_dispatched(story: Story) -> None:
    story.alloc(1, req="a").say("dispatch", step=1)
    story.say("free", group="kv", blocks=[1]).alloc(1, req="b")
    story.write(0, 4, 1, req="a", step=1)
    assert story.state(1).written == 0 and story.of(1, "cgen") == 1
    # The step of the new owner, dispatched behind the alloc, means the new generation.
    story.say("dispatch", step=2).write(0, 2, 1, req="b", step=2)
    assert story.runs(1) == [(0, 2)] and story.state(1).generation == 2


def test_a_step_two_generations_back(story: Story) -> None:
    story.alloc(1, req="a").say("dispatch", step=1).alloc(1, req="b").alloc(1, req="c")
    story.write(0, 4, 1, req="a", step=1)
    assert (story.of(1, "gen"), story.of(1, "cgen")) == (3, 1)


def test_a_late_write_destroys_what_the_new_owner_has_written(story: Story) -> None:
    story.alloc(1, req="a").say("dispatch", step=1).alloc(1, req="b").say("dispatch", step=2)
    story.write(0, 4, 1, req="b", step=2)
    assert story.state(1).written == 4
    story.write(0, 4, 1, req="a", step=1)
    assert story.state(1).written == 0 and story.of(1, "cpos") == story.pos


def test_a_step_without_dispatch_means_what_is_there(story: Story) -> None:
    story.alloc(1).alloc(1, req="b").write(0, 4, 1, step=7)
    assert story.state(1).written == 4


def test_a_step_number_stands_for_its_latest_dispatch(story: Story) -> None:
    story.say("dispatch", step=1).alloc(1).write(0, 4, 1, step=1)
    assert story.state(1).written == 0
    story.say("dispatch", step=1 + STEPS).write(0, 4, 1, step=1)
    # Forgotten: the place of step 1 is another's now.
    assert story.state(1).written == 4
