"""A probe as JUnit XML: a case a pattern; what could not be asked is skipped, never passed."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as Xml

from hkvtool.model.text import shown
from hkvtool.probe.judging import INCONCLUSIVE
from hkvtool.probe.patterns import PATTERNS
from hkvtool.probe.told import finding_lines, pattern_line


def junit(report: dict[str, Any]) -> str:
    """The document. A pattern fails by a confirmed finding, or by its own rate."""
    suite = Xml.Element("testsuite", name=f"hkvtool probe {shown(report['server']['url'])}")
    alpha = report["plan"]["alpha"]
    by_pattern = {p["pattern"]: p for p in report["patterns"]}
    counts = {"failure": 0, "error": 0, "skipped": 0}

    def case(name: str, tag: str = "", message: str = "", text: str = "") -> None:
        made = Xml.SubElement(suite, "testcase", classname="hkvtool.probe", name=name)
        if tag:
            counts[tag] += 1
            Xml.SubElement(made, tag, message=shown(message)).text = text
        elif text:
            Xml.SubElement(made, "system-out").text = text

    names = [*dict.fromkeys([*PATTERNS, *by_pattern, *(f["pattern"] for f in report["findings"])])]
    for name in names:
        found = [f for f in report["findings"] if f["pattern"] == name]
        text = "\n".join(line for f in found for line in finding_lines(f))
        rate = by_pattern.get(name)
        if any(f["confirmed"] for f in found) or (rate and rate["p_adjusted"] < alpha):
            case(name, "failure", pattern_line(rate) if rate else "repeated", text)
        elif rate is None and not found:
            case(name, "skipped", report["could_not"].get(name, "not asked for"))
        elif rate and rate["reused"] == 0 and not found:
            case(name, "skipped", "nothing was reused", pattern_line(rate))
        else:
            case(name, text="\n".join(filter(None, (rate and pattern_line(rate), text))))
    if report["summary"]["verdict"] == INCONCLUSIVE:
        case("verdict", "error", _why(report["summary"]))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(counts[tag]))
    suite.set("tests", str(len(suite)))
    root = Xml.Element("testsuites", dict(suite.attrib) | {"name": "hkvtool probe"})
    root.append(suite)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, encoding="unicode")


def _why(summary: dict[str, Any]) -> str:
    return summary["stopped"] or summary["idle"] or "inconclusive"
