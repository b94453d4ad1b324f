"""Reports as JUnit XML: a suite a trace, a case a rule; not evaluable is skipped, never passed.

Source: the de-facto schema that CI systems read (Jenkins, GitLab): ``testsuites`` of
``testsuite`` of ``testcase``, with ``failure``, ``error``, ``skipped`` and ``system-out``.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as Xml

from hkvtool.model.findings import Finding
from hkvtool.model.rules import RULES, Severity
from hkvtool.model.text import shown
from hkvtool.report.checked import Checked

_KEPT = 20
"""Findings of one rule that are told in full; the rest are counted."""


def junit(traces: Sequence[Checked], fails: Severity | None) -> str:
    """The document. A rule fails by root findings of at least the severity `fails`, never where
    that is None; lesser ones, and what follows from another rule's, go into its output."""
    root = Xml.Element("testsuites", name="hkvtool check")
    for checked in traces:
        _suite(root, checked, fails)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode")


def _suite(root: Xml.Element, checked: Checked, fails: Severity | None) -> None:
    suite = Xml.SubElement(root, "testsuite", name=shown(checked.name))
    report = checked.report
    if report is None:
        _case(suite, "evidence", "the trace can be read", "error", checked.error)
    else:
        by_code: dict[str, list[Finding]] = {}
        for finding in report.findings:
            by_code.setdefault(finding.code, []).append(finding)
        for code, rule in RULES.items():
            _rule(suite, checked, code, by_code.get(code, []), report.not_evaluable.get(code),
                  f"{code[3]}xx {rule.family}", fails)  # fmt: skip
        for said in report.inconclusive:
            _case(suite, "evidence", "nothing was lost", "error", said)
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(1 for case in suite if case.find(tag) is not None)))
    suite.set("tests", str(len(suite)))


def _rule(
    suite: Xml.Element, checked: Checked, code: str, findings: Sequence[Finding],
    needs: tuple[str, ...] | None, family: str, fails: Severity | None,
) -> None:  # fmt: skip
    name = f"{code} {RULES[code].name}"
    roots = [f for f in findings if not f.cause]
    loud = [f for f in roots if fails is not None and f.severity.rank >= fails.rank]
    if loud:
        case = _case(suite, family, name, "failure", shown(loud[0].message))
        case[0].set("type", str(loud[0].severity))
        case[0].text = "\n\n".join(_told(checked, f) for f in loud[:_KEPT])
        if len(loud) > _KEPT:
            case[0].text += f"\n\nand {len(loud) - _KEPT} like it"
        return
    if needs is not None and not findings:
        _case(suite, family, name, "skipped", f"not evaluable: needs {' and '.join(needs)}")
        return
    case = _case(suite, family, name)
    if findings:
        output = Xml.SubElement(case, "system-out")
        follows = [
            f"{f.id} follows from {f.cause}: {shown(f.message)}" for f in findings if f.cause
        ]
        output.text = "\n\n".join([*(_told(checked, f) for f in roots[:_KEPT]), *follows[:_KEPT]])


def _case(
    suite: Xml.Element, family: str, name: str, tag: str = "", message: str = ""
) -> Xml.Element:
    case = Xml.SubElement(suite, "testcase", classname=f"hkvtool.{family}", name=name)
    if tag:
        Xml.SubElement(case, tag, message=message)
    return case


def _told(checked: Checked, finding: Finding) -> str:
    lines = [f"{finding.severity} {finding.id}: {shown(finding.message)}"]
    lines += [
        f"  {role:<8}{pos:>7}  {text}".rstrip() for role, pos, text in checked.moments(finding)
    ]
    return "\n".join([*lines, f"  fix: {finding.fix}"])
