"""Every rule's example pair, and a pair of traces for every clause of the catalogue's sentences.

`fixtures/rules/CODE.fires.jsonl` breaks the rule and nothing else, `CODE.silent.jsonl` is the
same scenario done right. `fixtures/rules/clauses` holds more of them, one pair a clause, with
what each must say in `expect.json`: `code` the one root finding (`or`: another that the
sentence allows), `may` further ones, `events` those it must name, `spec` the sentence.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import IMPLEMENTED, check
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.rules import RULES, Severity
from hkvtool.model.shipped import shipped

ROOM = Path(str(shipped("rules")))
CLAUSES = ROOM / "clauses"
EXPECT: dict[str, dict[str, Any]] = json.loads((CLAUSES / "expect.json").read_text("utf-8"))

VETOED = "HKV308"
"""Reuse that a group vetoed is a fact of a right trace too."""


@dataclass(frozen=True)
class Example:
    """One trace and what it must say; `code` names its rule, `severity` None means silence."""

    path: Path
    code: str
    severity: str | None
    codes: frozenset[str]
    may: frozenset[str] = frozenset()
    events: tuple[int, ...] = ()
    spec: str = ""

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".jsonl")


def _examples() -> list[Example]:
    out = []
    for name, want in EXPECT.items():
        code, spec = name[:6], want["spec"]
        folder = ROOM if name == code else CLAUSES
        if want["code"] is not None:
            codes = frozenset({want["code"], *want.get("or", ())})
            may, events = frozenset(want["may"]), tuple(want["events"])
            path = folder / f"{name}.fires.jsonl"
            out.append(Example(path, code, want["severity"], codes, may, events, spec))
        silent = folder / f"{name}.silent.jsonl"
        if silent.exists():
            out.append(Example(silent, code, None, frozenset(), spec=spec))
    return out


EXAMPLES = _examples()
FIRES = [e for e in EXAMPLES if e.severity is not None]
SILENT = [e for e in EXAMPLES if e.severity is None]


def _events(path: Path) -> list[Event]:
    with path.open("rb") as stream:
        return list(read_jsonl(stream))


def _checked(example: Example) -> Report:
    if example.code not in IMPLEMENTED:
        pytest.xfail(f"{example.code} is not evaluated yet")
    report = check(iter(_events(example.path)))
    assert example.code not in report.not_evaluable, "the trace lacks the evidence of its rule"
    return report


def _said(findings: list[Finding]) -> str:
    lines = [f"{f.code} {f.severity} {f.events}: {f.message}" for f in findings]
    return "\n".join(lines) or "no finding"


@pytest.mark.parametrize("example", FIRES, ids=lambda e: e.name)
def test_fires(example: Example) -> None:
    report = _checked(example)
    roots = [f for f in report.findings if f.cause is None and f.severity is not Severity.INFO]
    said = f"{example.spec}\n{_said(report.findings)}"
    hits = [f for f in roots if f.code in example.codes]
    assert len(hits) == 1, said
    assert {f.code for f in roots} <= example.codes | example.may, said
    assert str(hits[0].severity) == example.severity, said
    assert len(hits[0].events) <= 8, said
    assert set(example.events) <= set(hits[0].events), said


@pytest.mark.parametrize("example", SILENT, ids=lambda e: e.name)
def test_silent(example: Example) -> None:
    report = _checked(example)
    fine = set() if example.code == VETOED else {VETOED}
    wrong = [f for f in report.findings if f.code not in fine]
    assert not wrong, f"{example.spec}\n{_said(wrong)}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_well_formed(example: Example) -> None:
    """Small, headed by a note, and readable: only the HKV905 traces may hold a bad line."""
    events = _events(example.path)
    head = events[0]
    assert head.ev == "trace" and head["format"] == "hkv/1" and head["note"].endswith(".")
    assert 3 <= len(events) <= (20 if example.path.parent == ROOM else 32)
    assert example.code == "HKV905" or not [e.problem for e in events if e.problem]


def test_files_and_expectations_agree() -> None:
    assert {e.path for e in EXAMPLES} == set(ROOM.rglob("*.jsonl"))


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_its_pair(code: str) -> None:
    fires, silent = (ROOM / f"{code}.{arm}.jsonl" for arm in ("fires", "silent"))
    a, b = ([e.data for e in _events(p)] for p in (fires, silent))
    assert a[1:] != b[1:]
    assert EXPECT[code]["severity"] == str(RULES[code].severity)
