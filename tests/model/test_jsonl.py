"""Reading and writing lines: whatever a file holds, it is read, told, and written back."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from conftest import Case
from hypothesis import given
from hypothesis import strategies as st
from strategies import JSON, Data, events

from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.jsonl import (
    MAX_DEPTH,
    MAX_LINE_BYTES,
    parse_line,
    read_jsonl,
    write_jsonl,
)


def read(data: bytes) -> list[Event]:
    return list(read_jsonl(io.BytesIO(data)))


def written(events: list[Event]) -> bytes:
    out = io.BytesIO()
    assert write_jsonl(events, out) == len(events)
    return out.getvalue()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not JSON: "),
        (b"[]", "not an object"),
        (b"3", "not an object"),
        (b"{}", "has no `ev`"),
        (b'{"ev":null}', "has no `ev`"),
        (b'{"ev":"reset","ev":"reset"}', "key 'ev' appears twice"),
        (b'{"ev":"pool","x":{"a":1,"a":2}}', "key 'a' appears twice"),
        (b'{"ev":"reset","x":NaN}', "NaN is not a JSON value"),
        (b'{"ev":"reset","x":-Infinity}', "-Infinity is not a JSON value"),
        (b'{"ev":"reset","x":1e999}', "a number beyond any double"),
        (b'{"ev":"reset","x":' + b"9" * 5000 + b"}", "a number of 5000 digits"),
        (b'{"ev":"reset","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"ev":"reset","x":"\xff"}', "not UTF-8 at byte 19"),
        (b'{"ev":"reset"} {"ev":"reset"}', "not JSON: "),
        (b"\x00" * 10, "not JSON: "),
        (b'{"ev":"dispatch","step":"1"}', "dispatch: `step` is not an integer"),
        (b'{"ev":"evict"}', "unknown event 'evict'"),
        (rb'{"ev":"reset","x":"\ud83d"}', "half a surrogate pair"),
        (rb'{"ev":"reset","\uDE00":1}', "half a surrogate pair"),
    ],
)
def test_a_bad_line_is_an_event_with_a_problem(line: bytes, problem: str) -> None:
    before, bad, after = read(b'{"ev":"reset"}\n' + line + b'\n{"ev":"reset"}\n')
    assert bad.problem is not None and bad.problem.startswith(problem)
    assert bad.pos == 2
    assert (before.problem, after.problem) == (None, None)


def test_a_long_line_is_cut_and_the_next_one_read() -> None:
    size = MAX_LINE_BYTES + 5
    first, second = read(b"x" * size + b'\n{"ev":"reset"}')
    assert (first.ev, first.problem) == (
        MALFORMED,
        f"a line of {size + 1:,} bytes, cut after 4,096",
    )
    assert first.raw is not None and len(first.raw) < 10_000
    assert (second.pos, second.ev) == (2, "reset")


def test_what_is_left_of_a_long_line_is_never_an_event() -> None:
    (event,) = read(b'{"ev":"reset"}' + b" " * MAX_LINE_BYTES)
    assert event.ev == MALFORMED
    assert event.raw is not None and parse_line(1, event.raw).ev == MALFORMED


@pytest.mark.parametrize("deep", ["[", '{"a":'])
def test_depth_is_refused_where_it_says(deep: str) -> None:
    def nested(levels: int) -> str:
        close = "]" if deep == "[" else "}"
        inner = "" if deep == "[" else "1"
        return '{"ev":"reset","x":' + deep * levels + inner + close * levels + "}"

    assert parse_line(1, nested(MAX_DEPTH - 1)).problem is None
    assert parse_line(1, nested(MAX_DEPTH)).problem == "nested too deeply"


def test_many_brackets_side_by_side_are_no_depth() -> None:
    assert parse_line(1, '{"ev":"reset","x":[' + ",".join(["[]"] * 500) + "]}").problem is None


def test_the_longest_line_allowed_is_read_whole() -> None:
    head, tail = b'{"ev":"reset","x":"', b'"}'
    pad = MAX_LINE_BYTES - len(head) - len(tail) - 1
    first, second = read(head + b"y" * pad + tail + b'\n{"ev":"reset"}\n')
    assert (first.problem, len(first["x"])) == (None, pad)
    assert second.pos == 2


def test_mark_line_ends_and_blank_lines_are_no_content() -> None:
    found = read(b'\xef\xbb\xbf{"ev":"reset"}\r\n\r\n  \n{"ev":"reset"}')
    assert [(e.pos, e.ev, e.problem) for e in found] == [(1, "reset", None), (4, "reset", None)]


def test_both_halves_of_a_pair_are_one_character() -> None:
    (event,) = read(rb'{"ev":"reset","x":"\ud83d\ude00"}')
    assert (event.problem, event["x"]) == (None, "\U0001f600")


def test_an_empty_file_has_no_events() -> None:
    assert read(b"") == []


@given(events())
def test_an_event_survives_writing_and_reading(data: Data) -> None:
    event = Event.of(1, data)
    assert read(written([event])) == [event]


@given(st.lists(st.one_of(st.binary(max_size=40), JSON.map(lambda v: json.dumps(v).encode()))))
def test_any_bytes_are_read_and_told(lines: list[bytes]) -> None:
    for event in read(b"\n".join(lines)):
        assert event.problem is None or event.problem
        assert event.ev != MALFORMED or event.raw is not None


@given(st.lists(st.binary(max_size=40), max_size=4))
def test_what_was_read_and_written_reads_the_same(lines: list[bytes]) -> None:
    once = read(b"\n".join([b'{"ev":"reset"}', *lines]))
    again = read(written(once))
    assert [(e.ev, e.data) for e in again] == [(e.ev, e.data) for e in once]


@given(st.text(max_size=60))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    assert parse_line(1, text).pos == 1


def test_every_case_is_written_as_it_was_read(case: Case, tmp_path: Path) -> None:
    for arm in case.arms:
        lines = arm.read_text().splitlines()
        found = read(arm.read_bytes())
        assert [json.loads(line) for line in written(found).splitlines()] == list(
            map(json.loads, lines)
        )


def test_every_case_but_the_malformed_one_is_well_formed(cases: dict[str, Case]) -> None:
    bad = {
        (case.id, arm.name, event.pos)
        for case in cases.values()
        for arm in case.arms
        for event in read(arm.read_bytes())
        if event.problem
    }
    assert bad == {("S23", "bad.jsonl", 13)}
