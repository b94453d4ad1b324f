"""`state` events: what held when a recording began or went on."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.state import arrays as a
from tests.state.fold_facts import facts
from tests.state.stories import Story


@pytest.fixture
def story() -> Story:
    return Story()


def snapshot(story: Story, **keys: Any) -> Story:
    return story.say("state", pool="gpu", **keys)


def test_a_block_is_known_once_its_references_are(story: Story) -> None:
    snapshot(story, blocks=[1, 2], written=[4, 4])
    assert story.state(1).uncertain
    snapshot(story, blocks=[1, 2], refs=[2, 0], gens=[7, 3], owners=["a", None])
    assert not story.state(1).uncertain
    assert (story.state(1).ref_count, story.state(1).generation) == (2, 7)
    assert story.state(1).owner == "a" and story.owned("a") == [1]
    assert story.free() == [2]
    story.alloc(2, req="b")
    assert story.state(2).generation == 4 and story.free() == []


def test_blocks_without_generation_are_in_their_first(story: Story) -> None:
    snapshot(story, blocks=[1], refs=[1])
    assert story.state(1).generation == 1
    story.alloc(1)
    snapshot(story, blocks=[1], refs=[1])
    assert story.state(1).generation == 2


def test_written_slots_are_counted_from_the_start_of_the_block(story: Story) -> None:
    snapshot(story, blocks=[1, 2, 3], refs=[1] * 3, written=[4, 2, 0], groups=["kv"] * 3)
    assert [story.of(b, "vague") for b in (1, 2, 3)] == [a.COUNTED, a.COUNTED, 0]
    assert [story.state(b).written for b in (1, 2, 3)] == [4, 2, 0]
    # The first write behind says which tokens they are.
    story.write(6, 7, 2)
    assert story.runs(2) == [(4, 7)]


def test_content_of_no_stated_count_or_group_is_vague(story: Story) -> None:
    snapshot(story, blocks=[1], refs=[1])
    snapshot(story, blocks=[2], refs=[1], written=[2])
    assert [story.of(b, "vague") for b in (1, 2)] == [a.VAGUE, a.VAGUE]
    assert story.state(2).why_not is None


def test_a_tail_or_a_state_is_never_counted() -> None:
    for form in ("tail", "recurrent"):
        story = Story(form)
        snapshot(story, blocks=[1], refs=[1], written=[2], groups=["kv"])
        assert story.of(1, "vague") == a.VAGUE


def test_what_was_known_of_the_tokens_is_replaced(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2)
    snapshot(story, blocks=[1, 2], gens=[1, 1], refs=[1, 1], written=[0, 3], groups=["kv", "kv"])
    assert story.state(1).written == 0 and story.of(1, "cid") == 0
    assert story.of(2, "hi") == 3 and story.of(2, "vague") == a.COUNTED


def test_the_group_is_the_table_a_block_is_of(story: Story) -> None:
    w = story.declare("w", "swa", window=8)
    snapshot(story, blocks=[1, 2], refs=[1, 1], groups=["w", None])
    assert [story.of(b, "table") for b in (1, 2)] == [w.table_id, -1]
    assert story.state(1).why_not == "HKV601"


def test_content_is_of_the_present_weights(story: Story) -> None:
    story.say("weights", version=2)
    snapshot(story, blocks=[1], refs=[1], written=[4], groups=["kv"])
    assert story.state(1).recoverable
    story.say("weights", version=3)
    assert story.state(1).why_not == "HKV105"


def test_versions(story: Story) -> None:
    snapshot(story, blocks=[1], refs=[1], written=[4], groups=["kv"], versions=[5])
    assert story.state(1).version == 5
    story.write(3, 4, 1)
    assert story.state(1).version == 6


def test_hashes_are_those_that_lead_there_and_no_others(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2).publish({1: "h", 2: "i"}).publish({1: "j"})
    snapshot(story, blocks=[1, 2], gens=[1, 1], refs=[1, 1], hashes=[["h", "k"], None])
    assert story.hit("h") == [1] and story.hit("k") == [1]
    assert story.hit("i") == story.hit("j") == []
    assert story.of(1, "live") == 2
    assert story.fold.st.first_entry[story.slot(2)] == -1
    # What is said again is no second entry.
    snapshot(story, blocks=[1], gens=[1], hashes=["h"])
    assert story.of(1, "live") == 1 and story.state(1).published == "h"


def test_a_hash_of_an_earlier_generation_is_said_anew(story: Story) -> None:
    story.alloc(1).publish({1: "h"})
    snapshot(story, blocks=[1], gens=[5], hashes=["h"], written=[4], refs=[1], groups=["kv"])
    assert story.hit("h") == [1] and story.state(1).recoverable


def test_whether_hashes_were_told(story: Story) -> None:
    snapshot(story, blocks=[1], refs=[0])
    snapshot(story, blocks=[2], refs=[0], hashes=[None])
    assert [story.fold.hashes_known(story.slot(b)) for b in (1, 2)] == [False, True]
    story.alloc(1)
    assert story.fold.hashes_known(story.slot(1))


def test_the_free_order_is_as_told(story: Story) -> None:
    snapshot(story, blocks=[1, 2, 3, 4], refs=[0, 0, 1, 0], free_order=[4, 1, 3])
    # Block 3 is held, and block 2 was not named: it is reused after those.
    assert story.free() == [4, 1, 2]
    snapshot(story, blocks=[], free_order=[2])
    assert story.free() == [2, 4, 1] and story.state(2).last_touch == story.pos


def test_a_snapshot_settles_doubt(story: Story) -> None:
    story.alloc(1, 2).say("dropped", count=3)
    assert story.state(1).uncertain
    snapshot(story, blocks=[1], refs=[1])
    assert not story.state(1).uncertain and story.state(2).uncertain


BAD = [
    ({"blocks": [1, 2], "refs": [1]}, "1 refs for 2 blocks"),
    ({"blocks": [1, 8]}, "block 8 is beyond"),
    ({"blocks": [1, -1]}, "block -1 is beyond"),
    ({"blocks": [1], "hashes": [{"a": 1}]}, "in `hashes` is no name"),
    ({"blocks": [1], "hashes": [["h", 1.5]]}, "1.5 in `hashes`"),
    ({"blocks": [1], "owners": [True]}, "True in `owners`"),
    ({"blocks": [1], "owners": [["a"]]}, "in `owners`"),
    ({"blocks": [1], "groups": [{}]}, "in `groups`"),
]


@pytest.mark.parametrize(("keys", "text"), BAD, ids=[text for _, text in BAD])
def test_one_that_is_impossible_changes_nothing(
    story: Story, keys: dict[str, Any], text: str
) -> None:
    story.alloc(1)
    before = facts(story.fold, range(8))
    problem = story.refuse("state", pool="gpu", **keys)
    assert problem is not None and text in problem.text
    assert facts(story.fold, range(8)) == before
