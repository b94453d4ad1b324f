"""Whether the KV state is to blame for one request: the verdict of `hkvtool why`.

Three answers there are: it resumed from what could not be resumed, or read wrong bytes otherwise;
it rightly recomputed what it could have matched, because of one group; or its KV state is
exonerated, as far as the evidence goes. Where events were lost in the range that the answer rests
on, it is inconclusive, never clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hkvtool.analyzers.charges import Charges
from hkvtool.analyzers.check import Check, settled
from hkvtool.analyzers.context import Context
from hkvtool.analyzers.layers import mark
from hkvtool.analyzers.provenance import Attempt, Follow, Source
from hkvtool.analyzers.taint import BAD_CONTENT, WRONG_READ, Spread, Taint
from hkvtool.model.collector import uncollected
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES, Severity

BEARING = frozenset(
    code for code in RULES if code[3] in "1234678" and code not in ("HKV308", "HKV605")
) | {"HKV906"}
"""Rules that bear on the bytes a request reads: its coverage is how many could be evaluated."""

_STATIC = "24"
"""Families whose findings hold for whoever uses the group."""


class Verdict(str, Enum):
    """What `hkvtool why` says of a request."""

    RESUMED_WRONGLY = "not-resumable-but-resumed"
    READ_WRONGLY = "read-wrong-state"
    RECOMPUTED = "correctly-recomputed"
    EXONERATED = "exonerated"
    INCONCLUSIVE = "inconclusive"


SAID: dict[Verdict, str] = {
    Verdict.RESUMED_WRONGLY: "NOT RESUMABLE, BUT RESUMED",
    Verdict.READ_WRONGLY: "IT READ WRONG KV STATE",
    Verdict.RECOMPUTED: "CORRECTLY RECOMPUTED",
    Verdict.EXONERATED: "KV STATE EXONERATED",
    Verdict.INCONCLUSIVE: "INCONCLUSIVE",
}


@dataclass(slots=True)
class Coverage:
    """How much of what could be wrong was looked at: rules that the evidence supports, times
    reads of blocks whose state is known."""

    rules: int
    of_rules: int
    reads: int
    of_reads: int
    not_evaluable: dict[str, tuple[str, ...]]

    @property
    def percent(self) -> float:
        reads = self.reads / self.of_reads if self.of_reads else 1.0
        return 100 * reads * self.rules / self.of_rules

    def as_json(self) -> dict[str, Any]:
        return {
            "percent": round(self.percent, 1),
            "rules": {"evaluable": self.rules, "bearing": self.of_rules},
            "block_reads": {"judged": self.reads, "all": self.of_reads},
            "not_evaluable": [
                {"code": code, "needs": list(needs)} for code, needs in self.not_evaluable.items()
            ],
        }


@dataclass(slots=True)
class Why:
    """The answer. `finding` is what it rests on, `root` what that follows from (often itself)."""

    request: str
    verdict: Verdict
    sentence: str
    coverage: Coverage
    attempts: list[Attempt]
    sources: list[Source]
    span: tuple[int, int]
    finding: Finding | None = None
    root: Finding | None = None
    others: list[Finding] = field(default_factory=list)
    beside: list[Finding] = field(default_factory=list)
    """Findings that name the request and say nothing against what it read."""
    spread: Spread | None = None
    lost: list[int] = field(default_factory=list)
    report: Report | None = None

    def as_json(self) -> dict[str, Any]:
        spread = None if self.spread is None else self.spread.as_json()
        return {
            "request": self.request,
            "verdict": self.verdict.value,
            "sentence": self.sentence,
            "events": list(self.span),
            "finding": None if self.finding is None else self.finding.as_json(),
            "root": None if self.root is None else self.root.as_json(),
            "others": [f.id for f in self.others],
            "beside": [f.id for f in self.beside],
            "resumes": [attempt.as_json() for attempt in self.attempts],
            "provenance": [source.as_json() for source in self.sources],
            "blast_radius": spread,
            "coverage": self.coverage.as_json(),
            "lost_before": self.lost,
        }


def why(
    events: Iterable[Event], request: str, evidence: Evidence | None = None, *, ended: bool = True,
    charges: Sequence[Finding] = (),
) -> Why:  # fmt: skip
    """Check a trace with one request in view, and say what became of its KV state.

    Of a trace in which nothing is wrong the events up to the request's last one will do; then it
    has not `ended` with them. `charges` are findings about its loads, from what other engines tell.
    """
    watching: list[tuple[Follow, Taint]] = []

    def follow(ctx: Context) -> Follow:
        found = Follow(ctx, request)
        watching.append((found, Taint(ctx, frozenset(one.id for one in charges))))
        return found

    if evidence is None:
        evidence, events = settled(events)
    with uncollected():
        checking = Check(
            Context(evidence),
            [follow, lambda ctx: Charges(ctx, charges), lambda ctx: watching[0][1]],
        )
        report = checking.run(events, ended=ended)
    followed, taint = watching[0]
    return _answer(report, followed, taint)


def _answer(report: Report, seen: Follow, taint: Taint) -> Why:
    by_id = {f.id: f for f in report.findings}
    mine = [f for f in report.findings if concerns(f, seen)]
    lost = _lost(seen)
    coverage = _coverage(seen)
    verdict, sentence, finding, root = Verdict.EXONERATED, "", None, None
    tainted = next((s for s in taint.spreads.values() if seen.name in s.readers), None)
    if mine:
        finding = _first(mine, by_id)
        root = by_id.get(finding.cause or "", finding)
        resumed = any(a.at for a in seen.attempts) and finding.code[3] in "136"
        verdict = Verdict.RESUMED_WRONGLY if resumed else Verdict.READ_WRONGLY
        sentence = finding.message
    elif tainted is not None:
        root = finding = by_id[tainted.root]
        verdict = Verdict.READ_WRONGLY
        whose = f"request {root.request}" if root.request else "another reader"
        charged = root.id in taint.charged
        made = "loaded, or computed from that" if charged else "computed from a wrong read"
        sentence = (
            f"it reused, at event {tainted.readers[seen.name]}, what {whose} {made}: {root.message}"
        )
    elif lost:
        verdict = Verdict.INCONCLUSIVE
        sentence = (
            f"no fault is seen, but events were lost before event {lost[0]}, in the range that "
            "this request's state rests on"
        )
    else:
        verdict, sentence = _clean(seen)
    beside = [f for f in report.findings if f not in mine and names(f, seen)]
    spread = taint.spreads.get(root.id) if root else None
    if verdict is Verdict.EXONERATED:
        # What it read was right; what was stored from its blocks may not be.
        told = next((f for f in beside if f.id in taint.spreads), None)
        if told is not None and taint.spreads[told.id].copies:
            spread = taint.spreads[told.id]
            sentence += f"; but what was stored from its blocks is bad ({told.id})"
    for attempt in seen.attempts:
        roots = [f for f in mine if f.cause is None or f is finding]
        mark(attempt.groups, roots, bool(attempt.at) and not attempt.thrown_away)
    return Why(
        seen.name, verdict, sentence, coverage, seen.attempts, list(seen.sources.values()),
        (seen.first or 0, seen.last), finding, root, [f for f in mine if f is not finding],
        beside, spread, lost, report,
    )  # fmt: skip


def concerns(finding: Finding, seen: Follow) -> bool:
    """Whether a finding means that the followed request got, or may have got, wrong bytes."""
    if finding.severity is not Severity.ERROR or finding.code not in BEARING:
        return False
    sides = {finding.check, finding.use}
    if finding.code == "HKV702":
        return bool(sides & seen.readings)
    if finding.request is not None:
        return finding.request == seen.name
    if finding.step is not None and seen.name in seen.ctx.step_reqs.get(finding.step, ()):
        return True
    if finding.code[3] in _STATIC and not finding.blocks:
        return finding.group in seen.groups
    last = max([*finding.events, *(p for p in sides if p)], default=0)
    for block in finding.blocks:
        since, until = seen.held.get((finding.pool or "", block), (0, -1))
        if since <= last <= until:
            return True
    return False


def names(finding: Finding, seen: Follow) -> bool:
    """Whether a finding is about something that the followed request did."""
    return finding.request == seen.name or bool({finding.check, finding.use} & seen.did)


def _first(mine: list[Finding], by_id: dict[str, Finding]) -> Finding:
    """What to put first: a root of its own, of reads before the rest, as they came."""

    def rank(finding: Finding) -> tuple[bool, bool, int]:
        told = finding.code in WRONG_READ | BAD_CONTENT
        return (finding.cause is not None, not told, list(by_id).index(finding.id))

    return min(mine, key=rank)


def _lost(seen: Follow) -> list[int]:
    """Losses in the range that the request's state rests on."""
    if seen.first is None:
        return []
    start = min(seen.first, seen.earliest if seen.earliest is not None else seen.first)
    found = [pos for pos in seen.ctx.lost if start <= pos <= seen.last]
    if not found and seen.judged < seen.reads:
        # It was uncertain what the blocks held that it read.
        found = [pos for pos in seen.ctx.lost if pos <= seen.last][-1:]
    return found


