"""Whatever a stream holds, every question about it has an answer that a terminal can show."""

from __future__ import annotations

import json
from random import Random
from typing import Any
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hkvtool.analyzers import check
from hkvtool.analyzers.divergence import divergence
from hkvtool.analyzers.lifetimes import Lifetimes
from hkvtool.analyzers.lookups import Lookups
from hkvtool.analyzers.preflight import preflight
from hkvtool.analyzers.verdict import Verdict, why
from hkvtool.model.errors import TraceError
from hkvtool.model.event import Event
from hkvtool.model.findings import Report
from hkvtool.model.rules import Severity
from hkvtool.report.checked import Checked, positions
from hkvtool.report.difference import Difference, difference_lines
from hkvtool.report.github import github_lines
from hkvtool.report.json_lines import json_line
from hkvtool.report.junit import junit
from hkvtool.report.preflight import preflight_lines
from hkvtool.report.ratios import Account, account_lines
from hkvtool.report.sarif import sarif
from hkvtool.report.story import chosen, story_lines
from hkvtool.report.table import Line
from hkvtool.report.why import SCREEN, why_lines
from tests.state.hostile import hostile

SEEDS = st.integers(0, 1 << 30)


def shown(lines: Any) -> list[Line]:
    found = list(lines)
    assert all(line.text.isprintable() for line in found), [line.text for line in found]
    return found


def ask(seed: int, size: int) -> None:
    """Every question that there is about one stream."""
    events = [Event.of(pos, line) for pos, line in enumerate(hostile(seed, size), 1)]
    by_pos = {e.pos: e for e in events}
    seen: list[Any] = []

    def watch(make: Any) -> Any:
        def made(ctx: Any) -> Any:
            seen.append(make(ctx))
            return seen[-1]

        return made

    report = check(events, observers=[watch(Lookups), watch(Lifetimes)])
    reports(report, by_pos)
    account = Account("t.jsonl", seen[0].settled, seen[1].as_json(), seed % 2 == 0)
    json.dumps(account.as_json())
    shown(account_lines(account, 80))
    for request in list(dict.fromkeys(e.req for e in events if e.req is not None))[:3]:
        found = why(events, request)
        assert len(shown(why_lines(found, by_pos, 80, name="t.jsonl"))) <= SCREEN
        json.dumps(found.as_json())
        if report.inconclusive and found.lost:
            assert found.verdict not in (Verdict.EXONERATED, Verdict.RECOMPUTED)
    for finding in report.findings[:5]:
        named = {p: by_pos[p] for p in positions(finding) if p in by_pos}
        story = chosen(finding, named, events)
        json.dumps(story.as_json())
        shown(story_lines(story, 80))
    other = list(events)
    Random(seed).shuffle(other)
    lanes = divergence(events, other[: len(other) // 2])
    shown(difference_lines(Difference(("a", "b"), (report, report), lanes), 80))
    try:
        early = preflight(events)
    except TraceError:
        return
    shown(preflight_lines(early, Checked("t.jsonl", early.report, by_pos), 80))


def reports(report: Report, by_pos: dict[int, Event]) -> None:
    """Every format, and what reads it."""
    checked = Checked("t.jsonl", report, by_pos)
    json.loads(json_line(checked))
    json.loads(sarif([checked]))
    Xml.fromstring(junit([checked], Severity.ERROR))
    assert all(line.isprintable() for line in github_lines(checked))


@settings(max_examples=40)
@given(SEEDS)
def test_a_hostile_stream(seed: int) -> None:
    ask(seed, 60)


@pytest.mark.soak
@given(SEEDS)
def test_many_hostile_streams(seed: int) -> None:
    ask(seed, 200)
