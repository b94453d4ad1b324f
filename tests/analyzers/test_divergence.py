"""Where two traces part, held against a plain comparison of lists."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hkvtool.analyzers.divergence import differing, divergence, following
from hkvtool.model.event import Event

MOVES = st.lists(
    st.tuples(st.sampled_from(["sched", "device", "dma"]), st.integers(0, 2)), max_size=30
)


def trace(moves: list[tuple[str, int]], prefix: str = "") -> list[Event]:
    """Events whose hashes are named with a prefix, as a recording with a key of its own would."""
    data = [
        {"ev": "publish", "actor": lane, "group": "kv", "blocks": [n], "hashes": [f"{prefix}{n}"],
         "ts": 7 * i}
        for i, (lane, n) in enumerate(moves)
    ]  # fmt: skip
    return [Event.of(n, dict(d)) for n, d in enumerate(data, 1)]


def expected(one: list[Event], other: list[Event], lane: str) -> tuple[int, Any]:
    a, b = ([e for e in side if e.actor == lane] for side in (one, other))
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x["blocks"] != y["blocks"]:
            return i, (x.pos, y.pos)
    n = min(len(a), len(b))
    at = (a[n].pos if len(a) > n else None, b[n].pos if len(b) > n else None)
    return n, at


@given(MOVES, MOVES)
def test_each_lane_parts_where_its_lists_do(one: Any, other: Any) -> None:
    # Without hashes: their numbers depend on what other lanes named before.
    first, second = (
        [Event.of(e.pos, {k: v for k, v in e.data.items() if k != "hashes"}) for e in trace(moves)]
        for moves in (one, other)
    )
    for event in (*first, *second):
        object.__setattr__(event, "problem", None)
    lanes = divergence(first, second)
    assert {lane.name for lane in lanes} == {e.actor for e in (*first, *second)}
    for lane in lanes:
        same, at = expected(first, second, lane.name)
        assert (lane.same, lane.at) == (same, at)
        assert lane.counts == [sum(e.actor == lane.name for e in s) for s in (first, second)]
    parted = [lane.parted for lane in lanes]
    assert parted == sorted(parted, reverse=True)


@given(MOVES)
def test_hashes_and_times_of_another_recording_are_no_difference(moves: Any) -> None:
    other = [Event.of(e.pos, {**e.data, "ts": 3}) for e in trace(moves, "z")]
    assert not any(lane.parted for lane in divergence(trace(moves), other))


def test_blocks_are_told_apart_unless_they_are_renamed() -> None:
    one, other = trace([("sched", 1), ("sched", 2)]), trace([("sched", 5), ("sched", 6)])
    (lane,) = divergence(one, other)
    assert lane.at == (1, 1)
    (lane,) = divergence(one, other, rename_blocks=True)
    assert not lane.parted and lane.same == 2
    (lane,) = divergence(one, trace([("sched", 5), ("sched", 5)]), rename_blocks=True)
    assert lane.at == (2, 2)


def test_addresses_are_others_in_every_recording() -> None:
    def recorded(address: str, again: str) -> list[Event]:
        data = [
            {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16,
             "layout": {"base": address, "page_bytes": 64}},
            {"ev": "capture", "graph": "g", "pointers": {"kv": address}},
            {"ev": "launch", "graph": "g", "pointers": {"kv": again}},
        ]  # fmt: skip
        return [Event.of(n, dict(d)) for n, d in enumerate(data, 1)]

    (lane,) = divergence(recorded("0x1", "0x1"), recorded("0x7f", "0x7f"))
    assert not lane.parted
    (lane,) = divergence(recorded("0x1", "0x1"), recorded("0x7f", "0x80"))
    assert lane.at == (3, 3)


def test_what_two_events_differ_in() -> None:
    one, other = trace([("sched", 1)])[0], trace([("sched", 2)], "z")[0]
    assert differing(one, other) == ["blocks"]
    assert differing(one, Event.of(1, {"ev": "free", "blocks": [1]})) == ["ev"]


def test_what_follows_on_a_lane() -> None:
    events = trace([("sched", 1), ("dma", 2), ("sched", 0), ("sched", 2)])
    found = following(events, {"sched": 1}, 2)
    assert [e.pos for e in found["sched"]] == [1, 3]
