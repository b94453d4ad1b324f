"""Two traces side by side: where each lane parts, findings only in one, the ratios of both."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from hkvtool.analyzers.divergence import Lane, differing
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Loss, Ratios, Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import event_line, shown
from hkvtool.report.baseline import fingerprint_of
from hkvtool.report.checked import place
from hkvtool.report.table import MAX_WIDTH, Line

SIDES = ("A", "B")

_LISTED = 8
"""Findings, and lanes that part, that are told one by one."""


@dataclass(slots=True)
class Difference:
    """What two traces differ in. `after` are the events of a listed lane from where it parts, by
    side."""

    names: tuple[str, str]
    reports: tuple[Report, Report]
    lanes: list[Lane]
    after: dict[tuple[str, int], list[Event]] = field(default_factory=dict)

    @property
    def only(self) -> tuple[list[Finding], list[Finding]]:
        """Root findings that only one of the two has."""
        kinds = [{fingerprint_of(f) for f in _roots(report)} for report in self.reports]
        return (
            [f for f in _roots(self.reports[0]) if fingerprint_of(f) not in kinds[1]],
            [f for f in _roots(self.reports[1]) if fingerprint_of(f) not in kinds[0]],
        )

    @property
    def same(self) -> bool:
        """Whether nothing parts and both say the same."""
        return not any(lane.parted for lane in self.lanes) and self.only == ([], [])

    def as_json(self) -> dict[str, Any]:
        only = self.only
        return {
            "traces": [
                {**report.trace, "path": name}
                for name, report in zip(self.names, self.reports, strict=True)
            ],
            "same": self.same,
            "lanes": [lane.as_json() for lane in self.lanes],
            "findings_only": {
                side: [f.as_json() for f in found] for side, found in zip(SIDES, only, strict=True)
            },
            "not_evaluable_only": {
                side: _lacking(self, i) for i, side in enumerate(SIDES)
            },
            "ratios": {
                side: report.ratios.as_json()
                for side, report in zip(SIDES, self.reports, strict=True)
            },
        }  # fmt: skip


def listed(lanes: Iterable[Lane]) -> list[Lane]:
    """The lanes that part and are told one by one."""
    return list(islice((lane for lane in lanes if lane.parted), _LISTED))


def _roots(report: Report) -> list[Finding]:
    return [f for f in report.findings if not f.cause]


def _lacking(diff: Difference, side: int) -> list[str]:
    """Rules that could be evaluated in the other trace and not in this one."""
    mine, theirs = diff.reports[side].not_evaluable, diff.reports[1 - side].not_evaluable
    return [code for code in mine if code not in theirs]


def difference_lines(diff: Difference, width: int) -> Iterator[Line]:
    """The difference as lines at most `width` wide."""
    width = max(40, min(width, MAX_WIDTH))
    for side, name, report in zip(SIDES, diff.names, diff.reports, strict=True):
        engine = f" · {shown(report.trace['engine'])}" if report.trace.get("engine") else ""
        text = f"{side} {shown(name)}{engine} · {report.trace['events']:,} events"
        yield Line(_cut(text, width), "bold")
    yield Line("")
    yield from _lanes(diff, width)
    yield Line("")
    yield from _findings(diff, width)
    yield Line("")
    yield from _ratios(diff.reports[0].ratios, diff.reports[1].ratios, width)


def _lanes(diff: Difference, width: int) -> Iterator[Line]:
    parted = [lane for lane in diff.lanes if lane.parted]
    alike = [lane for lane in diff.lanes if not lane.parted]
    for lane in listed(diff.lanes):
        counts = f"A {lane.counts[0]:,}, B {lane.counts[1]:,} events"
        text = f"lane {shown(lane.name)} parts after {lane.same:,} events alike ({counts})"
        yield Line(_cut(text, width), "bold")
        for i, side in enumerate(SIDES):
            events = diff.after.get((lane.name, i), [])
            if not events:
                yield Line(f"  {side}          has no more events of this lane")
            for k, event in enumerate(events):
                head = f"  {side if k == 0 else ' '} {event.pos:>8}  "
                yield Line(_cut(head + event_line(event), width), "" if k else "cyan")
        first = [diff.after.get((lane.name, i), [])[:1] for i in range(len(SIDES))]
        if all(first):
            keys = differing(first[0][0], first[1][0])
            if keys and keys != ["ev"]:
                yield from _wrapped("    differ in ", ", ".join(map(shown, keys)), width)
    if len(parted) > _LISTED:
        names = ", ".join(shown(lane.name) for lane in parted[_LISTED:])
        yield Line(_cut(f"and {len(parted) - _LISTED} more lanes part: {names}", width))
    if alike:
        names = ", ".join(f"{shown(lane.name)} ({lane.same:,})" for lane in alike)
        yield from _wrapped("lanes alike ", names, width)


def _findings(diff: Difference, width: int) -> Iterator[Line]:
    only = diff.only
    for side, found in zip(SIDES, only, strict=True):
        if not found:
            yield Line(f"findings only in {side}: none")
        else:
            yield Line(f"findings only in {side}: {len(found):,}", "bold")
        for f in found[:_LISTED]:
            said = f"{f.severity} {f.id} {f.code} {RULES[f.code].name}"
            yield Line(_cut(f"  {said} at event {place(f) or 0}", width), "red")
            yield from _wrapped("    ", shown(f.message), width)
        if len(found) > _LISTED:
            yield Line(f"  and {len(found) - _LISTED:,} more")
    both = len(_roots(diff.reports[0])) - len(only[0])
    if both:
        yield Line(f"findings in both: {both:,} of A, as the words of each go")
    for i, side in enumerate(SIDES):
        lacking = _lacking(diff, i)
        if lacking:
            codes = " ".join(code[3:] for code in lacking)
            yield from _wrapped(f"not evaluable only in {side} ", f"HKV {codes}", width)


def _ratios(one: Ratios, other: Ratios, width: int) -> Iterator[Line]:
    yield Line(f"{'':<34}{'A':>16}{'B':>16}", "bold")
    yield _row("tokens asked for", [f"{r.asked:,}" for r in (one, other)])
    for name in ("matched", "resumable"):
        label = {"matched": "match ratio", "resumable": "resumable ratio"}[name]
        yield _row(label, [_share(getattr(r, name), r.asked) for r in (one, other)])
    lost = [_by_rule(r.lost_by) for r in (one, other)]
    for key in dict.fromkeys([*lost[0], *lost[1]]):
        code, group = key
        label = f"  lost by {code[3:]}" + (f", {shown(group)}" if group else "")
        yield _row(label, [f"{said.get(key, 0):,}" for said in lost])


def _by_rule(losses: Sequence[Loss]) -> Mapping[tuple[str, str | None], int]:
    return {(loss.code, loss.group): loss.tokens for loss in losses}


def _row(label: str, values: Sequence[str]) -> Line:
    text = f"{label[:33]:<34}" + "".join(f"{v:>16}" for v in values)
    return Line(text, "" if len(set(values)) == 1 else "yellow")


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _wrapped(head: str, text: str, width: int) -> Iterator[Line]:
    lines = textwrap.wrap(
        text, max(20, width - len(head)), break_long_words=True, break_on_hyphens=False
    ) or [""]  # fmt: skip
    for i, line in enumerate(lines):
        yield Line((head if i == 0 else " " * len(head)) + line)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
