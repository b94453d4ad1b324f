"""The allocator by hand: what each call does, and what it tells."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.engine.allocator import HybridAllocator, runs
from hkvtool.engine.geometry import Preset, Work
from hkvtool.model.forms import Form

from .tiny import COMPRESSING, PLAIN, RECURRENT, WINDOWED, request

PROMPT = request(0, [0, 1, 2, 3, 4, 5])


class Told:
    """An emit that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, ev: str, /, **keys: Any) -> None:
        self.events.append((ev, keys))

    def of(self, ev: str) -> list[dict[str, Any]]:
        return [keys for name, keys in self.events if name == ev]


@pytest.fixture
def told() -> Told:
    return Told()


def computed(allocator: HybridAllocator, preset: Preset, end: int, start: int = 0) -> None:
    """The prompt's tokens [start, end) as one step, done."""
    if PROMPT.id not in allocator.held:
        allocator.hold(PROMPT, allocator.lookup(PROMPT, 48, 47))
    work = Work(start, end, firm=start)
    ranges = {table.name: table.lead.writes(work) for table in preset.tables}
    assert allocator.extend(PROMPT.id, ranges)
    for name, span in ranges.items():
        allocator.written(PROMPT.id, name, *span)
    allocator.publish(PROMPT, end)


def test_runs() -> None:
    assert runs([]) == []
    assert runs([1, 2, 3, 7, 9, 10]) == [(1, 4), (7, 8), (9, 11)]


def test_all_blocks_or_none(told: Told) -> None:
    allocator = HybridAllocator(WINDOWED, 12, told)
    allocator.hold(PROMPT, allocator.lookup(PROMPT, 48, 47))
    assert not allocator.extend(PROMPT.id, {"full": (0, 48), "swa": (0, 48)})
    assert allocator.gpu.available == 11 and not told.of("alloc")
    assert allocator.extend(PROMPT.id, {"full": (0, 48), "swa": (8, 24)})
    assert [(e["group"], e["tokens"]) for e in told.of("alloc")] == [
        ("full", [0, 48]), ("swa", [8, 24]),
    ]  # fmt: skip
    assert allocator.missing(PROMPT.id, {"swa": (0, 30)}) == {"swa": [0, 3]}


def test_only_a_checkpoint_publishes_sparse_forms(told: Told) -> None:
    allocator = HybridAllocator(COMPRESSING, 100, told)
    computed(allocator, COMPRESSING, 24)
    assert {e["group"] for e in told.of("publish")} == {"c4"}
    computed(allocator, COMPRESSING, 32, start=24)
    published = {e["group"]: e["tokens"] for e in told.of("publish")[1:]}
    # The C16 state is empty where its unit is closed: there is nothing to publish.
    assert published == {"c4": [16, 32], "c4.state": [28, 32], "swa": [16, 32]}


def test_what_is_not_complete_is_not_published(told: Told) -> None:
    allocator = HybridAllocator(WINDOWED, 100, told)
    allocator.hold(PROMPT, allocator.lookup(PROMPT, 48, 47))
    ranges = {table.name: (0, 16) for table in WINDOWED.tables}
    allocator.extend(PROMPT.id, ranges)
    allocator.written(PROMPT.id, "full", 0, 16)
    allocator.publish(PROMPT, 16)
    assert {e["group"] for e in told.of("publish")} == {"full"}


def test_windows_slide_and_keep_their_hashes(told: Told) -> None:
    allocator = HybridAllocator(WINDOWED, 100, told)
    computed(allocator, WINDOWED, 32)
    allocator.slide(PROMPT.id, 32)
    gone = {e["group"]: len(e["blocks"]) for e in told.of("slide")}
    assert gone == {"swa": 2, "sparse": 6}
    assert [e["window_start"] for e in told.of("slide")] == [21, 24]
    again = request(1, [0, 1, 8])
    hit = allocator.lookup(again, 24, 23)
    assert hit.own["full"] == 16 and hit.at == 0, "the sparse window has no checkpoint at 16"
    freed = {e["group"]: e for e in told.of("free")}
    assert "front" not in freed["swa"] and freed["sparse"]["front"] == freed["sparse"]["blocks"]


