"""The event table: what binary forms, docs and schema rely on."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import Data, events

from hkvtool.model.events import ACCESSES, BY_CODE, DECLARATIONS, EVENTS, check_keys
from hkvtool.state import codes


def test_codes_are_those_that_traces_were_written_with() -> None:
    # A code is on disk in every recording: a new event takes a new number, none is moved.
    assert {spec.code: name for name, spec in EVENTS.items()} == {
        1: "trace", 2: "evidence", 3: "state", 4: "pool", 5: "group", 6: "kernel", 7: "limits",
        8: "alloc", 9: "touch", 10: "free", 11: "publish", 12: "unpublish", 13: "slide",
        14: "remap", 15: "reset", 16: "pin", 17: "unpin", 18: "write", 19: "seal", 20: "index",
        21: "zero", 22: "copy", 23: "rollback", 24: "buffer", 25: "dispatch", 26: "retire",
        27: "lookup", 28: "resume", 29: "use", 30: "select", 31: "store_begin", 32: "load_begin",
        33: "store_end", 34: "load_end", 35: "lease", 36: "signal", 37: "wait", 38: "admit",
        39: "refuse", 40: "preempt", 41: "abort", 42: "finish", 43: "capture", 44: "launch",
        45: "rebase", 46: "weights", 47: "dropped", 48: "wire", 49: "fingerprint",
    }  # fmt: skip


def test_codes_are_unique_and_lead_back() -> None:
    assert len(BY_CODE) == len(EVENTS)
    assert all(BY_CODE[spec.code] is spec for spec in EVENTS.values())


def test_state_names_every_code() -> None:
    assert {getattr(codes, name.upper()) for name in EVENTS} == set(BY_CODE)


@pytest.mark.parametrize("kinds", [ACCESSES, DECLARATIONS])
def test_kinds_name_events_that_exist(kinds: frozenset[str]) -> None:
    assert kinds <= set(EVENTS)


def test_one_type_name_means_one_type() -> None:
    kinds = {key.type.name: set() for spec in EVENTS.values() for key in spec.keys.values()}
    for spec in EVENTS.values():
        for key in spec.keys.values():
            kinds[key.type.name].add(id(key.type))
    assert {name for name, ids in kinds.items() if len(ids) > 1} == set()


@given(events())
def test_what_the_table_allows_passes(data: Data) -> None:
    assert check_keys(data) is None


@given(events())
def test_every_required_key_is_missed(data: Data) -> None:
    for key in EVENTS[data["ev"]].required:
        without = {k: v for k, v in data.items() if k != key}
        assert check_keys(without) == f"{data['ev']}: key `{key}` is missing"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({}, "has no `ev`"),
        ({"ev": 3}, "has no `ev`"),
        ({"ev": "evict"}, "unknown event 'evict'"),
        ({"ev": "alloc", "blocks": 3}, "alloc: `blocks` is not a list of integers"),
        ({"ev": "alloc", "blocks": [1, True]}, "alloc: `blocks` [1] is not an integer"),
        ({"ev": "alloc", "blocks": [1.0]}, "alloc: `blocks` [0] is not an integer"),
        ({"ev": "alloc", "blocks": [1 << 62]}, "alloc: `blocks` [0] is out of range"),
        ({"ev": "write", "group": "kv", "blocks": [], "tokens": [4, 2]}, "write: `tokens` ends before it starts"),
        ({"ev": "write", "group": "kv", "blocks": [], "tokens": [-4, 2]}, "write: `tokens` is not [start, end) in tokens"),
        ({"ev": "write", "group": True, "blocks": [], "tokens": [0, 2]}, "write: `group` is not a name"),
        ({"ev": "publish", "group": "kv", "blocks": [1], "hashes": []}, "publish: 0 hashes for 1 blocks"),
        ({"ev": "copy", "src": [1], "dst": [2, 3]}, "copy: 2 dst for 1 src"),
        ({"ev": "group", "group": "kv", "form": "on_disk", "pool": "p", "block_tokens": 1}, "group: `form` is none of compressed, tail, swa, indexer, recurrent"),
        ({"ev": "remap", "pool": "p", "map": {"a": 1}}, "remap: `map` has a logical id 'a' that is no integer"),
        ({"ev": "resume", "req": "r", "at": 1, "route": {"kv": "teleport"}}, "resume: `route` of 'kv' is none of reuse, load, recompute, decompress, reindex, bypass"),
    ],
)  # fmt: skip
def test_problem_says_event_key_and_fault(data: Data, problem: str) -> None:
    assert check_keys(data) == problem


@pytest.mark.parametrize("name", ["unpublish", "wire"])
def test_hashes_need_no_blocks_where_they_stand_alone(name: str) -> None:
    data = {"ev": name, "blocks": [1, 2], "hashes": ["a"], "kind": "removed"}
    assert check_keys(data) is None
