"""Findings by root cause, and one of them with its check and its use side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import compact, event_line, shown
from hkvtool.tui.lanes import lane_lines
from hkvtool.tui.lines import Line, Span, fitted, heading, labelled, line, named, wrapped

_SHOWN = 8
"""Findings like the chosen one that are listed around it."""

_BOTH, _ONE = 24, 8
"""Columns from which on a request and its group are named beside a finding, and one of them."""

ROLES = {"error": "bad", "warning": "warn", "info": "info"}


def list_lines(
    roots: Sequence[Finding], width: int, chosen: Finding | None = None
) -> Iterator[Line]:
    """Root findings put together by rule and group; those like the chosen one, one by one."""
    for alike in by_cause(roots):
        yield _listed(alike[0], width, len(alike))
        if len(alike) > 1 and chosen is not None and chosen in alike:
            at = max(0, min(alike.index(chosen) - _SHOWN // 2, len(alike) - _SHOWN))
            listed = alike[max(1, at) : at + _SHOWN]
            for f in listed:
                yield _listed(f, width, 1, inner=True)
            if len(alike) > len(listed) + 1:
                more = f"and {len(alike) - len(listed) - 1:,} more like it: n, N"
                yield line(("  │ ", "edge"), (fitted(more, width - 4), "dim"))


def by_cause(roots: Sequence[Finding]) -> list[list[Finding]]:
    """Findings of one rule, severity and group together, in the order of the first of each."""
    found: dict[tuple[str, str, str | None], list[Finding]] = {}
    for f in roots:
        found.setdefault((str(f.severity), f.code, f.group), []).append(f)
    return list(found.values())


def _listed(f: Finding, width: int, count: int, inner: bool = False) -> Line:
    role = ROLES[str(f.severity)]
    mark = {"error": "✗ ", "warning": "! ", "info": "i "}[str(f.severity)]
    many = f" ×{count:,}" if count > 1 else ""
    follow = f" +{len(f.caused)}" if f.caused else ""
    name = "" if inner else f" {f.code[3:]} {RULES[f.code].name}"
    text = fitted(f"{f.id:<4}{name}{follow}", max(12, width - len(many) - 4))
    where = _where(f, width - len(text) - len(many) - 5)
    gap = " " * max(1, width - len(text) - len(where) - len(many) - 3)
    head = "  │ " if inner else mark
    return line((head, role if not inner else "edge"), text, (many, "bold"), gap[len(head) - 2 :],
                (where, "dim"), key=("finding", f.id))  # fmt: skip


def _where(f: Finding, room: int) -> str:
    """Request and group of a finding, as far as there is room."""
    names = [shown(x) for x in (f.request, f.group) if x]
    if sum(map(len, names)) + len(names) - 1 <= room:
        return " ".join(names)
    if len(names) == 2 and room >= _BOTH:
        group = min(len(names[1]), max(room // 3, room - len(names[0]) - 1))
        return f"{named(names[0], room - group - 1)} {named(names[1], group)}"
    return named(names[0], room) if room >= _ONE else ""


def finding_lines(
    finding: Finding, by_id: Mapping[str, Finding], events: Sequence[Event], width: int, now: int,
    lookups: Sequence[int] = (),
) -> Iterator[Line]:  # fmt: skip
    """One finding in full. `events` are those of its stretch of the trace, `lookups` what is
    settled of lookups, as `Ratios` has it."""
    rule = RULES[finding.code]
    role = ROLES[str(finding.severity)]
    yield line((f"{finding.id} {finding.code} {rule.name}", role), (f"  {rule.family}", "dim"))
    yield from wrapped(shown(finding.message), width, "bold")
    yield from _loss(finding, events, lookups, width)
    yield line("")
    yield from _sides(finding, by_id, {e.pos: e for e in events}, width)
    yield line("")
    yield heading("what happened, lane by lane")
    yield from lane_lines(finding, use_of(finding, by_id), events, width, now)
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


def _loss(
    finding: Finding, events: Sequence[Event], lookups: Sequence[int], width: int
) -> Iterator[Line]:
    """What it costs the request: how much of its prefix."""
    asked = [
        e.pos for e in events if e.ev == "lookup" and e.problem is None
        and finding.request is not None and e.req == finding.request
        and e.pos <= (finding.check or finding.use or 0)
    ]  # fmt: skip
    if not asked:
        return
    for pos, _, matched, good in zip(*(iter(lookups),) * 4, strict=True):
        if pos == asked[-1] and good < matched:
            left = f"{good:,}" if good else "none"
            text = f"of the {matched:,} tokens that matched, {left} can be resumed"
            yield from wrapped(f"{shown(finding.request)}: {text}", width, "bad")


def _sides(
    finding: Finding, by_id: Mapping[str, Finding], events: Mapping[int, Event], width: int
) -> Iterator[Line]:
    """The check and what it believed, beside the use and what was true."""
    half = max(16, (width - 3) // 2)
    use = use_of(finding, by_id)
    if not finding.edge and (finding.check is None) != (use is None):
        # One event alone is told as wide as there is room.
        name, pos = ("CHECK", finding.check) if use is None else ("USE", use)
        yield from _side(name, pos, finding.believed, "believed", events, width)
        yield from _facts(finding.actual, "true", width)
        return
    if finding.edge:
        # What the second took for its own, and whose it still was.
        left = list(_side("FIRST", finding.check, finding.actual, "true", events, half))
        right = list(_side("SECOND", use, finding.believed, "believed", events, half))
    else:
        left = list(_side("CHECK", finding.check, finding.believed, "believed", events, half))
        right = list(_side("USE", use, finding.actual, "true", events, half))
    for number in range(max(len(left), len(right))):
        here = left[number] if number < len(left) else line("")
        there = right[number] if number < len(right) else line("")
        gap = " " * max(0, half - len(here.text))
        yield Line(
            (*here.spans, (gap + " ", ""), ("│ ", "edge"), *there.spans), here.key or there.key
        )


def use_of(finding: Finding, by_id: Mapping[str, Finding]) -> int | None:
    """The use of a finding; of one that was told at its check, that of what followed."""
    if finding.use is not None:
        return finding.use
    after = (by_id.get(number) for number in finding.caused)
    return next((f.use for f in after if f is not None and f.use is not None), None)


def _side(
    name: str, pos: int | None, facts: Mapping[str, Any], label: str, events: Mapping[int, Event],
    width: int,
) -> Iterator[Line]:  # fmt: skip
    key = None if pos is None else ("pos", pos)
    yield line((name, "title"), (f"  at {pos}" if pos is not None else "  not named", "label"),
               key=key)  # fmt: skip
    event = events.get(pos) if pos is not None else None
    if event is not None:
        for row in list(wrapped(event_line(event)[: 4 * width], width))[:3]:
            yield row._replace(key=key)
    yield from _facts(facts, label, width)


def _facts(facts: Mapping[str, Any], label: str, width: int) -> Iterator[Line]:
    """What one side took for true, or what was."""
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
    return (head, role), (fitted(shown(finding.message), room), "")


def ids(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Findings by id."""
    return {f.id: f for f in findings}
