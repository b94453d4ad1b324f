"""A report for a person: the sentence first, then check and use, then belief against truth."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES, Severity
from hkvtool.model.text import compact, event_line, facts_line, shown
from hkvtool.report.checked import alike, role
from hkvtool.report.checked import positions as named

MAX_WIDTH = 110
"""Wider lines are hard to read, however wide the screen."""

_LABEL = 10

_NAMED = 6
"""Things that are listed by name before the rest are counted."""


class Line(NamedTuple):
    """One line of output and how it is set off; a style is never the only signal."""

    text: str
    style: str = ""


_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def report_lines(
    report: Report,
    events: Mapping[int, Event],
    width: int,
    *,
    name: str = "",
    every: bool = False,
) -> Iterator[Line]:
    """The report as lines at most `width` wide; `events` are those that its findings name.

    Findings of one rule and group are shown once and counted, unless `every` one is asked for.
    """
    width = max(40, min(width, MAX_WIDTH))
    for line in _wrapped("", _heading(report, name), width, indent=0):
        yield Line(line.text, "bold")
    yield from _asked(report, width)
    roots = sorted(
        (f for f in report.findings if not f.cause), key=lambda f: (-f.severity.rank, f.events[:1])
    )
    by_id = {f.id: f for f in report.findings}
    for group in alike(roots, every):
        yield Line("")
        yield from finding_lines(group[0], by_id, events, width)
        if len(group) > 1:
            yield from _more(group, width)
    if not roots:
        yield Line("")
        yield Line("no finding, as far as the evidence goes", "green")
    yield Line("")
    yield from _ratios(report, width)
    yield from _not_evaluable(report, width)
    for said in report.inconclusive:
        yield Line(f"inconclusive: {shown(said)}", "yellow")
    yield Line(_summary(report), "bold")


def _more(found: Sequence[Finding], width: int) -> Iterator[Line]:
    """The findings that are like the first, in a line or two."""
    rest = found[1:]
    requests = list(dict.fromkeys(f.request for f in rest if f.request is not None))
    text = f"{len(rest)} like it, events {_some([p for f in rest for p in f.events[-1:]])}"
    if requests:
        text += f"; requests {_some(requests)}"
    yield from _row("and", text, width)


def _some(values: Sequence[object]) -> str:
    head = ", ".join(shown(v) for v in values[:_NAMED])
    return head if len(values) <= _NAMED else f"{head}, … ({len(values)})"


def _asked(report: Report, width: int) -> Iterator[Line]:
    """What of the trace was asked about, under which limits, and what was left out as known."""
    said = []
    part = report.trace.get("part") or {}
    if "request" in part:
        said.append(f"request {shown(part['request'])}")
    if "since" in part or "until" in part:
        said.append(f"events {part.get('since', 'first')} to {part.get('until', 'last')}")
    if said:
        said[0] = f"only {said[0]}"
    limits = report.trace.get("limits") or {}
    said += [f"as if {name} were limited to {value:,}" for name, value in limits.items()]
    if report.trace.get("known"):
        known = report.trace["known"]
        said.append(f"{known:,} known finding{'s' * (known != 1)} left out")
    if said:
        yield from _wrapped("", "; ".join(said), width, indent=0)


def _heading(report: Report, name: str) -> str:
    facts = [shown(name)] if name else []
    if report.trace.get("engine"):
        facts.append(shown(report.trace["engine"]))
    facts.append(f"{report.trace['events']:,} events")
    facts.append("evidence " + (", ".join(map(shown, report.trace["evidence"])) or "none"))
    return " · ".join(facts)


def finding_lines(
    finding: Finding, by_id: Mapping[str, Finding], events: Mapping[int, Event], width: int
) -> Iterator[Line]:
    """One root finding in full, and what follows from it."""
    rule = RULES[finding.code]
    style = _STYLES[finding.severity]
    yield Line(f"{finding.severity!s} {finding.id} {finding.code} {rule.name}", style)
    yield from _wrapped("", shown(finding.message), width, indent=2)
    yield from _moments(finding, events, width)
    if finding.blocks:
        place = f"{finding.pool}:" if finding.pool else ""
        yield from _row("blocks", place + compact(finding.blocks), width)
    if finding.believed:
        yield from _row("believed", facts_line(finding.believed), width)
    if finding.actual:
        yield from _row("true", facts_line(finding.actual), width)
    if finding.need:
        yield from _row("needs", finding.need, width)
    if finding.edge:
        yield from _row("missing", finding.edge, width)
    yield from _row("fix", rule.fix, width)
    for caused in finding.caused:
        after = by_id[caused]
        text = f"{after.id} {after.code} {RULES[after.code].name}: {shown(after.message)}"
        yield from _row("follows", text, width, cut=True)


def _moments(finding: Finding, events: Mapping[int, Event], width: int) -> Iterator[Line]:
    """The events of a finding in order, the check and the use told apart from the rest."""
    for pos in named(finding):
        event = events.get(pos)
        text = event_line(event) if event is not None else ""
        yield from _row(role(finding, pos), f"{pos:>5}  {text}", width, cut=True)


def _row(label: str, text: str, width: int, *, cut: bool = False) -> Iterator[Line]:
    return _wrapped(label, text, width, indent=2, cut=cut)


def _wrapped(
    label: str, text: str, width: int, *, indent: int, cut: bool = False
) -> Iterator[Line]:
    """Text beside its label, continued below itself; `cut` keeps it to one line."""
    head = " " * indent + (f"  {label:<{_LABEL}}" if label else "")
    room = width - len(head)
    if cut:
        yield Line(head + (text if len(text) <= room else text[: room - 1] + "…"))
        return
    lines = textwrap.wrap(text, room, break_long_words=True, break_on_hyphens=False) or [""]
    for i, line in enumerate(lines):
        yield Line((head if i == 0 else " " * len(head)) + line)


def _ratios(report: Report, width: int) -> Iterator[Line]:
    ratios = report.ratios
    if not ratios.asked:
        yield Line("match ratio: no lookup asked for tokens")
        return
    share = [f"{100 * n / ratios.asked:.1f} %" for n in (ratios.matched, ratios.resumable)]
    yield Line(
        f"match ratio {share[0]} ({ratios.matched:,} of {ratios.asked:,} tokens asked for), "
        f"resumable ratio {share[1]} ({ratios.resumable:,})"
    )
    for loss in ratios.lost_by:
        where = f" by group {shown(loss.group)}" if loss.group else ""
        name = RULES[loss.code].name
        yield from _row("lost", f"{loss.tokens:,} tokens{where}: {loss.code} {name}", width)


def _not_evaluable(report: Report, width: int) -> Iterator[Line]:
    by_need: dict[tuple[str, ...], list[str]] = {}
    for code, needs in report.not_evaluable.items():
        by_need.setdefault(tuple(needs), []).append(code[3:])
    said = [f"{' '.join(codes)} (needs {' and '.join(needs)})" for needs, codes in by_need.items()]
    if said:
        yield from _wrapped("", "not evaluable: HKV " + "; ".join(said), width, indent=0)


def _summary(report: Report) -> str:
    counts = [(report.count(s), str(s)) for s in Severity]
    said = ", ".join(f"{n} {word}{'s' * (n != 1)}" for n, word in counts if n or word == "error")
    attached = sum(1 for f in report.findings if f.cause)
    return said + (f" ({attached} more follow from them)" if attached else "")


def positions(reports: Sequence[Report]) -> set[int]:
    """Positions that the findings of reports name."""
    found: set[int] = set()
    for report in reports:
        for f in report.findings:
            if not f.cause:
                found.update(named(f))
    return found
