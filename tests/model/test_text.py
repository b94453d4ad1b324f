"""Names out of a trace cannot act on a terminal, and events read on one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Data, events

from hkvtool.model.event import Event
from hkvtool.model.jsonl import parse_line
from hkvtool.model.text import compact, event_line, shown


@given(st.text())
def test_shown_text_is_printable_and_printable_text_is_kept(text: str) -> None:
    assert shown(text).isprintable()
    assert (shown(text) == text) is text.isprintable()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("r1", "r1"),
        ("é→", "é→"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\u202eevil", r"\u202eevil"),
        ("\ud800", r"\ud800"),
        ("[bold]x[/]", "[bold]x[/]"),
    ],
)
def test_control_characters_are_shown(text: str, seen: str) -> None:
    assert shown(text) == seen


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "[]"),
        ([4, 5], "[4,5]"),
        ([4, 5, 6, 9], "[4-6,9]"),
        ([6, 5, 4], "[6,5,4]"),
        ([True, 2, 3, 4], "[true,2-4]"),
        ({"kv": [0, 1, 2], "swa": None}, "{kv:[0-2] swa:null}"),
        (False, "false"),
    ],
)
def test_compact(value: object, text: str) -> None:
    assert compact(value) == text


def test_event_line_leads_with_who_and_what() -> None:
    data = {"ev": "write", "actor": "worker:0", "version": 2, "tokens": [0, 128], "blocks": [8, 9]}
    line = event_line(Event.of(1, {**data, "group": "kv", "req": "r1", "ts": 5}))
    assert line == "write@worker:0 req=r1 group=kv blocks=[8,9] tokens=0..128 version=2"


def test_event_line_tells_a_problem() -> None:
    assert event_line(parse_line(1, '{"ev":"evict"}')) == "evict  ! unknown event 'evict'"
    assert event_line(parse_line(1, "\x1b]0;x\x07")).startswith("? not JSON")


@given(events())
def test_event_line_is_one_printable_line(data: Data) -> None:
    assert event_line(Event.of(1, data)).isprintable()