def test_a_recurrent_table_keeps_the_last_state_only(told: Told) -> None:
    allocator = HybridAllocator(RECURRENT, 100, told)
    computed(allocator, RECURRENT, 24)
    computed(allocator, RECURRENT, 48, start=24)
    allocator.slide(PROMPT.id, 48)
    assert not told.of("slide")
    assert list(allocator.held[PROMPT.id]["gdn0"]) == [5]
    assert {e["group"] for e in told.of("free")} == {"gdn0", "gdn1"}


def test_what_was_released_can_be_held_again(told: Told) -> None:
    allocator = HybridAllocator(WINDOWED, 40, told)
    computed(allocator, WINDOWED, 32)
    allocator.release(PROMPT.id)
    assert allocator.gpu.available == 39
    again = request(1, [0, 1, 2, 3, 9])
    hit = allocator.lookup(again, 40, 39)
    assert hit.at == 32
    allocator.hold(again, hit)
    held = allocator.held[again.id]
    assert len(held["full"]) == 4 and list(held["swa"]) == [2, 3]
    # However many are taken now, none of these is.
    assert set(allocator.gpu.take("full", [0] * allocator.gpu.available)[0]).isdisjoint(
        [*held["full"].values(), *held["swa"].values()]
    )


def test_copy_on_write_leaves_the_shared_block_alone(told: Told) -> None:
    allocator = HybridAllocator(PLAIN, 40, told)
    short = request(0, [0, 1], tail=4)
    allocator.hold(short, allocator.lookup(short, 12, 12))
    allocator.extend(short.id, {"kv": (0, 12)})
    allocator.written(short.id, "kv", 0, 12)
    allocator.publish(short, 12)
    allocator.publish_partial(short)
    assert told.of("publish")[-1]["tokens"] == [8, 12]
    twin = request(1, [0, 1], tail=4)
    hit = allocator.lookup(twin, 12, 12)
    assert hit.at == 12
    allocator.hold(twin, hit)
    shared = allocator.held[twin.id]["kv"][1]
    source, copy = allocator.copy_on_write(twin.id, "kv", 1)
    assert source == shared != copy
    assert allocator.held[twin.id]["kv"][1] == copy
    assert allocator.held[short.id]["kv"][1] == shared
    assert allocator.gpu.refs[shared] == 2, "the copy has yet to run"
    assert allocator.gpu.filled[copy] == 4
    allocator.copied(twin.id)
    assert allocator.gpu.refs[shared] == 1


def test_a_full_block_is_known_by_one_hash(told: Told) -> None:
    allocator = HybridAllocator(PLAIN, 40, told)
    short = request(0, [0, 1], tail=4)
    allocator.hold(short, allocator.lookup(short, 12, 12))
    allocator.extend(short.id, {"kv": (0, 16)})
    allocator.written(short.id, "kv", 0, 12)
    allocator.publish(short, 12)
    allocator.publish_partial(short)
    allocator.written(short.id, "kv", 12, 16)
    allocator.publish(short, 16)
    assert told.of("unpublish") == [{"group": "kv", "hashes": [short.key(12)], "reason": "promote"}]
    assert allocator.gpu.find("kv", short.key(12)) is None
    assert allocator.gpu.find("kv", short.key(16)) is not None


def test_blocks_that_change_form_are_named_for_clearing(told: Told) -> None:
    allocator = HybridAllocator(COMPRESSING, 100, told)
    computed(allocator, COMPRESSING, 32)
    assert not allocator.reformed
    allocator.release(PROMPT.id)
    other = request(1, [7])
    allocator.hold(other, allocator.lookup(other, 8, 7))
    allocator.extend(other.id, {"swa": (0, 792)})
    tables = set(allocator.reformed.values())
    assert tables == {"c4", "c4.state"}, "the window's own blocks need no clearing"


def test_the_public_record_of_a_block(told: Told) -> None:
    allocator = HybridAllocator(COMPRESSING, 100, told)
    computed(allocator, COMPRESSING, 32)
    block = allocator.held[PROMPT.id]["c4"][1]
    state = allocator.state(block)
    assert (state.form, state.group, state.generation) == (Form.COMPRESSED, "c4", 1)
    assert (state.tokens, state.written, state.ref_count) == ((16, 32), 16, 1)
    assert state.published == str(PROMPT.key(32)) and state.recoverable
    fresh = allocator.state(allocator.take(PROMPT.id, "c4", [2])[0])
    assert not fresh.recoverable and fresh.why_not == "HKV101"
