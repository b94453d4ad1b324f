"""Whose tokens a request's are."""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay.arms import survey

_HEAD: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1"},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64},
    {"ev": "pool", "pool": "cpu", "medium": "cpu", "blocks": 64},
    {"ev": "group", "group": "g", "form": "compressed", "pool": "gpu", "block_tokens": 16},
]


def _survey(*rest: dict[str, Any]) -> Any:
    return survey([Event.of(i, e) for i, e in enumerate([*_HEAD, *rest], 1)])


_FIRST = [
    {"ev": "alloc", "req": "a", "group": "g", "blocks": [1, 2]},
    {
        "ev": "publish",
        "req": "a",
        "group": "g",
        "blocks": [1, 2],
        "hashes": ["x", "y"],
        "tokens": [0, 32],
    },
]


def test_a_hash_that_is_looked_up_leads_to_who_published_it_first() -> None:
    found = _survey(
        *_FIRST, {"ev": "lookup", "req": "b", "hit": {"g": 32}, "hashes": {"g": ["x", "y"]}}
    )
    assert found.pieces("b", 0, 40) == [(0, 32, "a"), (32, 40, "b")]


def test_a_block_stands_for_the_hash_that_led_to_it() -> None:
    found = _survey(*_FIRST, {"ev": "lookup", "req": "b", "hit": {"g": 16}, "blocks": {"g": [1]}})
    assert found.pieces("b", 0, 20) == [(0, 16, "a"), (16, 20, "b")]


def test_one_hash_of_unequal_keys_is_not_one_content() -> None:
    found = _survey(
        {"ev": "alloc", "req": "a", "group": "g", "blocks": [1]},
        {"ev": "publish", "req": "a", "group": "g", "blocks": [1], "hashes": ["x"], "tokens": [0, 16], "key": ["lora=1"]},
        {"ev": "lookup", "req": "b", "hit": {"g": 16}, "blocks": {"g": [1]}, "key": ["salt=1"]},
    )  # fmt: skip
    assert found.pieces("b", 0, 16) == [(0, 16, "b")]


def test_what_was_stored_by_one_and_loaded_by_another_is_the_first_ones() -> None:
    found = _survey(
        *_FIRST,
        {"ev": "store_begin", "handle": "s", "req": "a", "group": "g", "blocks": [1, 2], "to": "cpu", "peer": [7, 8]},
        {"ev": "alloc", "req": "b", "group": "g", "blocks": [3, 4]},
        {"ev": "load_begin", "handle": "l", "req": "b", "group": "g", "blocks": [3, 4], "from": "cpu", "peer": [7, 8]},
    )  # fmt: skip
    assert found.pieces("b", 0, 33) == [(0, 32, "a"), (32, 33, "b")]


def test_requests_that_lead_to_one_another_end_somewhere() -> None:
    look = {"ev": "lookup", "hit": {"g": 32}, "hashes": {"g": ["x", "y"]}}
    found = _survey(
        *_FIRST, {**look, "req": "b"}, {**look, "req": "a"},
        {"ev": "alloc", "req": "b", "group": "g", "blocks": [9]},
        {"ev": "publish", "req": "b", "group": "g", "blocks": [9], "hashes": ["z"], "tokens": [32, 48]},
        {"ev": "lookup", "req": "a", "hit": {"g": 48}, "hashes": {"g": ["x", "y", "z"]}},
    )  # fmt: skip
    assert found.pieces("a", 0, 32) == [(0, 32, "a")]
    assert found.pieces("b", 0, 48)[0] == (0, 32, "a")
