"""The catalogue: codes, families and what a rule needs."""

from __future__ import annotations

import re

import pytest

from hkvtool.model.events import EVIDENCE
from hkvtool.model.findings import Finding, Loss, Ratios, Report
from hkvtool.model.rules import FAMILIES, MISSING_FORM, RULES, Severity


def test_codes_names_and_families_are_well_formed() -> None:
    assert list(RULES) == sorted(RULES)
    assert all(re.fullmatch(r"HKV[1-9]\d\d", code) for code in RULES)
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
    assert {rule.family for rule in RULES.values()} == set(FAMILIES.values())


def test_a_rule_needs_evidence_that_exists() -> None:
    for rule in RULES.values():
        assert {e for alternatives in rule.needs for e in alternatives} <= set(EVIDENCE)


def test_only_rules_of_the_trace_itself_need_nothing() -> None:
    assert [code for code, rule in RULES.items() if not rule.needs] == ["HKV903", "HKV905"]


@pytest.mark.parametrize(
    ("code", "evidence", "missing"),
    [
        ("HKV702", set(), ("stream or step",)),
        ("HKV702", {"step"}, ()),
        ("HKV103", {"step"}, ("host",)),
        ("HKV103", {"host", "step"}, ()),
        ("HKV903", set(), ()),
    ],
)
def test_missing_evidence_is_named(code: str, evidence: set[str], missing: tuple[str, ...]) -> None:
    assert RULES[code].missing(frozenset(evidence)) == missing


def test_every_form_has_its_code() -> None:
    assert set(MISSING_FORM.values()) <= set(RULES)


def test_report_json_is_the_contract() -> None:
    root = Finding("HKV303", "the window is gone", [12, 31], id="F1", tokens=(384, 512))
    after = Finding("HKV101", "so the block is short", [31], id="F2", cause="F1")
    root.caused.append("F2")
    ratios = Ratios(asked=512, matched=512, resumable=384, lost_by=[Loss("HKV303", "swa0", 128)])
    made = Report({"engine": "x"}, [root, after], {"HKV705": ("lease",)}, ratios).as_json()
    assert list(made) == ["trace", "findings", "not_evaluable", "inconclusive", "ratios", "summary"]
    assert made["summary"] == {"error": 1, "warning": 0, "info": 0}, "roots are counted alone"
    assert made["not_evaluable"] == [{"code": "HKV705", "needs": ["lease"]}]
    first, second = made["findings"]
    assert (first["tokens"], first["caused"], first.get("cause")) == ([384, 512], ["F2"], None)
    assert (second["cause"], second["severity"]) == ("F1", str(Severity.ERROR))
    assert first["fix"] == RULES["HKV303"].fix
