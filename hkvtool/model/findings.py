"""What a check says: findings, what could not be evaluated, and the two ratios.

`Report.as_json` is the contract of ``hkvtool check --format json``.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hkvtool.model.rules import RULES, Severity


@dataclass(slots=True)
class Finding:
    """One fault, or what follows from one.

    `events` are positions in the trace, at most eight, the telling ones. `check` and `use` are
    the two ends of check-then-use, or the two unordered accesses of a race. `believed` and
    `actual` say what each side took for true (form, version, generation, ...). A root finding
    has no `cause`; what follows from it names the root's `id` there.
    """

    code: str
    message: str
    events: list[int]
    severity: Severity = Severity.ERROR
    check: int | None = None
    use: int | None = None
    request: str | None = None
    step: int | None = None
    group: str | None = None
    pool: str | None = None
    blocks: list[int] = field(default_factory=list)
    tokens: tuple[int, int] | None = None
    believed: dict[str, Any] = field(default_factory=dict)
    actual: dict[str, Any] = field(default_factory=dict)
    need: str | None = None
    edge: str | None = None
    id: str = ""
    cause: str | None = None
    caused: list[str] = field(default_factory=list)

    @property
    def fix(self) -> str:
        return RULES[self.code].fix

    def as_json(self) -> dict[str, Any]:
        """The finding as the JSON contract has it; absent facts are null or left out."""
        out: dict[str, Any] = {
            "id": self.id,
            "code": self.code,
            "name": RULES[self.code].name,
            "severity": str(self.severity),
            "message": self.message,
            "events": self.events,
            "check": self.check,
            "use": self.use,
            "request": self.request,
            "step": self.step,
            "group": self.group,
            "pool": self.pool,
            "blocks": self.blocks,
            "tokens": list(self.tokens) if self.tokens else None,
            "believed": self.believed,
            "actual": self.actual,
            "need": self.need,
            "edge": self.edge,
            "caused": self.caused,
            "fix": self.fix,
        }
        if self.cause:
            out["cause"] = self.cause
        return out


@dataclass(slots=True)
class Loss:
    """Tokens that matched and could not be resumed, by the rule and group that cost them."""

    code: str
    group: str | None
    tokens: int

    def as_json(self) -> dict[str, Any]:
        return {"code": self.code, "group": self.group, "tokens": self.tokens}


def ranked(losses: Mapping[tuple[str, str | None], int]) -> list[Loss]:
    """What each rule and group cost, the most first; what cost the same by its name, so that the
    order does not tell in which order lookups were summed."""
    most_first = sorted(losses.items(), key=lambda loss: (-loss[1], loss[0][0], loss[0][1] or ""))
    return [Loss(code, group, tokens) for (code, group), tokens in most_first]


@dataclass(slots=True)
class Ratios:
    """Match ratio and resumable ratio, in tokens; never one without the other.

    `lookups` are the settled ones, four numbers each: position, tokens asked for, matched,
    resumable.
    """

    asked: int = 0
    matched: int = 0
    resumable: int = 0
    lost_by: list[Loss] = field(default_factory=list)
    lookups: array[int] = field(default_factory=lambda: array("q"))

    def as_json(self) -> dict[str, Any]:
        return {
            "asked": self.asked,
            "matched": self.matched,
            "resumable": self.resumable,
            "lost_by": [loss.as_json() for loss in self.lost_by],
        }


@dataclass(slots=True)
class Report:
    """The outcome of one check of one trace."""

    trace: dict[str, Any]
    findings: list[Finding]
    not_evaluable: dict[str, tuple[str, ...]]
    ratios: Ratios
    inconclusive: list[str] = field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """Root findings of that severity."""
        return sum(1 for f in self.findings if f.severity is severity and not f.cause)

    def keep(self, wanted: Callable[[Finding], bool]) -> None:
        """Keep some findings; what follows from one that is left out stands for itself."""
        kept = {f.id for f in self.findings if wanted(f)}
        self.findings = [f for f in self.findings if f.id in kept]
        for finding in self.findings:
            finding.caused = [c for c in finding.caused if c in kept]
            if finding.cause not in kept:
                finding.cause = None

    def as_json(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "findings": [f.as_json() for f in self.findings],
            "not_evaluable": [
                {"code": code, "needs": list(needs)} for code, needs in self.not_evaluable.items()
            ],
            "inconclusive": self.inconclusive,
            "ratios": self.ratios.as_json(),
            "summary": {str(s): self.count(s) for s in Severity},
        }
