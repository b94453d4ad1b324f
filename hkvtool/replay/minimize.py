"""The fewest events that still show a finding, and the same one.

A smaller trace counts only where its check has the same root finding as the one asked for (rule,
group, the kinds and lanes of its two ends, what each took for true, no other blocks and tokens)
and no error of a rule that the whole trace does not have: else shrinking slips from one bug to
another, or makes one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from hkvtool.analyzers import check
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS, FORMAT
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import Severity
from hkvtool.replay.deletion import delete
from hkvtool.replay.edits import (
    SPARE,
    UNITS,
    Data,
    moved,
    only,
    renamed,
    switches,
    trimmed,
    values,
    without_key,
)

Told = Callable[[str, int, int], None]
"""Told of progress: what is being tried, events left, checks so far."""


class Exhausted(Exception):
    """The budget of checks is used up; what has been found so far stands."""


@dataclass(frozen=True)
class Failure:
    """What makes two findings the same one."""

    code: str
    group: str | None
    ends: tuple[tuple[str, str], ...]
    """Kind and lane of the check and the use, or of what else tells it."""
    facts: frozenset[tuple[str, str, object]]
    """What either side took for true: which facts, and those that are yes, no or nothing."""
    blocks: frozenset[int]
    tokens: tuple[int, int] | None

    @staticmethod
    def of(finding: Finding, events: Sequence[Event]) -> Failure:
        """`events` are those of the trace, the one at position 1 first."""
        told = [pos for pos in (finding.check, finding.use) if pos] or finding.events[-1:]
        ends = tuple((events[pos - 1].ev, events[pos - 1].actor) for pos in told)
        facts = frozenset(
            (side, key, value if value is None or isinstance(value, bool) else type(value))
            for side, said in (("believed", finding.believed), ("actual", finding.actual))
            for key, value in said.items()
        )
        blocks = frozenset(finding.blocks)
        return Failure(finding.code, finding.group, ends, facts, blocks, finding.tokens)

    def covers(self, other: Failure) -> bool:
        """Whether the other is the same, perhaps of fewer blocks and tokens."""
        return (
            (self.code, self.group, self.ends, self.facts)
            == (other.code, other.group, other.ends, other.facts)
            and other.blocks <= self.blocks
            and bool(other.blocks) == bool(self.blocks)
            and _within(other.tokens, self.tokens)
        )


def _within(inner: tuple[int, int] | None, outer: tuple[int, int] | None) -> bool:
    if inner is None or outer is None:
        return inner == outer
    return outer[0] <= inner[0] and inner[1] <= outer[1]


@dataclass
class Minimal:
    """A minimised trace and how it was come by."""

    failure: Failure
    events: list[Data]
    report: Report
    finding: Finding
    before: int
    checks: int
    switches: int
    complete: bool
    """False where the budget ended or a person stopped it: it may go smaller."""

    @property
    def lines(self) -> list[str]:
        """The events as JSON lines."""
        return [json.dumps(data, separators=(",", ":")) for data in self.events]

    @property
    def happenings(self) -> int:
        """Events that are no declarations."""
        return sum(data["ev"] not in DECLARATIONS for data in self.events)


@dataclass
class _Oracle:
    """Checks candidates, each only once."""

    failure: Failure
    allowed: frozenset[str]
    budget: int
    told: Told | None = None
    checks: int = 0
    what: str = ""
    best: list[Data] = field(default_factory=list)
    known: dict[bytes, bool] = field(default_factory=dict)

    def fails(self, candidate: list[Data]) -> bool:
        """Whether the candidate shows the failure; the best so far is kept."""
        text = json.dumps(candidate, separators=(",", ":")).encode()
        key = hashlib.blake2b(text, digest_size=16).digest()
        if key not in self.known:
            if self.checks >= self.budget:
                raise Exhausted
            self.checks += 1
            report = judged(candidate)
            roots = {f.code for f in report.findings if f.severity is Severity.ERROR}
            self.known[key] = roots <= self.allowed and self.find(candidate, report) is not None
            if self.told is not None:
                self.told(self.what, len(self.best), self.checks)
        if self.known[key]:
            self.best = candidate
        return self.known[key]

    def find(self, candidate: Sequence[Data], report: Report) -> Finding | None:
        """The root finding that is the failure."""
        events = _events(candidate)
        for finding in report.findings:
            if finding.code == self.failure.code and not finding.cause:
                if self.failure.covers(Failure.of(finding, events)):
                    return finding
        return None


def judged(events: Iterable[Data]) -> Report:
    """The check of events given as their objects, with what they declare to be seen."""
    return check(_events(events))


def minimize(
    trace: Sequence[Event], report: Report, finding: Finding, *, budget: int = 2000,
    told: Told | None = None, stopped: Callable[[], bool] = lambda: False,
) -> Minimal:  # fmt: skip
    """Shrink a trace to what shows one of its findings.

    `trace` is whole, `report` its check. At most `budget` candidates are checked; `stopped` is
    asked between passes. Raises HkvError where the finding does not come back on its own.
    """
    told_at_all = [event for event in trace if event.raw is None]
    events = [dict(event.data) for event in told_at_all]
    where = {event.pos: i for i, event in enumerate(told_at_all)}
    evidence = list(report.trace["evidence"])
    head: Data = {"ev": "trace", "format": FORMAT, "evidence": evidence}
    body = [data for data in events if data.get("ev") != "trace"]
    failure = Failure.of(finding, _by_position(trace))
    allowed = frozenset(f.code for f in report.findings if f.severity is Severity.ERROR)
    oracle = _Oracle(failure, allowed, budget, told)
    last = max((where[pos] for pos in finding.events if pos in where), default=len(events) - 1)
    ends = {id(data) for data in events[: last + 1]}
    _start(oracle, head, body, [data for data in body if id(data) in ends], finding)
    complete = False
    try:
        while not stopped():
            before = oracle.best
            _pass(oracle)
            _polish(oracle)
            if oracle.best == before:
                complete = True
                break
    except (Exhausted, KeyboardInterrupt):
        complete = False
    final = judged(oracle.best)
    found = oracle.find(oracle.best, final)
    assert found is not None, "the best candidate was checked"
    return Minimal(
        failure, oracle.best, final, found, len(trace), oracle.checks, switches(oracle.best),
        complete,
    )  # fmt: skip


def _start(
    oracle: _Oracle, head: Data, body: list[Data], until: list[Data], finding: Finding
) -> None:
    """Begin with as little as the finding itself suggests: its blocks, its requests, its past."""
    oracle.what = "slicing"
    plain = without_key(until, "seq")
    # What happened last before the finding comes first: a long past is seldom its cause.
    near = [_latest(plain, count) for count in (100, 1000, 10_000) if count < len(plain)]
    candidates = [
        [head, *events]
        for events in (
            *(_slice(events, finding) for events in (*near, plain)),
            *near, plain, without_key(body, "seq"), body,
        )
    ]  # fmt: skip
    for candidate in candidates:
        try:
            if oracle.fails(candidate):
                return
        except Exhausted:
            raise HkvError(
                f"{finding.id} did not come back within the budget of {oracle.budget} checks",
                hint=f"--budget {len(candidates)} is enough to begin with",
            ) from None
    raise HkvError(
        f"{finding.id} does not come back from the events alone",
        hint="it may hang on events that could not be read",
    )


def _latest(events: Sequence[Data], count: int) -> list[Data]:
    """The declarations and the last so many of the other events."""
    start = len(events) - count
    return [*(e for e in events[:start] if e.get("ev") in DECLARATIONS), *events[start:]]


def _slice(events: Sequence[Data], finding: Finding) -> list[Data]:
    """What touches the finding's blocks or its request, and everything that orders or declares."""
    blocks, req = set(finding.blocks), finding.request
    out: list[Data] = []
    for data in events:
        named = {
            block for key in ("blocks", "src", "dst", "peer")
            for block in _ints(data.get(key))
        }  # fmt: skip
        of_request = req is not None and str(data.get("req")) == req
        if of_request or named & blocks or not (named or "req" in data):
            out.append(data)
    return out


