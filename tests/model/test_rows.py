"""The columnar form gives every event back."""

from __future__ import annotations

import json

import pytest
from conftest import Case
from hypothesis import given
from hypothesis import strategies as st
from strategies import Data, events, mutated

from hkvtool.model.event import Event
from hkvtool.model.jsonl import parse_line, read_jsonl
from hkvtool.model.rows import DOMAINS, MISSING, NO_NAME, Names, decode, encode


def same(a: Event, b: Event) -> bool:
    return (a.pos, a.ev, a.problem) == (b.pos, b.ev, b.problem) and dict(a.data) == dict(b.data)


@given(st.lists(events(), max_size=5))
def test_any_event_comes_back(data: list[Data]) -> None:
    names = Names()
    found = [Event.of(i, d) for i, d in enumerate(data, 1)]
    rows = [encode(e, names) for e in found]
    for event, row in zip(found, rows, strict=True):
        assert same(decode(row, names), event)


@given(events())
def test_the_kinds_of_json_values_come_back_too(data: Data) -> None:
    # 1 == True == 1.0 in Python; on a line they are three values.
    names = Names()
    back = decode(encode(Event.of(1, data), names), names)
    assert json.loads(json.dumps(back.data), parse_float=str) == json.loads(
        json.dumps(data), parse_float=str
    )
    assert {k: type(v) for k, v in back.data.items()} == {k: type(v) for k, v in data.items()}


@given(mutated())
def test_an_event_with_a_problem_is_kept_whole(data: Data) -> None:
    names = Names()
    event = parse_line(1, json.dumps(data))
    back = decode(encode(event, names), names)
    assert same(back, event) and back.raw == event.raw


@pytest.mark.parametrize("text", ["{", "nonsense", '{"ev":1}', "[1]"])
def test_a_line_that_is_no_event_keeps_its_text(text: str) -> None:
    names = Names()
    event = parse_line(7, text)
    row = encode(event, names)
    assert (row.ev, row.rest) == (0, text)
    assert decode(row, names) == event


def test_every_case_comes_back(case: Case) -> None:
    for arm in case.arms:
        names = Names()
        with arm.open("rb") as stream:
            found = list(read_jsonl(stream))
        for event in found:
            assert same(decode(encode(event, names), names), event)


def test_names_are_dense_and_keep_integers_apart_from_text() -> None:
    names = Names()
    assert [names.id("req", n) for n in ("a", 1, "1", "a")] == [0, 1, 2, 0]
    assert [names.name("req", i) for i in range(3)] == ["a", 1, "1"]
    assert (names.find("req", "b"), names.count("req")) == (NO_NAME, 3)
    assert all(names.count(d) == 0 for d in DOMAINS if d != "req")


def test_absent_is_not_zero() -> None:
    row = encode(Event.of(1, {"ev": "dispatch", "step": 0}), Names())
    assert (row.step, row.ts, row.req) == (0, MISSING, NO_NAME)
