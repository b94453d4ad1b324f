"""Findings by root cause, and one of them with its check and its use side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import compact, event_line, shown
from hkvtool.tui.lanes import lane_lines
from hkvtool.tui.lines import Line, Span, fitted, heading, labelled, line, wrapped

ROLES = {"error": "bad", "warning": "warn", "info": "info"}


def list_lines(roots: Sequence[Finding], width: int) -> Iterator[Line]:
    """Root findings, a line each."""
    for f in roots:
        role = ROLES[str(f.severity)]
        follow = f" +{len(f.caused)}" if f.caused else ""
        where = " ".join(shown(x) for x in (f.request, f.group) if x)
        head = f"{f.id:<4} {f.code} {RULES[f.code].name}"
        text = fitted(f"{head}{follow}", max(20, width - len(where) - 3))
        gap = " " * max(1, width - len(text) - len(where) - 2)
        mark = {"error": "✗ ", "warning": "! ", "info": "i "}[str(f.severity)]
        yield line((mark, role), text, gap, (where, "dim"), key=("finding", f.id))


def finding_lines(
    finding: Finding, by_id: Mapping[str, Finding], events: Sequence[Event], width: int, now: int
) -> Iterator[Line]:
    """One finding in full. `events` are those of its stretch of the trace, as far as they matter."""
    rule = RULES[finding.code]
    role = ROLES[str(finding.severity)]
    yield line((f"{finding.id} {finding.code} {rule.name}", role), (f"  {rule.family}", "dim"))
    yield from wrapped(shown(finding.message), width, "bold")
    yield line("")
    yield from _sides(finding, {e.pos: e for e in events}, width)
    yield line("")
    yield heading("what happened, lane by lane")
    yield from lane_lines(finding, events, width, now)
    yield line("")
    if finding.blocks:
        place = f"{shown(finding.pool)}:" if finding.pool else ""
        key = ("block", finding.pool, finding.blocks[0]) if finding.pool else None
        for row in labelled("blocks", place + compact(finding.blocks), width):
            yield row._replace(key=key)
    if finding.tokens:
        yield from labelled("tokens", f"{finding.tokens[0]:,}..{finding.tokens[1]:,}", width)
    if finding.need:
        yield from labelled("needs", finding.need, width)
    if finding.edge:
        yield from labelled("missing", finding.edge, width, "bad")
    yield from labelled("fix", finding.fix, width)
    for number in finding.caused:
        after = by_id.get(number)
        if after is not None:
            text = f"{after.id} {after.code}: {shown(after.message)}"
            yield from labelled("follows", fitted(text, width * 2), width)
    if finding.cause:
        yield from labelled("follows from", finding.cause, width, column=13)


def _sides(finding: Finding, events: Mapping[int, Event], width: int) -> Iterator[Line]:
    """The check and what it believed, beside the use and what was true."""
    half = max(16, (width - 3) // 2)
    left = list(_side("CHECK", finding.check, finding.believed, "believed", events, half))
    right = list(_side("USE", finding.use, finding.actual, "true", events, half))
    for number in range(max(len(left), len(right))):
        one = left[number] if number < len(left) else line("")
        other = right[number] if number < len(right) else line("")
        gap = " " * max(0, half - len(one.text))
        key = one.key if one.key == other.key or not other.key else one.key or other.key
        yield Line((*one.spans, (gap + " ", ""), ("│ ", "edge"), *other.spans), key)


def _side(
    name: str, pos: int | None, facts: Mapping[str, Any], label: str, events: Mapping[int, Event],
    width: int,
) -> Iterator[Line]:  # fmt: skip
    key = None if pos is None else ("pos", pos)
    yield line((name, "title"), (f"  at {pos}" if pos is not None else "  not named", "label"),
               key=key)  # fmt: skip
    event = events.get(pos) if pos is not None else None
    if event is not None:
        for row in list(wrapped(event_line(event), width))[:3]:
            yield row._replace(key=key)
    for k, v in facts.items():
        text = "none" if v is None else compact(v)
        yield from labelled(label, f"{shown(k).replace('_', ' ')} {text}", width)
        label = ""


def summary_lines(report: Report, width: int) -> Iterator[Line]:
    """What was judged, and what could not be."""
    ratios = report.ratios
    if ratios.asked:
        yield line(
            ("match ratio ", "label"), (f"{100 * ratios.matched / ratios.asked:.1f} %", "bold"),
            ("  resumable ratio ", "label"),
            (f"{100 * ratios.resumable / ratios.asked:.1f} %",
             "bad" if ratios.resumable < ratios.matched else "good"),
            (f"  of {ratios.asked:,} tokens asked for", "dim"),
        )  # fmt: skip
    for said in report.inconclusive:
        yield from wrapped(f"inconclusive: {shown(said)}", width, "warn")
    by_need: dict[tuple[str, ...], list[str]] = {}
    for code, needs in report.not_evaluable.items():
        by_need.setdefault(tuple(needs), []).append(code[3:])
    if by_need:
        text = "; ".join(f"{' '.join(c)} (needs {' and '.join(n)})" for n, c in by_need.items())
        yield from wrapped(f"not evaluable: HKV {text}", width, "dim")


def headline(finding: Finding, width: int) -> tuple[Span, ...]:
    """A finding on one line."""
    role = ROLES[str(finding.severity)]
    head = f"{finding.id} {finding.code} {RULES[finding.code].name}: "
    room = max(0, width - len(head))
    return ((head, f"bar-{role}" if role == "bad" else "bar-bold"),
            (fitted(shown(finding.message), room), "bar"))  # fmt: skip


def ids(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Findings by id."""
    return {f.id: f for f in findings}
