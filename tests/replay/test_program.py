"""Orders that edges allow, and those that they forbid."""

from __future__ import annotations

from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay.arms import Plan, Setting, compiled, survey
from hkvtool.replay.program import Program

_EVENTS: list[dict[str, Any]] = [
    {"ev": "trace", "format": "hkv/1"},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64},
    {"ev": "group", "group": "g", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    {"ev": "alloc", "req": "a", "group": "g", "blocks": [1]},
    {"ev": "write", "req": "a", "group": "g", "blocks": [1], "tokens": [0, 16], "actor": "one"},
    {"ev": "signal", "event": "e", "actor": "one"},
    {"ev": "write", "req": "a", "group": "g", "blocks": [1], "tokens": [0, 16], "actor": "two"},
    {"ev": "wait", "event": "e", "actor": "three"},
    {"ev": "write", "req": "a", "group": "g", "blocks": [1], "tokens": [0, 16], "actor": "three"},
]


def _program() -> Program:
    events = [Event.of(i, e) for i, e in enumerate(_EVENTS, 1)]
    return compiled(Setting(events, survey(events)), Plan("as recorded"), None)


def test_what_no_edge_orders_can_be_turned_round() -> None:
    order = _program().second_first(5, 7)
    assert order is not None
    assert [s.pos for s in order if s.pos] == [7, 5, 9]


def test_what_an_edge_orders_cannot() -> None:
    assert _program().second_first(5, 9) is None


def test_what_must_follow_the_first_waits_with_it() -> None:
    order = _program().second_first(5, 7)
    assert order is not None
    positions = [s.pos for s in order]
    assert positions.index(9) > positions.index(5)


def test_events_that_touch_nothing_have_no_order() -> None:
    assert _program().second_first(4, 7) is None
