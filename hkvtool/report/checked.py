"""What every renderer is given: one trace that was checked, or that could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.text import event_line


@dataclass(slots=True)
class Checked:
    """`report` is None where the trace could not be read, and `trouble` says why: `error`, and
    where there is more to say `where` and `hint`.

    `events` are those that the root findings name. `lines` says that positions are line numbers
    of the file.
    """

    name: str
    report: Report | None
    events: Mapping[int, Event] = field(default_factory=dict)
    trouble: Mapping[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> bool:
        return self.name.endswith((".jsonl", ".json"))

    @property
    def error(self) -> str:
        """The trouble for a person: what, where, and what to do next."""
        more = [f"{key}: {self.trouble[key]}" for key in ("where", "hint") if key in self.trouble]
        return "\n".join([self.trouble.get("error", ""), *more])

    @property
    def uri(self) -> str:
        return quote(self.name, errors="surrogateescape")

    @property
    def roots(self) -> list[Finding]:
        """Root findings, the gravest first."""
        found = [] if self.report is None else self.report.findings
        roots = [f for f in found if not f.cause]
        return sorted(roots, key=lambda f: (-f.severity.rank, f.events[:1]))

    def moments(self, finding: Finding) -> Iterator[tuple[str, int, str]]:
        """The events of a finding in order: what each is to it, its position, its text."""
        for pos in positions(finding):
            event = self.events.get(pos)
            yield role(finding, pos), pos, "" if event is None else event_line(event)


def positions(finding: Finding) -> list[int]:
    """Where a finding points at, in order."""
    return sorted({*finding.events, *(p for p in (finding.check, finding.use) if p)})


def place(finding: Finding) -> int | None:
    """The one position that says best where a finding is: the use, else the check."""
    named = positions(finding)
    return finding.use or finding.check or (named[-1] if named else None)


def role(finding: Finding, pos: int) -> str:
    """What an event is to a finding."""
    if pos == finding.check:
        return "check"
    if pos == finding.use:
        return "use"
    if finding.use is not None and pos > max(finding.use, finding.check or 0):
        return "after"
    if finding.check is None or pos < finding.check:
        return "before"
    return "between"


def alike(roots: Sequence[Finding], every: bool = False) -> list[list[Finding]]:
    """Root findings put together by rule, severity and group, in the order of the first of each."""
    if every:
        return [[f] for f in roots]
    found: dict[tuple[str, str, str | None], list[Finding]] = {}
    for f in roots:
        found.setdefault((str(f.severity), f.code, f.group), []).append(f)
    return list(found.values())
