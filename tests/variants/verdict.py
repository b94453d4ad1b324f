"""How a checker did on a case: found, precise, placed, clean, as the corpus is scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report

from .case import Case

ALWAYS_WARNING = {"HKV308"}
EITHER = {"HKV103", "HKV502", "HKV703", "HKV903"}


def report_on(events: Sequence[dict[str, Any]]) -> Report:
    return check([Event.of(n, dict(e)) for n, e in enumerate(events, 1)])


def loud(report: Report, allowed: Iterable[str] = ALWAYS_WARNING) -> list[Finding]:
    """Errors and warnings, but those that correct engines give too."""
    return [f for f in report.findings if str(f.severity) != "info" and f.code not in allowed]


def shortfalls(case: Case) -> list[str]:
    """What is wrong with the verdict on a finished case; empty where it is as it must be."""
    expect = case.info["expect"]
    must, may = set(expect["must"]), set(expect.get("may", ()))
    report = report_on(case.bad)
    roots = [f for f in report.findings if not f.cause and str(f.severity) != "info"]
    hits = [f for f in roots if f.code in must and _severity_fits(f) and len(f.events) <= 8]
    wrong = []
    missing = must - {f.code for f in hits}
    if missing:
        wrong.append(f"not found: {sorted(missing)}, but {[(f.code, f.events) for f in roots]}")
    extra = {f.code for f in roots} - must - may - ALWAYS_WARNING
    if extra:
        wrong.append(f"not precise: {[(f.code, f.message) for f in roots if f.code in extra]}")
    for code in must - missing:
        if not any(_at_focus(f, case.focus) for f in hits if f.code == code):
            wrong.append(f"not placed: {[(f.code, f.events, f.blocks) for f in hits]}")
    false = loud(report_on(case.good))
    if false:
        wrong.append(f"not clean: {[(f.code, f.events, f.message) for f in false]}")
    return wrong


def _severity_fits(f: Finding) -> bool:
    severity = str(f.severity)
    if f.code in ALWAYS_WARNING:
        return severity == "warning"
    return severity == "error" or (f.code in EITHER and severity == "warning")


def _at_focus(f: Finding, focus: dict[str, Any]) -> bool:
    if focus.get("line") in f.events:
        return True
    same = not focus.get("req") or f.request == focus["req"]
    return same and bool(set(focus.get("blocks") or ()) & set(f.blocks))
