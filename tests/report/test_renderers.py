"""One golden a renderer, and what their readers ask of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import jsonschema
import pytest

from hkvtool import __version__
from hkvtool.analyzers import check
from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES, Severity
from hkvtool.report.baseline import fingerprint, fingerprint_of, leave_out
from hkvtool.report.checked import Checked, role
from hkvtool.report.github import github_lines
from hkvtool.report.json_lines import json_line
from hkvtool.report.junit import junit
from hkvtool.report.sarif import sarif
from hkvtool.report.table import report_lines

from . import told

UNREADABLE = Checked(
    "gone.jsonl", None, trouble={"error": "there is no file gone.jsonl", "hint": "name another"}
)

OBJECT = {"type": "object"}
PLACE = {
    "type": "object",
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {"type": "object", "properties": {"uri": {"type": "string"}}},
                "region": {"type": "object", "properties": {"startLine": {"minimum": 1}}},
            },
        },
        "message": {"type": "object", "required": ["text"]},
        "logicalLocations": {
            "type": "array",
            "items": {"properties": {"name": {"type": "string"}}},
        },
    },
    "additionalProperties": False,
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
LOG = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": {
            "type": "object",
            "required": ["tool"],
            "properties": {
                "tool": {"type": "object", "required": ["driver"], "properties": {
                    "driver": {"type": "object", "required": ["name"], "properties": {
                        "rules": {"type": "array", "uniqueItems": True, "items": {
                            "type": "object", "required": ["id"]}}}}}},
                "invocations": {"type": "array", "items": {
                    "type": "object", "required": ["executionSuccessful"], "properties": {
                        "toolExecutionNotifications": {"type": "array", "items": {
                            "type": "object", "required": ["message"],
                            "properties": {"level": LEVEL}}}}}},
                "results": {"type": "array", "items": {
                    "type": "object",
                    "required": ["message"],
                    "properties": {
                        "level": LEVEL,
                        "message": {"type": "object", "required": ["text"]},
                        "locations": {"type": "array", "items": PLACE},
                        "partialFingerprints": {
                            "type": "object", "additionalProperties": {"type": "string"}},
                        "codeFlows": {"type": "array", "items": {
                            "type": "object", "required": ["threadFlows"], "properties": {
                                "threadFlows": {"type": "array", "minItems": 1, "items": {
                                    "type": "object", "required": ["locations"], "properties": {
                                        "locations": {"type": "array", "minItems": 1, "items": {
                                            "type": "object",
                                            "properties": {"location": PLACE}}}}}}}}},
                    }}},
            }}},
    },
}  # fmt: skip
"""What SARIF 2.1.0 asks of the keys that we write. The schema itself is OASIS's: a run with
`HKV_SARIF_SCHEMA` set to its file holds the output against that, too."""


def checked(events: list[Any], name: str = "t.jsonl") -> Checked:
    return Checked(name, check(events), {e.pos: e for e in events})


@pytest.fixture(scope="module")
def wrong() -> Checked:
    return checked(told.spread())


def test_table(wrong: Checked, golden: Any) -> None:
    assert wrong.report is not None
    lines = [line.text for line in report_lines(wrong.report, wrong.events, 80, name=wrong.name)]
    assert max(map(len, lines)) <= 80
    golden("check.txt", "".join(f"{line}\n" for line in lines))


def test_what_an_event_is_to_a_finding() -> None:
    alone = Finding("HKV905", "", [1, 5, 9], use=5)
    assert [role(alone, pos) for pos in alone.events] == ["before", "use", "after"]
    pair = Finding("HKV301", "", [1, 3, 5, 7, 9], check=3, use=7)
    told_so = ["before", "check", "between", "use", "after"]
    assert [role(pair, pos) for pos in pair.events] == told_so


def test_json(wrong: Checked, golden: Any) -> None:
    line = json_line(wrong)
    assert line.isascii() and "\n" not in line
    golden("check.json", json.dumps(json.loads(line), indent=1) + "\n")
    assert json.loads(json_line(UNREADABLE)) == {
        "trace": {"path": "gone.jsonl"}, "error": "there is no file gone.jsonl",
        "hint": "name another",
    }  # fmt: skip


def test_github(wrong: Checked, golden: Any) -> None:
    lines = [*github_lines(wrong), *github_lines(UNREADABLE)]
    assert all(line.startswith(("::error file=", "::notice file=")) for line in lines)
    golden("check.github.txt", "".join(f"{line}\n" for line in lines))


def test_github_escapes_what_would_end_a_property() -> None:
    odd = Checked("a,b:c%d.jsonl", None, trouble={"error": "100 %\nover"})
    (line,) = github_lines(odd)
    assert line == "::error file=a%2Cb%3Ac%25d.jsonl,title=trace cannot be read::100 %25%0Aover"


def test_junit(wrong: Checked, golden: Any) -> None:
    text = junit([wrong, checked(told.loss("rests")), UNREADABLE], Severity.ERROR)
    golden("check.junit.xml", text + "\n")
    root = Xml.fromstring(text)
    bad, lost, gone = root
    by_name = {case.get("name", "")[:6]: case for case in bad}
    assert set(by_name) == set(RULES)
    assert [n for n, case in by_name.items() if case.find("failure") is not None] == ["HKV303"]
    assert by_name["HKV104"].find("skipped") is not None
    assert [c.get("name") for c in lost if c.find("error") is not None] == ["nothing was lost"]
    assert [c.get("name") for c in gone] == ["the trace can be read"]
    for name in ("tests", "failures", "errors", "skipped"):
        assert int(root.get(name, "")) == sum(int(suite.get(name, "")) for suite in root)
    never = Xml.fromstring(junit([wrong], None))
    assert never.get("failures") == "0" and never.find(".//system-out") is not None


def test_sarif(wrong: Checked, golden: Any) -> None:
    text = sarif([wrong, UNREADABLE])
    golden("check.sarif.json", text.replace(f'"{__version__}"', '"VERSION"') + "\n")
    log = json.loads(text)
    jsonschema.validate(log, LOG)
    run, gone = log["runs"]
    (result,) = run["results"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "HKV303"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 28
    told_of = {
        n["associatedRule"]["id"] for n in run["invocations"][0]["toolExecutionNotifications"]
    }
    assert wrong.report is not None and told_of == set(wrong.report.not_evaluable)
    assert not gone["invocations"][0]["executionSuccessful"] and gone["results"] == []


def test_sarif_of_a_trace_that_has_no_lines() -> None:
    events = told.bad()
    log = json.loads(sarif([checked(events, "t.duckdb")]))
    jsonschema.validate(log, LOG)
    (place,) = log["runs"][0]["results"][0]["locations"]
    assert "region" not in place["physicalLocation"]
    assert {"name": "event 28", "kind": "event"} in place["logicalLocations"]


def test_every_case_is_valid_sarif_and_junit(case: Any, read_events: Any) -> None:
    traces = [checked(read_events(path), str(path)) for path in case.arms]
    log = json.loads(sarif(traces))
    jsonschema.validate(log, LOG)
    official = os.environ.get("HKV_SARIF_SCHEMA")
    if official:
        jsonschema.validate(log, json.loads(Path(official).read_text()))
    root = Xml.fromstring(junit(traces, Severity.ERROR))
    fails = [int(suite.get("failures", "")) for suite in root]
    assert fails[1] == 0
    for one in traces:
        assert all(line.startswith("::") and "\n" not in line for line in github_lines(one))


# --- baselines -------------------------------------------------------------------------------


def test_a_fingerprint_outlives_positions_blocks_and_names() -> None:
    first = fingerprint("HKV101", "kv", "request r2 reads block 15 at event 3 (block 15)", "r2")
    again = fingerprint(
        "HKV101", "kv", "request abc-9 reads block 7 at event 44 (block 7)", "abc-9"
    )
    other = fingerprint("HKV101", "kv", "request r2 stores block 15 at event 3 (block 15)", "r2")
    group = fingerprint("HKV101", "w", "request r2 reads block 15 at event 3 (block 15)", "r2")
    assert first == again and len({first, other, group}) == 3


def test_known_findings_go_with_all_that_follows_from_them() -> None:
    events = told.bad()
    report = check(events)
    known = frozenset({fingerprint_of(report.findings[0])})
    assert leave_out(report, known) == 1 and report.findings == []


def test_what_is_none_is_called_so_in_every_report(wrong: Checked) -> None:
    from hkvtool.model.text import facts_line
    from hkvtool.report import html, story, table

    assert facts_line({"resumed_at": 3, "route": None}) == "resumed at 3, route none"
    # One definition: a page that says null where the table says none is read as another finding.
    assert html.facts_line is story.facts_line is table.facts_line is facts_line
