"""Transfers: what the source held comes along, when it ends well and where it still fits."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.state import arrays as a
from tests.state.stories import Story


@pytest.fixture
def story() -> Story:
    """A device pool and a host pool, each with the same two groups."""
    story = Story()
    story.declare("w", "swa", window=8)
    story.say("pool", pool="cpu", medium="cpu", blocks=8)
    for group, form in (("kv.cpu", "compressed"), ("w.cpu", "swa")):
        story.declare(group, form, pool="cpu", participates=False)
    return story


def store(story: Story, near: list[int], far: list[int], handle: str = "s", **keys: Any) -> Story:
    keys = {"group": "kv", "to": "cpu", **keys}
    return story.say("store_begin", handle=handle, blocks=near, peer=far, **keys)


def load(story: Story, near: list[int], far: list[int], handle: str = "l", **keys: Any) -> Story:
    keys = {"group": "kv", "from": "cpu", **keys}
    return story.say("load_begin", handle=handle, blocks=near, peer=far, **keys)


def test_a_store_and_a_load_bring_the_content_along(story: Story) -> None:
    story.alloc(1, 2).write(0, 7, 1, 2, version=6)
    store(story, [1, 2], [4, 5]).say("store_end", handle="s")
    there = story.state(5, "kv.cpu")
    assert (there.tokens, there.version, str(there.form)) == ((4, 7), 6, "on_disk")
    story.alloc(3, 6, req="b")
    load(story, [3, 6], [4, 5])
    waiting = story.state(3)
    assert (waiting.residency, waiting.why_not, waiting.written) == ("recovering", "HKV305", 0)
    story.say("load_end", handle="l")
    back = story.state(6)
    assert (back.tokens, back.version, back.residency) == ((4, 7), 6, "resident")
    assert story.of(6, "cid") == story.of(2, "cid")


def test_the_content_is_what_it_was_at_the_begin(story: Story) -> None:
    story.alloc(1).write(0, 2, 1)
    store(story, [1], [4])
    story.write(2, 4, 1).say("store_end", handle="s")
    assert story.runs(4, "kv.cpu") == [(0, 2)] and story.runs(1) == [(0, 4)]


def test_each_group_goes_to_its_mirror(story: Story) -> None:
    story.alloc(1, group="w").write(0, 4, 1, group="w")
    store(story, [1], [4], group="w").say("store_end", handle="s")
    assert story.runs(4, "w.cpu") == [(0, 4)] and story.runs(4, "kv.cpu") == []


def test_an_end_that_failed_brings_nothing(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2)
    store(story, [1, 2], [4, 5]).say("store_end", handle="s", ok=False)
    assert story.state(4, "kv.cpu").written == 0
    store(story, [1, 2], [4, 5], "t").say("store_end", handle="t")
    story.alloc(3, 6, req="b")
    load(story, [3, 6], [4, 5]).say("load_end", handle="l", ok=False)
    assert [story.state(b).written for b in (3, 6)] == [0, 0]
    assert [story.of(b, "loads") for b in (3, 6)] == [0, 0]


def test_blocks_that_failed_are_not_there_and_the_others_are(story: Story) -> None:
    story.alloc(1, 2).write(0, 8, 1, 2)
    store(story, [1, 2], [4, 5]).say("store_end", handle="s")
    story.alloc(3, 6, req="b")
    load(story, [3, 6], [4, 5]).say("load_end", handle="l", ok=False, failed=[3])
    assert [story.state(b).written for b in (3, 6)] == [0, 4]
    assert story.state(3).why_not == "HKV101"


def test_a_destination_that_changed_hands_keeps_what_it_holds(story: Story) -> None:
    story.alloc(1).write(0, 4, 1)
    store(story, [1], [4]).say("store_end", handle="s")
    story.alloc(3, req="b")
    load(story, [3], [4])
    story.alloc(3, req="c")
    assert story.of(3, "loads") == 0
    story.write(8, 12, 3, req="c").say("load_end", handle="l")
    assert story.runs(3) == [(8, 12)] and story.state(3).generation == 2


def test_a_host_block_that_changed_hands_is_not_written(story: Story) -> None:
    story.alloc(1).write(0, 4, 1).alloc(4, group="kv.cpu")
    store(story, [1], [4])
    story.alloc(4, group="kv.cpu", req="b").say("store_end", handle="s")
    assert story.state(4, "kv.cpu").written == 0


def test_two_loads_into_one_block_are_two_to_wait_for(story: Story) -> None:
    story.alloc(1).write(0, 4, 1)
    store(story, [1], [4]).say("store_end", handle="s").alloc(3, req="b")
    load(story, [3], [4], "l1", part="layer0")
    load(story, [3], [4], "l2", part="layer1")
    story.say("load_end", handle="l1")
    assert story.state(3).why_not == "HKV305"
    story.say("load_end", handle="l2")
    assert story.state(3).recoverable


def test_an_end_counts_once(story: Story) -> None:
    story.alloc(1, 2).write(0, 4, 1)
    load(story, [2], [4], "l1")
    load(story, [2], [4], "l2")
    story.say("load_end", handle="l1").say("load_end", handle="l1")
    assert story.of(2, "loads") == 1
    assert story.fold.st.h[a.MOVING] == 1


def test_an_end_without_begin_is_refused(story: Story) -> None:
    problem = story.refuse("load_end", handle="nobody")
    assert problem is not None and problem.midway and "never began" in problem.text


@pytest.mark.parametrize(
    ("keys", "runs"),
    [({"tokens": [0, 7]}, [[(0, 4)], [(4, 7)]]), ({}, [[(0, 4)], [(4, 8)]])],
    ids=["stated", "allocated"],
)
def test_a_peer_nobody_described_holds_what_the_transfer_says(
    story: Story, keys: dict[str, Any], runs: list[Any]
) -> None:
    story.alloc(1, 2)
    load(story, [1, 2], [6, 7], version=3, **keys).say("load_end", handle="l")
    assert [story.runs(b) for b in (1, 2)] == runs
    assert story.state(1).version == 3 and story.state(1).recoverable


def test_a_peer_that_is_known_to_be_empty_brings_nothing(story: Story) -> None:
    story.alloc(1).alloc(6, group="kv.cpu")
    load(story, [1], [6], tokens=[0, 4]).say("load_end", handle="l")
    assert story.state(1).written == 0


def test_a_load_from_nowhere_said(story: Story) -> None:
    story.alloc(1).say("load_begin", handle="l", group="kv", blocks=[1], tokens=[0, 4])
    story.say("load_end", handle="l")
    assert story.runs(1) == [(0, 4)]


def test_states_travel_by_the_token_they_stand_for() -> None:
    story = Story("recurrent")
    story.say("pool", pool="far", medium="remote", blocks=8).alloc(1, 2)
    story.say(
        "load_begin", handle="l", group="kv", blocks=[1, 2], peer=[3, 4], tokens=[0, 8],
        **{"from": "far"},
    )  # fmt: skip
    story.say("load_end", handle="l")
    assert [story.runs(b) for b in (1, 2)] == [[(3, 4)], [(7, 8)]]


def test_an_early_hash_takes_the_version_that_was_loaded(story: Story) -> None:
    story.alloc(1).write(0, 4, 1, version=2)
    store(story, [1], [4]).say("store_end", handle="s")
    story.alloc(3, req="b").publish({3: "h"}, tokens=[0, 4])
    load(story, [3], [4])
    assert story.of(3, "pver") == a.PENDING
    story.say("load_end", handle="l")
    assert story.of(3, "pver") == 2 and story.state(3).recoverable


def test_what_transfers_captured_is_forgotten_as_a_trace_goes_on(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.state.fold.FEW", 2)
    story.alloc(1, 2, 3).write(0, 12, 1, 2, 3)
    store(story, [3], [7], "first")
    for i in range(60):
        store(story, [1, 2], [4, 5], f"s{i}").say("store_end", handle=f"s{i}")
    assert len(story.fold.st.arena) < 12 * a.RECORD
    # One that never ended in between brings what it captured.
    story.say("store_end", handle="first")
    assert story.runs(7, "kv.cpu") == [(8, 12)]
