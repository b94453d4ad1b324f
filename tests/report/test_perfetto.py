"""The timeline is what the viewer can draw: sequential tracks, closed slices, bound arrows."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.report.perfetto import (
    FINDINGS,
    LANES,
    POOLS,
    STEPS,
    TRANSFERS,
    export_perfetto,
)
from hkvtool.report.perfetto_json import JsonTimeline


def exported(events: list[Event], most: int = 10**6) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    stream = io.BytesIO()
    export_perfetto(events, JsonTimeline(stream), most=most)
    data = json.loads(stream.getvalue())
    return data["traceEvents"], data["otherData"]


def test_every_case_can_be_drawn(case: Any, read_events: Callable[..., list[Event]]) -> None:
    for arm in case.arms:
        events = read_events(arm)
        records, about = exported(events)
        drawable(records)
        assert about["left_out"] == 0
        happened = [e for e in events if e.ev not in DECLARATIONS and e.problem is None]
        slices = [r for r in records if r["ph"] == "X"]
        assert Counter(r["name"] for r in slices) == Counter(e.ev for e in happened)
        lanes = {r["args"]["name"] for r in records if r["name"] == "thread_name"}
        assert lanes == {e.actor for e in happened}
        told = {f.id for f in check(events).findings}
        drawn = {r["id"] for r in records if r["pid"] == FINDINGS and r["ph"] == "b"}
        assert drawn <= told


def drawable(records: list[dict[str, Any]]) -> None:
    ends: dict[int, float] = defaultdict(float)
    slices: dict[int, list[tuple[float, float]]] = defaultdict(list)
    opened: Counter[tuple[int, str]] = Counter()
    for r in records:
        if r["ph"] == "X":
            assert r["pid"] == LANES and r["ts"] >= ends[r["tid"]] - 1e-9
            ends[r["tid"]] = r["ts"] + r["dur"]
            slices[r["tid"]].append((r["ts"], r["ts"] + r["dur"]))
        elif r["ph"] in "be":
            opened[r["pid"], r["id"]] += 1 if r["ph"] == "b" else -1
            assert opened[r["pid"], r["id"]] >= 0
        elif r["ph"] == "C":
            assert r["pid"] == POOLS and all(v >= 0 for v in r["args"].values()), r
    assert not any(n for (pid, _), n in opened.items() if pid == FINDINGS)
    for r in records:
        if r["ph"] in "stf":
            assert any(a <= r["ts"] <= b for a, b in slices[r["tid"]]), "an arrow needs a slice"


def test_the_race_has_its_arrow_the_steps_and_transfers_their_slices(
    cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    records, _ = exported(read_events(cases["B03"].bad))
    arrow = [r for r in records if r["ph"] in "stf" and r["name"] == "F1 HKV703"]
    assert arrow[0]["ph"] == "s" and arrow[-1]["ph"] == "f"
    assert len({r["tid"] for r in arrow}) > 1, "from lane to lane"
    assert any(r["pid"] == STEPS and r["ph"] == "b" for r in records)
    assert any(r["pid"] == TRANSFERS and r["ph"] == "b" for r in records)


def test_counters_add_up_to_the_pool(cases: Any, read_events: Callable[..., list[Event]]) -> None:
    events = read_events(cases["A01"].good)
    size = {str(e["pool"]): e["blocks"] for e in events if e.ev == "pool"}
    records, _ = exported(events)
    counters = [r for r in records if r["ph"] == "C" and r["name"].endswith(" blocks")]
    assert counters
    for r in counters:
        assert sum(r["args"].values()) == size[r["name"].removesuffix(" blocks")]
    ratios = [r["args"] for r in records if r["ph"] == "C" and r["name"] == "ratios, %"]
    report = check(events).ratios
    assert ratios[-1]["match"] == round(100 * report.matched / report.asked, 2)


def test_what_is_cut_is_said_and_findings_stay(
    cases: Any, read_events: Callable[..., list[Event]]
) -> None:
    events = read_events(cases["B03"].bad)
    records, about = exported(events, most=20)
    assert about["left_out"] > 0
    assert any(r["pid"] == FINDINGS and r["ph"] == "b" for r in records)


@pytest.mark.parametrize("lines", [[], [{"ev": "trace", "format": "hkv/1"}]])
def test_an_empty_trace_is_an_empty_timeline(lines: list[dict[str, Any]]) -> None:
    records, about = exported([Event.of(i, data) for i, data in enumerate(lines, 1)])
    assert about["events"] == len(lines) and all(r["ph"] == "M" for r in records)
