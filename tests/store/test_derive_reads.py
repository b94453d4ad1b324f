"""What a step writes and reads follows from the block tables and lengths its worker was told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.event import Event
from hkvtool.store.derive_reads import derive_reads

HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1"},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 99},
    {"ev": "group", "group": "full", "form": "compressed", "pool": "gpu", "block_tokens": 4, "table_index": 0},
    {
        "ev": "group", "group": "swa", "form": "swa", "pool": "gpu", "block_tokens": 4, "window": 6,
        "table_index": 1,
    },
    {
        "ev": "group", "group": "state", "form": "recurrent", "pool": "gpu", "block_tokens": 4,
        "states": "align", "table_index": 2,
    },
]  # fmt: skip
FIRST: dict[str, Any] = {
    "ev": "dispatch", "step": 1, "reqs": ["a"], "starts": [0], "counts": [7],
    "tables": [0, 1, 0, 3, 2, 10, 11, 2, 20, 21, 2, 30, 31],
}  # fmt: skip


def derived(*events: dict[str, Any]) -> list[dict[str, Any]]:
    told = derive_reads(Event.of(i, dict(e)) for i, e in enumerate([*HEAD, *events], 1))
    return [dict(event.data) for event in told][len(HEAD) :]


def accesses(events: list[dict[str, Any]], ev: str) -> list[tuple[Any, ...]]:
    return [(e["group"], e["req"], e["blocks"], e.get("tokens")) for e in events if e["ev"] == ev]


def test_each_form_touches_what_it_needs() -> None:
    events = derived(FIRST, {"ev": "retire", "step": 1})
    assert accesses(events, "write") == [
        ("full", "a", [10, 11], [0, 7]), ("swa", "a", [20, 21], [0, 7]), ("state", "a", [31], [0, 7]),
    ]  # fmt: skip
    assert accesses(events, "use") == [
        ("full", "a", [10, 11], [0, 7]),
        ("swa", "a", [20, 21], [0, 7]),
    ]
    assert events[-1]["ev"] == "retire"


def test_a_step_that_names_nobody_goes_on_with_the_last_ones() -> None:
    later: dict[str, Any] = {"ev": "dispatch", "step": 2}
    grown = {"ev": "dispatch", "step": 3, "tables": [0, 0, 0, 3, 1, 12, 1, 22, 1, 32]}
    events = derived(FIRST, later, grown)
    assert [e["reqs"] for e in events if e["ev"] == "dispatch"] == [["a"]] * 3
    second = [e for e in events if e.get("step") == 2 and e["ev"] != "dispatch"]
    assert accesses(second, "write") == [
        ("full", "a", [11], [7, 8]), ("swa", "a", [21], [7, 8]), ("state", "a", [31], [7, 8]),
    ]  # fmt: skip
    assert accesses(second, "use")[1:] == [
        ("swa", "a", [20, 21], [2, 8]),
        ("state", "a", [31], None),
    ]
    third = [e for e in events if e.get("step") == 3 and e["ev"] != "dispatch"]
    # The state is read where it stood, and written to the block that was added.
    assert accesses(third, "use")[-1] == ("state", "a", [31], None)
    assert accesses(third, "write")[-1] == ("state", "a", [32], [8, 9])


def test_a_table_that_began_unseen_derives_nothing_until_it_is_told_whole() -> None:
    grown: dict[str, Any] = {
        "ev": "dispatch", "step": 2, "reqs": ["a"], "starts": [7], "counts": [2],
        "tables": [0, 0, 0, 3, 1, 12, 1, 22, 1, 32],
    }  # fmt: skip
    state = {"ev": "state", "pool": "gpu", "blocks": [10, 11], "owners": ["a", "a"]}
    for before in ((), (FIRST, state)):
        found = [e for e in derived(*before, grown) if e.get("step") == 2]
        assert [e["ev"] for e in found] == ["dispatch"]
        again = [e for e in derived(*before, grown, {**FIRST, "step": 3}) if e.get("step") == 3]
        assert ("full", "a", [10, 11], [0, 7]) in accesses(again, "use")


def test_accesses_stand_where_the_worker_begins() -> None:
    worker = {"ev": "buffer", "name": "block_table", "op": "write", "actor": "device"}
    begins = {"ev": "buffer", "name": "block_table", "op": "read", "step": 1}
    zero = {"ev": "zero", "step": 1, "pool": "gpu", "blocks": [10]}
    told = derived(worker, {**FIRST, "zeroed": [10]}, zero, begins)
    assert [e["ev"] for e in told[:4]] == ["buffer", "dispatch", "zero", "buffer"]
    assert {e["ev"] for e in told[4:]} == {"write", "use"}
    # A worker that never says it began: at the latest when the step has ended.
    lost = derived(worker, FIRST, {"ev": "retire", "step": 1})
    assert [e["ev"] for e in lost[:3]] == ["buffer", "dispatch", "write"] and lost[-1][
        "ev"
    ] == "retire"


def test_what_is_cleared_and_copied_comes_first() -> None:
    events = derived({**FIRST, "zeroed": [10, 11], "copies": [5, 20]})
    assert [e["ev"] for e in events[:3]] == ["dispatch", "zero", "copy"]
    assert (events[2]["src"], events[2]["dst"]) == ([5], [20])


def test_other_traces_pass_as_they_are() -> None:
    plain = [{"ev": "dispatch", "step": 1, "reqs": ["a"]}, {"ev": "retire", "step": 1}]
    events = [Event.of(i, dict(e)) for i, e in enumerate([*HEAD, *plain], 1)]
    assert list(derive_reads(iter(events))) == events


@pytest.mark.parametrize(
    "tables", [[0], [5, 1, 0, 1, 1, 9], [0, 1, 0, 9, 1], [0, 1, 0, 1, 50, 1], [0, 1, 0, -1]]
)
def test_tables_that_are_no_tables_derive_nothing(tables: list[int]) -> None:
    assert [e["ev"] for e in derived({**FIRST, "tables": tables})] == ["dispatch"]


@given(st.lists(st.integers(-3, 12), max_size=24), st.lists(st.integers(-2, 9), max_size=4))
def test_nothing_it_is_told_breaks_it(tables: list[int], starts: list[int]) -> None:
    event = {**FIRST, "tables": tables, "starts": starts, "counts": [1] * len(starts)}
    events = derived(event, {"ev": "dispatch", "step": 2}, {"ev": "retire", "step": 2})
    assert all(Event.of(1, dict(e)).problem is None for e in events)


def stored(first: int, blocks: list[int], **more: Any) -> dict[str, Any]:
    return {
        "ev": "store_begin", "handle": "s", "group": "full", "req": "a", "blocks": blocks,
        "to": "cpu", "peer": [n + 100 for n in range(len(blocks))], "first_block": first, **more,
    }  # fmt: skip


LONG: dict[str, Any] = {
    "ev": "dispatch", "step": 1, "reqs": ["a"], "starts": [0], "counts": [24],
    "tables": [0, 1, 0, 1, 6, 10, 11, 12, 13, 14, 15],
}  # fmt: skip


def transfers(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (e["handle"], e["blocks"], e["peer"], e.get("tokens"))
        for e in events if e["ev"] == "store_begin"
    ]  # fmt: skip


def test_a_store_is_of_the_tokens_of_its_blocks() -> None:
    events = derived(LONG, stored(1, [11, 12]), {"ev": "store_end", "handle": "s"})
    assert transfers(events) == [("s", [11, 12], [100, 101], [4, 12])]
    assert "first_block" not in events[-2] and events[-1] == {"ev": "store_end", "handle": "s"}


def test_a_store_that_leaves_blocks_out_is_a_transfer_for_each_stretch() -> None:
    end = {"ev": "store_end", "handle": "s", "ok": False, "seq": 9}
    events = derived(LONG, stored(1, [11, 13, 14, 15], seq=8), end)
    assert transfers(events) == [
        ("s", [11], [100], [4, 8]), ("s+1", [13, 14, 15], [101, 102, 103], [12, 24]),
    ]  # fmt: skip
    ends = [e for e in events if e["ev"] == "store_end"]
    assert [(e["handle"], e["ok"]) for e in ends] == [("s", False), ("s+1", False)]
    # Nobody is to miss a number of the lane's.
    assert [e.get("seq") for e in events if "handle" in e] == [8, None, 9, None]
    assert [e.problem for e in derive_reads(Event.of(1, e) for e in events)].count(None) == len(
        events
    )


def test_a_store_behind_the_end_of_its_request_is_of_what_it_held() -> None:
    gone = {"ev": "finish", "req": "a"}
    assert transfers(derived(LONG, gone, stored(4, [14, 15]))) == [
        ("s", [14, 15], [100, 101], [16, 24])
    ]


@pytest.mark.parametrize("blocks", [[11, 99], [12, 11], [10]])
def test_of_blocks_that_are_not_in_the_table_no_tokens_are_said(blocks: list[int]) -> None:
    (found,) = transfers(derived(LONG, stored(1, blocks)))
    assert found == ("s", blocks, [n + 100 for n in range(len(blocks))], None)


def test_a_block_that_a_request_holds_a_second_time_is_taken_where_the_store_stands() -> None:
    again = {**LONG, "tables": [0, 1, 0, 1, 6, 10, 11, 12, 10, 14, 15]}
    assert transfers(derived(again, stored(3, [10, 15])))[0] == ("s", [10], [100], [12, 16])
