"""What is declared, when, and again; ids beyond a pool; gaps; and what an event cannot mean."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.event import Event
from hkvtool.state.fold import Fold
from tests.state.fold_facts import facts
from tests.state.hostile import hostile
from tests.state.stories import Story
from tests.state.traces import named


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_pool_that_shrinks_hides_what_lies_beyond(story: Story) -> None:
    story.alloc(1, 7)
    story.say("pool", pool="gpu", medium="gpu", blocks=4)
    pool = story.fold.declared.pools["gpu"]
    assert story.fold.find(pool, 7) is None and story.fold.slots_of(pool).keys() == {1}
    problem = story.refuse("free", pool="gpu", blocks=[7])
    assert problem is not None and "block 7 is beyond" in problem.text
    story.say("pool", pool="gpu", medium="gpu", blocks=9)
    assert story.state(7).generation == 1 and story.state(1).ref_count == 1


def test_a_remap_makes_ids_beyond_the_count_blocks(story: Story) -> None:
    assert story.refuse("alloc", group="kv", blocks=[100]) is not None
    story.say("remap", pool="gpu", map={"100": 3})
    story.alloc(100).write(0, 4, 100)
    assert story.state(100).written == 4 and story.fold.declared.pools["gpu"].map == {100: 3}
    assert story.refuse("alloc", group="kv", blocks=[99]) is not None
    # Another size of the pool does not undo it.
    story.say("pool", pool="gpu", medium="gpu", blocks=2)
    assert story.state(100).written == 4


def test_a_group_declared_again_keeps_its_place(story: Story) -> None:
    story.alloc(1).write(0, 4, 1)
    story.declare("kv", block_tokens=8)
    assert story.state(1).written == 4 and story.fold.declared.groups["kv"].block_tokens == 8
    story.write(0, 8, 1)
    assert story.runs(1) == [(0, 8)]


def test_more_groups_make_more_room_and_lose_nothing(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2)
    for i in range(5):
        story.declare(f"g{i}", "swa", table="kv")
    assert story.runs(1) == [(0, 4)] and story.runs(2) == [(4, 8)]
    story.write(0, 4, 2, group="g3")
    assert story.runs(2, "g3") == [(0, 4)] and story.runs(2) == [(4, 8)]


@pytest.mark.parametrize("size", [0, 1 << 31, 1 << 61])
@pytest.mark.parametrize("key", ["block_tokens", "ratio"])
def test_sizes_that_cannot_be_reckoned_with(story: Story, key: str, size: int) -> None:
    problem = story.refuse(
        "group", **{"group": "x", "form": "swa", "pool": "gpu", "block_tokens": 4, key: size}
    )
    assert problem is not None and key in problem.text
    assert "x" not in story.fold.declared.groups


# --- gaps ----------------------------------------------------------------------------------


def test_what_a_lost_event_may_have_touched_is_uncertain(story: Story) -> None:
    story.alloc(1, 2, actor="x").say("dropped", count=1, actor="x")
    assert story.state(1).uncertain
    story.alloc(1, actor="y")
    # Until the lane that lost something is seen, the gap may lie behind the alloc.
    assert story.state(1).uncertain
    story.say("retire", step=1, actor="x")
    assert story.state(1).uncertain and not story.fold.gaps
    story.alloc(1, actor="x")
    assert not story.state(1).uncertain and story.state(2).uncertain


def test_a_gap_of_one_pool(story: Story) -> None:
    story.say("pool", pool="cpu", medium="cpu", blocks=4)
    story.declare("far", pool="cpu")
    story.alloc(1).alloc(1, group="far").say("dropped", count=1, pool="cpu")
    assert story.state(1, "far").uncertain and not story.state(1).uncertain


def test_a_line_that_is_no_event_does_not_end_a_gap(story: Story) -> None:
    story.alloc(1).say("dropped", count=1, actor="sched").alloc(1, actor="other")
    story.pos += 1
    story.fold.apply(Event.of(story.pos, {"ev": "free"}))
    assert story.fold.gaps
    story.say("free", pool="gpu", blocks=[2])
    assert story.state(1).uncertain and not story.fold.gaps


def test_the_lane_of_an_access_without_actor(story: Story) -> None:
    story.alloc(1).say("dropped", count=1, actor="device").alloc(1)
    assert story.fold.gaps
    story.write(0, 4, 1, step=1)
    assert story.state(1).uncertain and not story.fold.gaps
    assert not story.alloc(1).state(1).uncertain


# --- what an event cannot mean -------------------------------------------------------------

IMPOSSIBLE: list[tuple[str, dict[str, Any], str]] = [
    ("alloc", {"blocks": [1], "group": "nobody"}, "group 'nobody' is not declared"),
    ("alloc", {"blocks": [1], "pool": "nowhere"}, "pool 'nowhere' is not declared"),
    ("alloc", {"blocks": [8], "group": "kv"}, "block 8 is beyond pool 'gpu'"),
    ("write", {"group": "kv", "blocks": [-1], "tokens": [0, 4]}, "block -1"),
    ("use", {"group": "kv", "blocks": [-1, 8]}, "block 8 is beyond"),
    ("free", {"blocks": [1]}, "names neither a group nor a pool"),
    ("free", {"blocks": [1], "pool": "gpu", "front": [9]}, "block 9"),
    ("zero", {"blocks": []}, "names neither"),
    ("copy", {"src": [1], "dst": [2]}, "names neither"),
    ("copy", {"src": [1], "dst": [2], "group": "kv", "dst_group": "x"}, "group 'x'"),
    ("copy", {"src": [1], "dst": [99], "group": "kv"}, "block 99"),
    ("store_begin", {"handle": "t", "group": "kv", "blocks": [1], "to": "x"}, "pool 'x'"),
    ("load_begin", {"handle": "t", "group": "kv", "blocks": [9]}, "block 9"),
    ("store_end", {"handle": "t"}, "never began"),
    ("remap", {"pool": "x", "map": {"1": 2}}, "pool 'x'"),
    ("group", {"group": "g", "form": "swa", "pool": "x", "block_tokens": 4}, "pool 'x'"),
    ("kernel", {"kernel": "k", "group": "g", "expects": {}}, "group 'g'"),
    ("select", {"group": "g", "req": "a", "entries": [1]}, "group 'g'"),
]


@pytest.mark.parametrize(("ev", "keys", "text"), IMPOSSIBLE)
def test_an_impossible_event_is_refused(
    story: Story, ev: str, keys: dict[str, Any], text: str
) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2)
    before = facts(story.fold, range(10))
    problem = story.refuse(ev, **keys)
    assert problem is not None and text in problem.text
    assert facts(story.fold, range(10)) == before and not story.fold.transfers


def test_padding_ids_may_be_read(story: Story) -> None:
    story.say("use", group="kv", blocks=[-1, 1, -1])
    assert story.state(1).last_touch == story.pos


def test_blocks_without_a_group_are_the_device_pools_where_there_is_one(story: Story) -> None:
    story.say("pool", pool="cpu", medium="cpu", blocks=4)
    story.say("pool", pool="none", medium="gpu", blocks=0)
    story.alloc(1).publish({1: "h"}).say("unpublish", blocks=[1])
    assert story.hit("h") == []
    story.say("pool", pool="gpu2", medium="gpu", blocks=4)
    assert story.refuse("unpublish", blocks=[1]) is not None


def test_keys_of_other_events_mean_nothing(story: Story) -> None:
    story.alloc(1, 2, owner=["b"], version="x", pad=True, hashes=7)
    story.write(0, 4, 1, pool="nowhere", owner="b")
    story.say("finish", req="c", group="nobody", blocks=[99])
    story.say("admit", req="c", group="nobody")
    assert story.state(1).written == 4 and story.state(1).owner == "a"


def test_a_transfer_has_one_name_however_it_is_written(story: Story) -> None:
    story.alloc(1).say("load_begin", handle=7, group="kv", blocks=[1], tokens=[0, 4])
    story.say("load_end", handle="7")
    assert story.state(1).written == 4


@given(st.integers(0, 1 << 30))
def test_what_is_refused_changes_nothing(seed: int) -> None:
    fold = Fold()
    events = [Event.of(pos, line) for pos, line in enumerate(hostile(seed, 30), 1)]
    blocks = named(events)
    for event in events:
        # The end of a gap is no matter of what the event says.
        before = None if fold.gaps else facts(fold, blocks)
        if fold.apply(event) is not None and before is not None:
            assert facts(fold, blocks) == before, event
