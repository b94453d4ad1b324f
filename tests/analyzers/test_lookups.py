"""Ratios one by one, and what blocks went through: the parts make up the whole."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from report import told

from hkvtool.analyzers import check
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.family import Family
from hkvtool.analyzers.lifetimes import Level, Lifetimes, Spans
from hkvtool.analyzers.lookups import Lookups, by, by_group, by_time, summed
from hkvtool.model.event import Event
from hkvtool.model.findings import Report


def watched(events: list[Event], make: Callable[[Context], Family]) -> tuple[Report, Any]:
    seen: list[Family] = []

    def watch(ctx: Context) -> Family:
        seen.append(make(ctx))
        return seen[0]

    return check(events, observers=[watch]), seen[0]


def test_the_parts_make_up_the_whole(case: Any, read_events: Any) -> None:
    for path in case.arms:
        report, lookups = watched(read_events(path), Lookups)
        rows = lookups.settled
        whole = report.ratios.as_json()
        assert summed(rows).as_json() == whole
        for parts in (
            [r for _, _, r in by_time(rows, 7)], by(rows, "request").values(),
            by(rows, "tenant").values(),
        ):  # fmt: skip
            for key in ("asked", "matched", "resumable"):
                assert sum(getattr(r, key) for r in parts) == whole[key]
        cost = sum(told["lost"] for told in by_group(rows).values())
        assert cost == sum(loss.tokens for loss in report.ratios.lost_by if loss.group)


def test_a_row_says_who_asked_and_what_it_lost() -> None:
    _, lookups = watched(told.bad(), Lookups)
    (row,) = lookups.settled
    assert (row.request, row.tenant, row.asked, row.matched) == ("r2", "acme", 40, 32)
    assert [(loss.code, loss.group, loss.tokens) for loss in row.lost] == [("HKV303", "w", 32)]
    assert row.resumable == 0 and row.hits == {"kv": 32, "w": 0}


def test_stretches_of_time_cover_all_of_it() -> None:
    data = [
        {"ev": "lookup", "req": f"r{i}", "tokens": 10, "hit": {"kv": i % 3}, "ts": 1000 * i}
        for i in range(11)
    ]
    events = [*told.events(), *(Event.of(100 + i, e) for i, e in enumerate(data))]
    _, lookups = watched(events, Lookups)
    stretches = by_time(lookups.settled, 4)
    assert len(stretches) == 4 and stretches[0][0] == 0 and stretches[-1][1] > 10_000
    assert all(one[1] == other[0] for one, other in pairwise(stretches))


def test_too_much_on_its_way_costs_no_token(cases: Any, read_events: Any) -> None:
    report = check(read_events(cases["C04"].bad))
    assert [f.code for f in report.findings] == ["HKV501"]
    assert report.ratios.resumable == report.ratios.matched


def test_lives_of_blocks() -> None:
    _, lifetimes = watched(told.bad(), Lifetimes)
    found = lifetimes.as_json()
    lives = {life["group"]: life for life in found["blocks"]}
    assert (lives["kv"]["allocated"], lives["kv"]["hit_again"]) == (2, 2)
    # Block 3 is let go of at event 18 and given to x at 21.
    assert lives["w"]["kept"]["count"] == 1 and lives["w"]["kept"]["p50"] == pytest.approx(3, abs=1)
    forms = {(f["form"], f["state"]): f["peak_blocks"] for f in found["forms"]}
    assert forms["compressed", "held"] == 2 and forms["swa", "cached"] == 1


def test_what_is_on_its_way(cases: Any, read_events: Any) -> None:
    _, lifetimes = watched(read_events(cases["C04"].bad), Lifetimes)
    found = lifetimes.as_json()
    assert found["recovering"]["peak_blocks"] == 33 and found["recovering"]["cap"] == 24
    assert found["migration"]["loads"] == 3 and found["migration"]["stores"] == 0
    assert found["migration"]["bytes_in"] == found["migration"]["peak_bytes_in_flight"]


def test_quantiles_are_right_within_a_tenth() -> None:
    spans = Spans()
    assert spans.quantile(0.5) is None
    for length in range(1, 1001):
        spans.add(length)
    for share in (0.5, 0.9, 0.99):
        assert spans.quantile(share) == pytest.approx(1000 * share, rel=0.1)


def test_a_mean_is_by_time() -> None:
    level = Level()
    level.change(4, 10, 1)
    level.change(-3, 30, 2)
    assert level.mean(0, 40) == pytest.approx((20 * 4 + 10 * 1) / 40)
    assert (level.peak, level.peak_pos) == (4, 1)