def _coverage(seen: Follow) -> Coverage:
    missing = {code: RULES[code].missing(seen.evidence) for code in sorted(BEARING)}
    lacking = {code: needs for code, needs in missing.items() if needs}
    return Coverage(
        len(BEARING) - len(lacking), len(BEARING), seen.judged, seen.reads, lacking
    )  # fmt: skip


def _clean(seen: Follow) -> tuple[Verdict, str]:
    cut = next((a for a in seen.attempts if a.thrown_away), None)
    if cut is not None:
        return Verdict.RECOMPUTED, _recomputed(cut)
    reused = [a for a in seen.attempts if a.at]
    if reused:
        tokens = sum(a.at or 0 for a in reused)
        said = f"it reused {tokens:,} tokens, and nothing is wrong with what it read"
    elif seen.reads:
        said = "it reused nothing of others, and nothing is wrong with what it read"
    else:
        said = "no read of its is in the trace; nothing is wrong with what it did"
    return Verdict.EXONERATED, said


def _recomputed(attempt: Attempt) -> str:
    limiting = attempt.limiting
    said = (
        f"group {attempt.of} hits {attempt.best:,} tokens, the request goes on from "
        f"{attempt.at:,} and recomputes {attempt.thrown_away:,}"
    )
    if limiting is None:
        return f"{said}; which group held it back, the trace does not say"
    said += f": group {limiting.group}"
    said += "" if limiting.hit is None else f" hits only {limiting.hit:,}"
    said += f" ({limiting.why})" if limiting.why else ""
    return said
