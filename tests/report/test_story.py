"""`hkvtool explain`: the story of a finding, event by event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import Exit
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, EVENTS
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped
from hkvtool.report.narrate import sentence


@pytest.mark.parametrize("name", ["A14", "B13", "A22"])
def test_a_finding_is_told(
    hkvtool: Any, cases: Any, golden: Any, name: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(cases[name].folder)
    found = hkvtool("explain", "bad.jsonl", "F1")
    assert found.code == Exit.OK and max(map(len, found.out.splitlines())) <= 80
    golden(f"explain-{name}.txt", found.out)


def test_every_finding_of_every_case_is_told(hkvtool: Any, case: Any) -> None:
    checked = json.loads(hkvtool("check", str(case.bad), "--format", "json").out)
    for finding in checked["findings"]:
        found = hkvtool("explain", str(case.bad), finding["id"])
        assert found.code == Exit.OK, found.err
        assert finding["code"] in found.out and max(map(len, found.out.splitlines())) <= 80
        story = json.loads(
            hkvtool("explain", str(case.bad), finding["id"], "--format", "json").out
        )  # fmt: skip
        assert story["finding"]["events"] == finding["events"]
        assert set(finding["events"]) <= {moment["pos"] for moment in story["story"]}


def test_a_finding_is_named_by_id_or_rule_or_not_at_all(hkvtool: Any, cases: Any) -> None:
    path = str(cases["A01"].bad)
    by_id = hkvtool("explain", path, "F1").out
    assert by_id == hkvtool("explain", path, "fractured-prefix").out
    assert by_id == hkvtool("explain", path).out != hkvtool("explain", path, "F2").out
    for wrong in ("F9", "HKV999", "fxx"):
        found = hkvtool("explain", path, wrong)
        assert found.code == Exit.USAGE and found.out == ""
    none = hkvtool("explain", str(cases["A01"].good), "F1")
    assert none.code == Exit.USAGE and "no finding" in none.err


def test_the_bar_is_dashed_where_no_edge_orders_the_two(hkvtool: Any, cases: Any) -> None:
    race = hkvtool("explain", str(cases["B13"].bad), "F1").out
    order = hkvtool("explain", str(cases["A14"].bad), "F1").out
    assert "╎" in race and "no edge:" in race and "│" not in race
    assert "│" in order and "╎" not in order


def test_what_differs_between_check_and_use_is_marked(hkvtool: Any, cases: Any) -> None:
    lines = hkvtool("explain", str(cases["A14"].bad), "F1").out.splitlines()
    marked = [line.split()[1] for line in lines if line.startswith("  * ")]
    assert "generation" in marked and "form" not in marked


def test_every_kind_of_event_in_the_corpus_has_words() -> None:
    seen: set[str] = set()
    for folder in ("cases", "rules"):
        for path in Path(str(shipped(folder))).rglob("*.jsonl"):
            with path.open("rb") as stream:
                for event in read_jsonl(stream):
                    text = sentence(event)
                    assert text and text.isprintable(), event
                    seen.add(event.ev)
    assert set(EVENTS) - DECLARATIONS <= seen


@pytest.mark.parametrize("name", EVENTS)
def test_a_malformed_event_is_shown_as_it_stands(name: str) -> None:
    event = Event.of(3, {"ev": name, "blocks": "\x1b[31m", "handle": [1]})
    assert sentence(event).isprintable()
