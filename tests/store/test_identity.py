"""A request is found by whatever id somebody has in hand, whichever engine's it is."""

from __future__ import annotations

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.store.identity import request_named

NAMES = ["cmpl-7-0", "cmpl-7-0@e2", "cmpl-8-0@e2", "r9@e3", "plain"]
EVENTS = [
    Event.of(1, {"ev": "admit", "req": "r9@e3", "external": "client-9"}),
    Event.of(2, {"ev": "admit", "req": "cmpl-8-0@e2", "external": "both"}),
    Event.of(3, {"ev": "admit", "req": "plain", "external": "both"}),
]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("plain", "plain"), ("plain@e1", "plain"), ("cmpl-7-0@e1", "cmpl-7-0"),
        ("cmpl-7-0@e2", "cmpl-7-0@e2"), ("cmpl-8-0", "cmpl-8-0@e2"), ("r9", "r9@e3"),
        ("client-9", "r9@e3"), ("client-9@e3", "r9@e3"), ("both@e2", "cmpl-8-0@e2"),
        ("both@e1", "plain"), ("7@e2", "cmpl-7-0@e2"), ("8", "cmpl-8-0@e2"),
    ],
)  # fmt: skip
def test_whichever_suffix_it_has(asked: str, found: str) -> None:
    assert request_named(EVENTS, NAMES, asked) == found


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("cmpl-7-0", "say which: cmpl-7-0@e1, cmpl-7-0@e2"),
        ("both", "say which: cmpl-8-0@e2, plain"),
        ("7", "say which: cmpl-7-0@e1, cmpl-7-0@e2"),
    ],
)
def test_of_several_it_says_how_to_choose(asked: str, told: str) -> None:
    with pytest.raises(HkvError, match="may be any of 2 requests") as raised:
        request_named(EVENTS, NAMES, asked)
    assert raised.value.hint == told
    for one in told.removeprefix("say which: ").split(", "):
        assert request_named(EVENTS, NAMES, one)


@pytest.mark.parametrize("asked", ["r9@e2", "plain@e2", "nobody", "", "@e2"])
def test_who_is_not_there_is_not_found(asked: str) -> None:
    with pytest.raises(HkvError, match="no event names"):
        request_named(EVENTS, NAMES, asked)
