"""A fingerprint of a step is of what the step left, be the block another's by now."""

from __future__ import annotations

from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event


def _events(step: int | None, handed_on: bool) -> list[Event]:
    """Block 3 is written by step 1 and read behind it, which its trace shows late."""
    first = {"ev": "fingerprint", "group": "kv", "blocks": [3], "values": [77], "at": "publish"}
    if step is not None:
        first["step"] = step
    to_another: list[dict[str, Any]] = [
        {"ev": "free", "pool": "gpu", "blocks": [3], "req": "r1"},
        {"ev": "alloc", "group": "kv", "blocks": [3], "req": "r2", "start": 0},
        {"ev": "dispatch", "step": 2, "reqs": ["r2"]},
        {"ev": "write", "group": "kv", "blocks": [3], "tokens": [0, 16], "step": 2},
    ]
    told: list[dict[str, Any]] = [
        {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step", "bytes"]},
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "tail", "pool": "gpu", "block_tokens": 16},
        {"ev": "alloc", "group": "kv", "blocks": [3], "req": "r1", "start": 0},
        {"ev": "dispatch", "step": 1, "reqs": ["r1"]},
        {"ev": "write", "group": "kv", "blocks": [3], "tokens": [0, 16], "step": 1},
        *(to_another if handed_on else []),
        first,
        {"ev": "retire", "step": 1},
        {"ev": "fingerprint", "group": "kv", "blocks": [3], "values": [88], "at": "resume"},
    ]
    return [Event.of(i, e) for i, e in enumerate(told, 1)]


def _codes(events: list[Event]) -> list[str]:
    return [f.code for f in check(events).findings if f.code in ("HKV905", "HKV906")]


def test_what_was_read_before_another_had_the_block_is_not_taken_for_its_bytes() -> None:
    assert _codes(_events(1, handed_on=True)) == []


def test_bytes_that_changed_while_the_block_was_held_are_found() -> None:
    assert _codes(_events(1, handed_on=False)) == ["HKV906"]
    assert _codes(_events(None, handed_on=True)) == ["HKV906"], "both are of one moment"


def test_each_worker_has_a_part_of_a_block_of_its_own() -> None:
    """What one has differs from what another has, and is held against its own only."""
    events = _events(1, handed_on=False)
    assert _codes(events) == ["HKV906"]
    events[-1] = Event.of(events[-1].pos, events[-1].data | {"part": "rank1"})
    assert _codes(events) == []
    changed = {"ev": "fingerprint", "group": "kv", "blocks": [3], "at": "resume", "part": "rank1"}
    two = [changed | {"values": [value]} for value in (77, 78)]
    found = check([*events[:-1], *(Event.of(20 + i, e) for i, e in enumerate(two))]).findings
    assert [f.code for f in found if f.code != "HKV904"] == ["HKV906"]
    assert "part rank1" in found[0].message


def _two_workers(order: list[int]) -> list[str]:
    """Block 3 is read behind step 1, goes to another in step 2 and is read again: by the first
    worker, and by a second that comes when it comes. `order` says before which of these (or, the
    last, behind all) its two fingerprints stand."""
    told = [e.data for e in _events(1, handed_on=False)][:-2]
    read = {"ev": "fingerprint", "group": "kv", "blocks": [3], "actor": "device"}
    other = read | {"actor": "device@rank1", "part": "rank1", "beside": "device"}
    firsts: list[dict[str, Any]] = [
        read | {"values": [77], "at": "publish", "step": 1},
        {"ev": "retire", "step": 1},
        {"ev": "free", "pool": "gpu", "blocks": [3], "req": "r1"},
        {"ev": "alloc", "group": "kv", "blocks": [3], "req": "r2", "start": 0},
        {"ev": "dispatch", "step": 2, "reqs": ["r2"]},
        {"ev": "write", "group": "kv", "blocks": [3], "tokens": [0, 16], "step": 2},
        read | {"values": [88], "at": "publish", "step": 2},
        {"ev": "retire", "step": 2},
    ]
    seconds = [
        other | {"values": [value], "at": "publish", "step": step}
        for step, value in ((1, 770), (2, 880))
    ]
    for place, event in sorted(zip(order, seconds, strict=True), key=lambda p: -p[0]):
        firsts.insert(place, event)
    told = [*told[:-1], *firsts]
    return _codes([Event.of(i, e) for i, e in enumerate(told, 1)])


def test_who_keeps_no_time_with_the_first_counts_as_of_its_moment() -> None:
    for order in ([0, 0], [1, 7], [4, 5], [6, 6], [8, 8], [3, 8], [0, 8]):
        assert _two_workers(order) == [], order


def test_and_is_held_against_what_it_had_itself() -> None:
    for first in (0, 1):
        told = [e.data for e in _events(1, handed_on=False)]
        told[-1]["step"] = 2
        seconds = [
            told[at] | {"part": "rank1", "beside": told[at].get("actor", "device"), "values": [v]}
            for at, v in ((-3, 770), (-1, 771))
        ]
        for event in (told[-3], told[-1]):
            event |= {"actor": "device", "values": [77]}
        for event in seconds:
            event |= {"actor": "device@rank1", "beside": "device"}
        told = [*told[:-3], *seconds, *told[-3:]] if first else [*told, *seconds]
        assert _codes([Event.of(i, e) for i, e in enumerate(told, 1)]) == ["HKV906"]
