"""The needs table of the trace format, row by row: when a group can resume, and why it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.state.faults import Fault, Kind, Span
from hkvtool.state.needs import aligned, needed, pieces
from hkvtool.state.resume import group_faults, index_faults
from tests.state.stories import Story

Code = tuple[str, Span]


def faults(story: Story, blocks: list[int], at: int, group: str = "kv", reader: str = "b") -> Any:
    """What keeps `reader` from resuming at `at` with these blocks."""
    one = story.fold.declared.groups[group]
    number = story.fold.names.find("req", reader)
    return group_faults(story.fold, one, blocks, at, number)


def codes(story: Story, blocks: list[int], at: int, **keys: Any) -> list[Code]:
    return [(f.code, f.tokens) for f in faults(story, blocks, at, **keys)]


def hit(form: str = "compressed", tokens: int = 12, **keys: Any) -> Story:
    """A sequence of request a in blocks 1, 2, 3, published."""
    story = Story(form, **keys)
    story.alloc(1, 2, 3).write(0, tokens, 1, 2, 3)
    return story.publish({1: "h1", 2: "h2", 3: "h3"}, tokens=[0, tokens])


# --- which tokens are needed ---------------------------------------------------------------

NEEDED: list[tuple[str, dict[str, Any], int, list[Span]]] = [
    ("compressed", {}, 0, []),
    ("compressed", {}, 10, [(0, 10)]),
    ("compressed", {"ratio": 4}, 10, [(0, 8)]),
    ("compressed", {"ratio": 4}, 3, []),
    ("tail", {"ratio": 4}, 10, [(8, 10)]),
    ("tail", {"ratio": 4}, 8, []),
    ("tail", {"ratio": 4, "overlap": 4}, 10, [(4, 10)]),
    ("tail", {"ratio": 4, "overlap": 4}, 8, [(4, 8)]),
    ("tail", {"ratio": 4, "overlap": 4}, 2, [(0, 2)]),
    ("tail", {"serves": "main"}, 21, [(16, 21)]),
    ("swa", {"window": 6}, 4, [(0, 4)]),
    ("swa", {"window": 6}, 20, [(15, 20)]),
    ("swa", {"window": 6, "slack": 3}, 20, [(12, 20)]),
    ("swa", {"window": 1}, 20, []),
    ("swa", {"window": 8, "window_kind": "chunked"}, 20, [(16, 20)]),
    ("swa", {"window": 8, "window_kind": "chunked"}, 16, []),
    ("swa", {"window": 6, "sink": 2}, 20, [(0, 2), (15, 20)]),
    ("swa", {"window": 6, "sink": 2}, 6, [(0, 1), (1, 6)]),
    ("swa", {"window": 6, "sink": 2}, 4, [(0, 4)]),
    ("swa", {"window": 8, "window_kind": "chunked", "sink": 2}, 16, [(0, 2)]),
    ("swa", {"window": 6, "replayed": True}, 20, []),
    ("indexer", {"serves": "main"}, 21, [(0, 16)]),
    ("indexer", {}, 21, [(0, 21)]),
    ("recurrent", {}, 20, [(19, 20)]),
    ("recurrent", {}, 0, []),
]


@pytest.mark.parametrize(("form", "keys", "at", "spans"), NEEDED)
def test_what_is_needed(form: str, keys: dict[str, Any], at: int, spans: list[Span]) -> None:
    story = Story()
    story.declare("main", "compressed", block_tokens=8, ratio=8)
    group = story.declare("x", form, **keys)
    assert needed(story.fold, group, at) == spans


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 60))
def test_blocks_are_aligned_at_their_last_token(unit: int, blocks: int, at: int) -> None:
    group = Story().declare("x", block_tokens=unit)
    first = aligned(group, blocks, at)
    assert first % unit == 0 and first + (blocks - 1) * unit <= at - 1 < first + blocks * unit
    held = pieces(group, blocks, (0, at), at)
    assert len(held) == blocks and held[-1][1] == at
    assert [t for low, high in held for t in range(low, high)] == list(range(max(0, first), at))


# --- compressed ----------------------------------------------------------------------------


@pytest.mark.parametrize("at", [1, 4, 5, 11, 12])
def test_history_that_is_all_there(at: int) -> None:
    story = hit()
    assert faults(story, [1, 2, 3][: (at + 3) // 4], at) == []


def test_history_never_written() -> None:
    story = hit(tokens=10)
    assert codes(story, [1, 2, 3], 12) == [("HKV101", (8, 12))]
    story.alloc(4, 5)
    assert codes(story, [1, 4, 5], 12) == [("HKV101", (4, 8)), ("HKV101", (8, 12))]
    (first, _) = faults(story, [1, 4, 5], 12)
    assert first.waiting and first.kind is Kind.EMPTY


def test_history_with_a_block_missing() -> None:
    story = hit()
    assert codes(story, [2, 3], 12) == [("HKV102", (0, 4))]
    assert codes(story, [], 12) == [("HKV102", (0, 12))]
    # What they hold says that these are the first ones, and the last is left out.
    assert codes(story, [1, 2], 12) == [("HKV102", (8, 12))]
    # Null blocks and ids that are none count as left out.
    assert codes(story, [0, 2, 3], 12) == [("HKV102", (0, 4))]
    assert codes(story, [1, -1, 3], 12) == [("HKV102", (4, 8))]
    assert codes(story, [1, 2, 99], 12) == [("HKV102", (8, 12))]


def test_history_of_another_place() -> None:
    assert codes(hit(), [1, 3, 2], 12) == [("HKV102", (4, 8)), ("HKV102", (8, 12))]


def test_an_early_hash() -> None:
    story = hit()
    story.alloc(4).publish({4: "h4"}, tokens=[12, 16])
    (fault,) = faults(story, [1, 2, 3, 4], 16)
    assert (fault.code, fault.kind, fault.waiting) == ("HKV103", Kind.PROMISED, True)
    story.write(12, 16, 4)
    assert faults(story, [1, 2, 3, 4], 16) == []


def test_a_block_that_was_allocated_again() -> None:
    story = hit()
    story.alloc(2, req="c").write(4, 8, 2, req="c")
    assert codes(story, [1, 2, 3], 12) == [("HKV105", (4, 8))]
    # Its owner knows what it wrote; no hash led it there.
    assert faults(story, [1, 2, 3], 12, reader="c") == []


def test_a_block_that_another_sequence_rewrote() -> None:
    story = hit()
    story.write(5, 6, 2, req="c")
    (fault,) = faults(story, [1, 2, 3], 12)
    assert (fault.code, fault.kind) == ("HKV105", Kind.REWRITTEN)


def test_older_weights() -> None:
    story = hit()
    story.say("weights", version=2)
    assert codes(story, [1], 4) == [("HKV105", (0, 4))]
    story.alloc(5, req="b").write(4, 8, 5, req="b")
    assert codes(story, [1, 5], 8) == [("HKV105", (0, 4))]


def test_another_version_than_was_published() -> None:
    story = Story()
    story.alloc(1).write(0, 4, 1, version=2).publish({1: "h"}, tokens=[0, 4], version=1)
    assert codes(story, [1], 4) == [("HKV301", (0, 4))]


def test_rejected_tokens() -> None:
    story = hit()
    story.say("rollback", req="a", to=10).write(10, 12, 3)
    (fault,) = faults(story, [1, 2, 3], 12)
    assert (fault.code, fault.kind) == ("HKV105", Kind.REJECTED)
    assert faults(story, [1, 2], 8) == []


def test_a_load_that_has_not_ended() -> None:
    story = hit()
    story.say("load_begin", handle="l", group="kv", blocks=[2], tokens=[4, 8])
    (fault,) = faults(story, [1, 2, 3], 12)
    assert (fault.code, fault.waiting) == ("HKV305", True)
    story.say("load_end", handle="l")
    assert faults(story, [1, 2, 3], 12) == []


def test_a_block_of_another_table() -> None:
    story = hit()
    story.declare("w", "swa", window=8)
    story.alloc(4, group="w").write(0, 4, 4, group="w")
    assert codes(story, [4, 2, 3], 12) == [("HKV601", (0, 4))]


def test_nothing_is_said_of_what_nobody_described() -> None:
    story = Story()
    assert faults(story, [1, 2, 3], 12) == []
    story.alloc(1).say("dropped", count=1, actor="x")
    assert faults(story, [1], 4) == []
    # Until the lane that lost something is seen again, more of it may be missing.
    story.say("signal", event="e", actor="x")
    story.say("state", pool="gpu", blocks=[2], refs=[1], written=[2], groups=["kv"])
    # A count says which slots are filled, whichever tokens they are of.
    assert faults(story, [2], 2) == [] and codes(story, [2], 4) == [("HKV101", (0, 4))]


@pytest.mark.parametrize("before", [False, True])
def test_who_fills_a_block_that_a_snapshot_names_is_not_another(before: bool) -> None:
    story = Story()
    if before:
        story.alloc(2, req="b").write(0, 1, 2, req="b")
    story.say("state", pool="gpu", blocks=[2], refs=[1], owners=["a"], groups=["kv"])
    # Its hash comes with the step's plan, before the step writes the last of its tokens.
    story.publish({2: "h"}, tokens=[0, 4], req="a").write(3, 4, 2)
    assert faults(story, [2], 4) == []
    assert codes(story.write(0, 4, 2, req="b"), [2], 4) == [("HKV105", (0, 4))]


def test_entries_of_several_tokens() -> None:
    story = Story(ratio=4)
    story.alloc(1, 2, 3).write(0, 8, 1, 2)
    # The open unit is the tail's: only whole entries are needed.
    assert faults(story, [1, 2, 3], 11) == []
    assert codes(story, [1, 2, 3], 12) == [("HKV101", (8, 12))]


def test_a_resume_far_behind_its_blocks_is_judged_at_once() -> None:
    assert codes(hit(), [1, 2, 3], 1 << 60) == [("HKV102", (12, 1 << 60))]
    assert codes(hit(), [2, 3], 1 << 60) == [("HKV102", (0, (1 << 60) - 8)), *[
        ("HKV102", ((1 << 60) - 8 + 4 * i, (1 << 60) - 4 + 4 * i)) for i in range(2)
    ]]  # fmt: skip


# --- tail ----------------------------------------------------------------------------------


def tail(**keys: Any) -> Story:
    story = Story(block_tokens=8, ratio=8)
    story.declare("tail", "tail", serves="kv", **keys)
    return story


def test_a_tail_holds_the_open_unit() -> None:
    story = tail()
    story.alloc(4, 5, group="tail", tokens=[8, 16]).write(8, 15, 4, 5, group="tail")
    assert faults(story, [4, 5], 15, group="tail") == []
    assert faults(story, [5], 8, group="tail") == []
    assert codes(story, [4], 12, group="tail") == []
    assert codes(story, [5], 15, group="tail") == [("HKV302", (8, 12))]
    assert codes(story, [4, 5], 16 + 3, group="tail") == [("HKV302", (16, 19))]
    assert codes(story, [], 15, group="tail") == [("HKV302", (8, 15))]


def test_a_tail_needs_its_overlap() -> None:
    story = tail(overlap=4)
    story.alloc(4, group="tail", tokens=[8, 12]).write(8, 11, 4, group="tail")
    assert codes(story, [4], 11, group="tail") == [("HKV302", (4, 8))]
    story.alloc(5, group="tail", tokens=[4, 8]).write(4, 8, 5, group="tail")
    assert faults(story, [5, 4], 11, group="tail") == []
    # At a boundary the overlap alone is needed.
    assert faults(story, [5], 8, group="tail") == []


# --- sliding windows -----------------------------------------------------------------------


def window(tokens: int = 20, **keys: Any) -> Story:
    """A ring of three blocks."""
    story = Story()
    story.declare("w", "swa", **{"window": 6, **keys})
    return story.alloc(1, 2, 3, group="w").write(0, tokens, 1, 2, 3, group="w")


def test_a_window_in_whatever_order_its_ring_stands() -> None:
    story = window()
    assert [story.runs(b, "w") for b in (1, 2, 3)] == [[(12, 16)], [(16, 20)], [(8, 12)]]
    for blocks in ([1, 2, 3], [3, 1, 2], [1, 2]):
        assert faults(story, blocks, 20, group="w") == []


def test_a_window_that_lacks_a_block() -> None:
    assert codes(window(), [3, 2], 20, group="w") == [("HKV303", (15, 16))]
    assert codes(window(), [], 20, group="w") == [("HKV303", (15, 20))]
    assert faults(window(slack=3), [1, 2], 20, group="w") == []
    assert codes(window(slack=4), [1, 2], 20, group="w") == [("HKV303", (11, 12))]


def test_a_window_that_was_overwritten() -> None:
    story = window()
    story.write(20, 26, 3, 1, group="w")
    # Tokens 24 and 25 took the slots of 12 and 13: the window of 20 starts at 15.
    assert faults(story, [1, 2, 3], 20, group="w") == []
    story.write(26, 28, 1, group="w")
    assert codes(story, [1, 2, 3], 20, group="w") == [("HKV303", (15, 16))]


def test_a_window_written_in_part() -> None:
    story = window(tokens=19)
    (fault,) = faults(story, [1, 2, 3], 20, group="w")
    assert (fault.code, fault.tokens, fault.kind) == ("HKV101", (19, 20), Kind.SHORT)


def test_a_chunk_needs_only_itself() -> None:
    story = window(window=8, window_kind="chunked")
    assert faults(story, [2], 20, group="w") == []
    assert faults(story, [], 24, group="w") == []
    assert codes(story, [1], 19, group="w") == [("HKV303", (16, 19))]


def test_the_first_tokens_too() -> None:
    story = Story()
    story.declare("w", "swa", window=6, sink=4)
    story.alloc(1, 2, 3, 4, 5, group="w").write(0, 20, 1, 2, 3, 4, 5, group="w")
    assert faults(story, [1, 4, 5], 20, group="w") == []
    assert codes(story, [4, 5], 20, group="w") == [("HKV303", (0, 4))]


def test_a_window_that_is_replayed_needs_nothing() -> None:
    assert faults(window(replayed=True), [], 20, group="w") == []


def test_a_window_block_of_a_later_generation() -> None:
    story = window()
    story.publish({1: "h"}, group="w", tokens=[12, 16]).alloc(1, group="w", req="c")
    assert codes(story, [1, 2], 20, group="w") == [("HKV105", (15, 16))]


def test_a_window_that_may_stand_in_a_block_nobody_described() -> None:
    story = window()
    assert faults(story, [7, 2], 20, group="w") == []


# --- recurrent -----------------------------------------------------------------------------


def test_a_state_at_exactly_the_token() -> None:
    story = Story("recurrent")
    story.alloc(1).write(0, 10, 1)
    assert faults(story, [1], 10) == []
    assert codes(story, [1], 9) == [("HKV306", (8, 9))]
    assert codes(story, [], 10) == [("HKV306", (9, 10))]
    assert codes(story, [0], 10) == [("HKV306", (9, 10))]
    # Only the last block is read.
    story.alloc(2)
    assert faults(story, [2, 1], 10) == []
    assert codes(story, [1, 2], 10) == [("HKV306", (9, 10))]


def test_a_state_of_older_weights() -> None:
    story = Story("recurrent")
    story.alloc(1).write(0, 4, 1).say("weights", version=2)
    assert codes(story, [1], 4) == [("HKV105", (3, 4))]


# --- indexer -------------------------------------------------------------------------------


def indexed() -> Story:
    story = hit(tokens=8)
    story.declare("ix", "indexer", table="kv", serves="kv")
    story.say("index", group="ix", blocks=[1, 2], version=1, kv_version=1, tokens=[0, 8])
    return story


def index(story: Story, blocks: list[int]) -> list[Fault]:
    groups = story.fold.declared.groups
    return index_faults(story.fold, groups["ix"], groups["kv"], blocks, blocks)


def test_rows_of_the_version_they_route_to() -> None:
    story = indexed()
    assert faults(story, [1, 2], 8, group="ix") == [] and index(story, [1, 2]) == []
    story.write(7, 8, 2)
    (fault,) = index(story, [1, 2])
    assert (fault.code, fault.slot) == ("HKV304", story.slot(2))
    story.say("index", group="ix", blocks=[2], version=2, kv_version=2, tokens=[7, 8])
    assert index(story, [1, 2]) == []


def test_rows_that_are_missing() -> None:
    story = indexed()
    story.alloc(4).write(8, 12, 4)
    assert codes(story, [1, 2, 4], 12, group="ix") == [("HKV304", (8, 12))]
    # Versions are compared where both sides hold something.
    assert index(story, [1, 2, 4]) == []