def _ints(value: object) -> list[int]:
    if isinstance(value, dict):
        return [block for part in value.values() for block in part]
    return value if isinstance(value, list) else []


def _pass(oracle: _Oracle) -> None:
    """Leave out whole units, then single events, then blocks of what is left."""
    for unit in UNITS:
        oracle.what = f"by {unit}"
        events, found = oracle.best, values(oracle.best, unit)
        if len(found) > 1 or (found and unit not in ("group", "pool", "actor")):
            delete(found, lambda kept, e=events, u=unit: oracle.fails(only(e, u, kept)))  # type: ignore[misc]
    oracle.what = "by event"
    head, body = oracle.best[:1], oracle.best[1:]
    delete(body, lambda kept: oracle.fails(head + kept))
    oracle.what = "by block"
    _trim(oracle)


def _trim(oracle: _Oracle) -> None:
    """Leave out blocks that nobody but one event names, or that the finding does not."""
    report = judged(oracle.best)
    finding = oracle.find(oracle.best, report)
    keep = frozenset(finding.blocks if finding else ())
    sizes = {d["group"]: d["block_tokens"] for d in oracle.best if d["ev"] == "group"}
    for index in range(len(oracle.best)):
        data = oracle.best[index]
        smaller = trimmed(data, keep, sizes.get(data.get("group"), 0))
        if smaller is not None:
            oracle.fails([*oracle.best[:index], smaller, *oracle.best[index + 1 :]])


def _polish(oracle: _Oracle) -> None:
    """The same events, easier to read: without spare keys, lane by lane, under plain names."""
    oracle.what = "polishing"
    for key in SPARE:
        if any(key in data for data in oracle.best):
            oracle.fails(without_key(oracle.best, key))
    index = 1
    while index < len(oracle.best):
        if oracle.best[index]["ev"] not in DECLARATIONS:
            fewest = switches(oracle.best)
            for candidate in moved(oracle.best, index):
                if switches(candidate) < fewest and oracle.fails(candidate):
                    break
        index += 1
    oracle.fails(renamed(oracle.best))


def _events(objects: Iterable[Data]) -> list[Event]:
    return [Event.of(pos, data) for pos, data in enumerate(objects, 1)]


def _by_position(trace: Sequence[Event]) -> list[Event]:
    """The events so that the one at a position stands at that index, less one."""
    out: list[Event] = []
    for event in trace:
        while len(out) < event.pos - 1:
            out.append(Event(len(out) + 1, "?"))
        out.append(event)
    return out
