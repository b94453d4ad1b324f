"""The matrix of a hit says of each group what the check says of the resume."""

from __future__ import annotations

from pathlib import Path

import pytest

from hkvtool.analyzers import check
from hkvtool.store import open_trace
from hkvtool.tui.hit import strip, with_findings
from hkvtool.tui.hit_lines import hit_lines, resumable
from hkvtool.tui.lines import plain
from hkvtool.tui.session import Session

JUDGED_AT_THE_RESUME = {
    "HKV101", "HKV102", "HKV103", "HKV105", "HKV301", "HKV302", "HKV303", "HKV304", "HKV306",
}  # fmt: skip


BY_THE_CHECK_ONLY = {("S03", "HKV301")}
"""A codec that only the history of what wrote the bytes tells."""


def test_the_group_that_a_finding_names_fails_in_the_matrix(cases) -> None:  # type: ignore[no-untyped-def]
    compared = 0
    for case in cases.values():
        with open_trace(case.bad) as trace:
            report = check(trace.events())
            resumes = {e.pos for e in trace.events(kinds={"resume"})}
            session = Session(trace)
            for f in report.findings:
                if f.code not in JUDGED_AT_THE_RESUME or f.check not in resumes or f.cause:
                    continue
                if f.use is not None and f.use != f.check:
                    # What was fine when it was checked.
                    continue
                hit = session.look(f.check, req=f.request).hit
                assert hit is not None and hit.pos == f.check
                alone = next(g for g in hit.groups if g.group == f.group)
                if (case.id, f.code) not in BY_THE_CHECK_ONLY:
                    assert f.code in alone.codes and alone.recovery, (case.id, f.code, alone.codes)
                told = with_findings(hit, report)
                row = next(g for g in told.groups if g.group == f.group)
                assert f.code in row.codes and row in told.failing
                assert row.layer == min(int(code[3]) for code in row.codes)
                text = plain(hit_lines(hit, 110, report=report, now=f.check))
                assert "first to fail" in text and f.code in text
                compared += 1
    assert compared >= 6


def test_of_a_correct_engine_every_group_can_resume(cases) -> None:  # type: ignore[no-untyped-def]
    seen = 0
    for case in cases.values():
        with open_trace(case.good) as trace:
            session = Session(trace)
            for event in trace.events(kinds={"resume"}):
                hit = session.look(event.pos, req=event.req).hit
                assert hit is not None
                routes = event.get("route") or {}
                waiting = [g for g in hit.failing if routes.get(g.group, "reuse") == "reuse"]
                assert all(f.waiting for g in waiting for f in g.faults), (case.id, event.pos)
                seen += 1
    assert seen > 20


def test_numbers_come_from_the_report(cases) -> None:  # type: ignore[no-untyped-def]
    with open_trace(cases["A01"].bad) as trace:
        session, report = Session(trace), check(trace.events())
        hit = session.look(38).hit
        assert hit is not None
        assert (hit.asked, hit.matched, hit.at) == (1300, 1024, 1024)
        assert resumable(hit, report) == report.ratios.resumable == 512
        assert resumable(hit, None) is None
        assert "not checked" in plain(hit_lines(hit, 80))
        assert hit.vetoed_by is not None and hit.vetoed_by.group == "fa"
        # At the lookup nothing is decided yet.
        before = session.look(35).hit
        assert before is not None and before.resume is None
        assert "not resumed yet" in plain(hit_lines(before, 80))


@pytest.mark.parametrize("width", [1, 7, 80, 1000])
def test_a_strip_has_its_width_and_shows_every_fault(cases, width: int) -> None:  # type: ignore[no-untyped-def]
    with open_trace(cases["A01"].bad) as trace:
        hit = Session(trace).look(38).hit
        assert hit is not None
        for row in hit.groups:
            cells = strip(row, hit.asked, width)
            assert len(cells) == width
            assert bool(row.faults) == any(c.startswith("HKV") for c in cells)


def test_a_trace_without_a_check_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"ev": "admit", "req": "r"}\n')
    with open_trace(path) as trace:
        assert Session(trace).look(1).hit is None
        assert "No request has looked up" in plain(hit_lines(None, 80))
