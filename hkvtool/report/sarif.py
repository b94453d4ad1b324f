"""Reports as SARIF 2.1.0, which code-scanning services and editors read.

Source: OASIS "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". One run a trace.
A root finding is a result, its events a thread flow; what follows from it is named in its
properties. Rules that could not be evaluated are notifications of the run: a result that is not
there says nothing about them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hkvtool import __version__
from hkvtool.model.findings import Finding, Report
from hkvtool.model.rules import RULES, Severity
from hkvtool.model.text import shown
from hkvtool.report.baseline import fingerprint_of
from hkvtool.report.checked import Checked, place

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
_PLACES = {code: i for i, code in enumerate(RULES)}


def sarif(traces: Sequence[Checked]) -> str:
    """The log file as text."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(checked) for checked in traces]}
    return json.dumps(log, indent=1)


def _run(checked: Checked) -> dict[str, Any]:
    report = checked.report
    run: dict[str, Any] = {
        "tool": {"driver": {
            "name": "hkvtool", "semanticVersion": __version__,
            "rules": [_rule(code) for code in RULES],
        }},
        "automationDetails": {"id": f"hkvtool check/{shown(checked.name)}"},
        "columnKind": "unicodeCodePoints",
        "artifacts": [{"location": {"uri": checked.uri}}],
    }  # fmt: skip
    if report is None:
        said = {
            "level": "error",
            "message": {"text": "\n".join(map(shown, checked.error.splitlines()))},
        }
        run["invocations"] = [
            {"executionSuccessful": False, "toolExecutionNotifications": [said]}
        ]  # fmt: skip
        run["results"] = []
        return run
    run["invocations"] = [
        {"executionSuccessful": True, "toolExecutionNotifications": _notifications(report)}
    ]
    run["results"] = [_result(checked, finding, report) for finding in checked.roots]
    run["properties"] = {"trace": report.trace, "ratios": report.ratios.as_json()}
    return run


def _rule(code: str) -> dict[str, Any]:
    rule = RULES[code]
    return {
        "id": code,
        "name": rule.name,
        "shortDescription": {"text": rule.name.replace("-", " ")},
        "fullDescription": {"text": f"Fires when {rule.fires}."},
        "help": {"text": f"Usual fix: {rule.fix}."},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.family]},
    }


def _notifications(report: Report) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "level": "note",
            "message": {"text": f"{code} is not evaluable: it needs {' and '.join(needs)}"},
            "associatedRule": {"id": code, "index": _PLACES[code]},
        }
        for code, needs in report.not_evaluable.items()
    ]
    found += [
        {"level": "warning", "message": {"text": f"inconclusive: {shown(said)}"}}
        for said in report.inconclusive
    ]
    return found


def _result(checked: Checked, finding: Finding, report: Report) -> dict[str, Any]:
    by_id = {f.id: f for f in report.findings}
    follows = [by_id[i] for i in finding.caused if i in by_id]
    flow = [
        {"location": {**_location(checked, pos), "message": {"text": f"{role}: {text}"}}}
        for role, pos, text in checked.moments(finding)
    ]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": _PLACES[finding.code],
        "level": _LEVELS[finding.severity],
        "message": {"text": f"{shown(finding.message)}. Usual fix: {finding.fix}."},
        "locations": [_location(checked, place(finding), finding)],
        "partialFingerprints": {"hkvtoolFinding/v1": fingerprint_of(finding)},
        "properties": {
            "id": finding.id, "request": finding.request, "step": finding.step,
            "group": finding.group, "pool": finding.pool, "blocks": finding.blocks,
            "believed": finding.believed, "actual": finding.actual, "need": finding.need,
            "edge": finding.edge,
            "follows": [f"{f.code}: {f.message}" for f in follows],
        },
    }  # fmt: skip
    if flow:
        result["codeFlows"] = [{"threadFlows": [{"locations": flow}]}]
    return result


def _location(checked: Checked, pos: int | None, finding: Finding | None = None) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": checked.uri, "index": 0}}
    logical = []
    if pos and checked.lines:
        physical["region"] = {"startLine": pos}
    elif pos:
        logical.append({"name": f"event {pos}", "kind": "event"})
    if finding is not None:
        for kind in ("request", "group"):
            name = getattr(finding, kind)
            if name is not None:
                logical.append({"name": str(name), "kind": kind})
    location: dict[str, Any] = {"physicalLocation": physical}
    if logical:
        location["logicalLocations"] = logical
    return location
