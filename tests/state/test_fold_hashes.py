"""Which hashes lead to which block, of which generation and version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.rows import MISSING
from hkvtool.state import arrays as a
from hkvtool.state.hashes import forget_dead
from tests.state.fold_facts import facts
from tests.state.stories import Story


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_published_block_has_its_version(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2).publish({1: "h1", 2: "h2"}, tokens=[0, 8])
    assert (story.hit("h1"), story.hit("h2"), story.hit("h3")) == ([1], [2], [])
    first = story.state(1)
    assert (first.published, first.recoverable, story.of(1, "pver")) == ("h1", True, 1)


def test_a_hash_before_the_write_waits_for_it(story: Story) -> None:
    story.alloc(1).publish({1: "h"}, tokens=[0, 4])
    assert story.of(1, "pver") == a.PENDING and story.state(1).why_not == "HKV103"
    story.write(0, 3, 1)
    assert story.of(1, "pver") == a.PENDING
    story.write(3, 4, 1)
    # It takes the version of the write that fills the block.
    assert story.of(1, "pver") == 2 and story.state(1).recoverable


def test_an_early_hash_of_part_of_a_block_waits_for_that_part(story: Story) -> None:
    story.alloc(1).publish({1: "h"}, tokens=[0, 2]).write(0, 2, 1)
    assert story.of(1, "pver") == 1
    # Appending behind a partial entry is no change of it.
    story.write(2, 4, 1, req="b")
    assert story.of(1, "pver") == 2 and story.state(1).recoverable


def test_an_early_hash_of_a_state_takes_the_first_state_at_its_end() -> None:
    story = Story("recurrent")
    story.alloc(1).publish({1: "h"}, tokens=[0, 4]).write(0, 3, 1)
    assert story.of(1, "pver") == a.PENDING
    story.write(3, 5, 1)
    assert story.of(1, "pver") == a.PENDING
    story.write(0, 4, 1)
    assert story.of(1, "pver") == 3 and story.state(1).recoverable


def test_the_last_of_several_states_ends_where_the_hash_does() -> None:
    story = Story("recurrent")
    story.alloc(1, 2).write(0, 8, 1, 2).publish({1: "h1", 2: "h2"}, tokens=[0, 8])
    assert [story.of(b, "pub_hi") for b in (1, 2)] == [4, 8]
    # One block for all of them: it is the last state that stays.
    story.alloc(3).write(0, 8, 3).publish({3: "h3"}, tokens=[0, 8])
    assert story.of(3, "pub_hi") == 8 and story.state(3).recoverable


def test_an_entry_remembers_when_and_up_to_where(story: Story) -> None:
    story.alloc(1).write(0, 4, 1).publish({1: "h"}, tokens=[0, 3])
    arrays, entry = story.fold.st, story.fold.st.first_entry[story.slot(1)]
    assert (arrays.e_pos[entry], arrays.e_hi[entry]) == (story.pos, 3)
    assert (arrays.e_gen[entry], arrays.e_epoch[entry], arrays.e_table[entry]) == (1, 0, 0)


def test_a_hash_says_which_table_a_block_is_of(story: Story) -> None:
    w = story.declare("w", "swa", window=8)
    story.publish({3: "h"}, group="w").publish({3: "i"})
    assert story.of(3, "table") == w.table_id


def test_a_write_by_another_changes_what_was_published(story: Story) -> None:
    story.alloc(1).write(0, 4, 1).publish({1: "h"}, tokens=[0, 4])
    story.write(3, 4, 1, req="a")
    assert story.of(1, "pver") == 2 and story.state(1).recoverable
    story.write(2, 3, 1, req="b")
    assert (story.of(1, "pver"), story.of(1, "ver")) == (2, 3)
    assert story.state(1).why_not == "HKV105"


def test_a_stated_version_is_what_was_published(story: Story) -> None:
    story.alloc(1).write(0, 4, 1, version=3).publish({1: "h"}, tokens=[0, 4], version=2)
    assert story.state(1).why_not == "HKV301"


def test_a_hash_outlives_its_generation_until_it_is_withdrawn(story: Story) -> None:
    story.alloc(1).write(0, 4, 1).publish({1: "h"}).alloc(1, req="b").write(0, 4, 1, req="b")
    assert story.hit("h") == [1] and story.state(1).why_not == "HKV105"
    story.say("unpublish", hashes=["h"], reason="evict")
    assert story.hit("h") == [] and story.state(1).recoverable


def test_where_a_hash_without_tokens_ends(story: Story) -> None:
    story.alloc(1, 2, 3).write(0, 7, 1, 2).publish({1: "h", 2: "i", 3: "j", 5: "k"})
    assert [story.of(b, "pub_hi") for b in (1, 2, 3)] == [4, 8, 12]
    assert story.of(2, "pver") == a.PENDING
    assert story.of(5, "pub_hi") == MISSING


def test_one_hash_may_lead_to_several_blocks_and_several_to_one(story: Story) -> None:
    story.alloc(1, 2).write(0, 4, 1).publish({1: "h"}).publish({2: "h"}).publish({1: "i"})
    assert story.hit("h") == [2, 1] and story.state(1).published == "i"
    assert story.of(1, "live") == 2
    story.say("unpublish", group="kv", blocks=[1], hashes=["h"])
    assert story.hit("h") == [2] and story.hit("i") == [1]


def test_unpublish_by_block_by_hash_and_by_table(story: Story) -> None:
    story.declare("w", "swa", window=8)
    story.alloc(1, 2, 3)
    story.publish({1: "h", 2: "i"}).publish({1: "i", 3: "h"}, group="w")
    story.say("unpublish", group="kv", blocks=[1])
    assert story.hit("h") == [3] and story.hit("i") == [1, 2]
    story.say("unpublish", group="w", hashes=["i"])
    assert story.hit("i") == [2]
    story.say("unpublish", blocks=[2, 3])
    assert story.hit("i") == story.hit("h") == []


@pytest.mark.parametrize(
    "keys",
    [{"hashes": ["i"]}, {"group": "kv", "blocks": [1], "hashes": ["i"]}],
    ids=["by hash", "by pair"],
)
def test_a_chain_starts_with_a_live_hash(story: Story, keys: dict[str, Any]) -> None:
    story.alloc(1).publish({1: "h"}).publish({1: "i"}).say("unpublish", **keys)
    arrays, slot = story.fold.st, story.slot(1)
    assert arrays.e_live[arrays.first_entry[slot]] == 1 and story.state(1).published == "h"
    assert story.state(1).last_touch == story.pos
    story.say("reset")
    assert arrays.first_entry[slot] == -1


def test_lists_of_two_lengths_name_blocks(story: Story) -> None:
    story.alloc(1, 2).publish({1: "h", 2: "i"})
    story.say("unpublish", group="kv", blocks=[1, 2], hashes=["h"])
    assert story.hit("h") == story.hit("i") == []


def test_a_reset_is_of_one_pool_or_of_all(story: Story) -> None:
    story.say("pool", pool="cpu", medium="cpu", blocks=4)
    story.declare("far", pool="cpu")
    story.alloc(1).alloc(1, group="far").publish({1: "h"}).publish({1: "h"}, group="far")
    assert story.hit("h") == [1, 1]
    story.say("reset", pool="cpu")
    assert story.hit("h") == [1] and story.of(1, "live", "far") == 0
    story.say("reset")
    assert story.hit("h") == [] and story.of(1, "live") == 0


def test_a_hash_holds_for_all_groups_of_the_table(story: Story) -> None:
    story.declare("ix", "indexer", table="kv", serves="kv")
    story.declare("w", "swa", window=8)
    story.alloc(1).write(0, 4, 1).publish({1: "h"}, tokens=[0, 4])
    assert story.of(1, "pver") == 1 and story.of(1, "pver", "ix") == a.PENDING
    assert story.state(1, "ix").why_not == "HKV103"
    # Another table shares the pool; no hash of its own promises anything there.
    assert story.state(1, "w").why_not == "HKV601"


def test_a_group_declared_later_was_not_published(story: Story) -> None:
    story.alloc(1).publish({1: "h"})
    story.declare("ix", "indexer", table="kv", serves="kv")
    assert story.of(1, "pver", "ix") == -1 and story.of(1, "pver") == a.PENDING


NAMES = st.sampled_from(["h0", "h1", "h2"])
BLOCK = st.integers(1, 3)
PUBLISH = st.tuples(st.just("publish"), BLOCK, NAMES)
OPS = st.lists(
    st.one_of(
        *[PUBLISH] * 6,
        st.tuples(st.just("pair"), BLOCK, NAMES),
        st.tuples(st.just("block"), BLOCK, st.none()),
        st.tuples(st.just("hash"), st.none(), NAMES),
        st.tuples(st.just("reset"), st.none(), st.none()),
        st.tuples(st.just("alloc"), BLOCK, st.none()),
    ),
    min_size=6,
    max_size=30,
)


def publishing(
    ops: list[tuple[str, int, str]], forget: bool
) -> tuple[Story, list[tuple[str, int]]]:
    """A story of hashes, and the live ones of a plain list of pairs, the latest last."""
    story = Story()
    live: list[tuple[str, int]] = []
    for op, block, name in ops:
        if op == "publish":
            story.publish({block: name})
            live.append((name, block))
        elif op == "pair":
            story.say("unpublish", group="kv", blocks=[block], hashes=[name])
            live = [pair for pair in live if pair != (name, block)]
        elif op == "block":
            story.say("unpublish", group="kv", blocks=[block])
            live = [pair for pair in live if pair[1] != block]
        elif op == "hash":
            story.say("unpublish", hashes=[name])
            live = [pair for pair in live if pair[0] != name]
        elif op == "reset":
            story.say("reset")
            live = []
        else:
            story.alloc(block)
        if forget:
            forget_dead(story.fold.st)
            assert story.fold.st.h[a.ENTRIES] == len(live)
    return story, live


@given(OPS)
def test_live_hashes_are_a_list_of_pairs(ops: list[tuple[str, int, str]]) -> None:
    story, live = publishing(ops, forget=False)
    for name in ("h0", "h1", "h2"):
        assert story.hit(name) == [block for other, block in reversed(live) if other == name]
    assert story.fold.st.h[a.LIVE] == len(live)
    for block in {block for _, block in live}:
        assert story.of(block, "live") == sum(other == block for _, other in live)
        assert story.state(block).published == [n for n, other in live if other == block][-1]


@given(OPS)
def test_forgetting_dead_hashes_changes_nothing(ops: list[tuple[str, int, str]]) -> None:
    one, _ = publishing(ops, forget=False)
    other, _ = publishing(ops, forget=True)
    assert facts(one.fold, range(8)) == facts(other.fold, range(8))


def test_dead_hashes_are_forgotten_as_a_trace_goes_on(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.state.fold.FEW", 4)
    for i in range(100):
        story.publish({1: f"h{i}"}).say("unpublish", group="kv", blocks=[1])
    assert len(story.fold.st.e_hash) < 20
