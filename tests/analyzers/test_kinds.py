"""A family is asked about the kinds of events that it states, and would say nothing of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hkvtool.analyzers import check
from hkvtool.analyzers.check import FAMILIES
from hkvtool.analyzers.ratios import Tally
from hkvtool.model.event import Event
from hkvtool.model.events import EVENTS
from hkvtool.model.jsonl import read_jsonl

SHIPPED = Path(__file__).parents[2] / "fixtures"


def _said(events: list[Event]) -> str:
    return json.dumps(check(events).as_json())


def test_the_kinds_are_kinds_of_events() -> None:
    stated = [family.kinds for family in FAMILIES if family.kinds is not None]
    assert len(stated) > len(FAMILIES) // 2
    assert frozenset().union(*stated) <= EVENTS.keys()


def test_nothing_else_is_said_by_a_family_that_sees_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = sorted(SHIPPED.glob("cases/*/*.jsonl")) + sorted(SHIPPED.glob("rules/**/*.jsonl"))[::3]
    traces = [list(read_jsonl(file.open("rb"))) for file in files]
    before = [_said(events) for events in traces]
    for family in (*FAMILIES, Tally):
        monkeypatch.setattr(family, "kinds", None)
    for file, events, said in zip(files, traces, before, strict=True):
        assert _said(events) == said, file
