"""A report that can be sent: one HTML file that needs no network and no other file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from hkvtool.analyzers.lookups import Settled
from hkvtool.model.findings import Report
from hkvtool.model.rules import RULES
from hkvtool.model.text import facts_line, shown
from hkvtool.report.checked import Checked, alike
from hkvtool.report.heat import Heat
from hkvtool.report.narrate import lane, sentence

MOST_FINDINGS = 100
"""Kinds of root findings told in full; the rest are counted by rule."""


@dataclass(slots=True)
class Told:
    """Everything a report is made from."""

    checked: Checked
    meta: Mapping[str, Any]
    groups: Sequence[Mapping[str, Any]]
    rows: Sequence[Settled]
    lifetimes: Mapping[str, Any]
    heat: Heat
    start: int
    clock: bool


def html_report(told: Told) -> str:
    """The text of the file. Everything out of the trace is escaped, for HTML and for scripts."""
    import vl_convert
    from jinja2 import Environment

    from hkvtool.report.charts import block_map, hits_by_group, ratios_over_time

    report = told.checked.report
    assert report is not None, "an unreadable trace has no report"
    # Its stub asks for an argument that has a default.
    bundle: Any = vl_convert.javascript_bundle
    specs: dict[str, Any] = {}
    if told.rows:
        specs["ratios"] = ratios_over_time(told.rows, told.start, told.clock)
        specs["groups"] = hits_by_group(told.rows)
    maps = []
    for number, pool in enumerate(told.heat.pools):
        specs[f"map{number}"] = block_map(told.heat, pool, told.clock)
        maps.append((f"map{number}", shown(pool)))
    source = files("hkvtool.report").joinpath("report.html").read_text("utf-8")
    template = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        source
    )
    return template.render(
        name=shown(told.checked.name), roots=len(told.checked.roots), meta=told.meta,
        groups=told.groups, report=report, clock=told.clock,
        findings=_findings(told.checked), others=_others(told.checked), lifetimes=told.lifetimes,
        maps=maps, charts=list(specs), not_evaluable=_not_evaluable(report),
        specs=_for_script(specs), library=bundle(), percent=_percent,
        length=_length,
    )  # fmt: skip


def _findings(checked: Checked) -> list[dict[str, Any]]:
    by_id = {f.id: f for f in checked.report.findings} if checked.report else {}
    out = []
    for like in alike(checked.roots)[:MOST_FINDINGS]:
        finding, moments = like[0], []
        for role, pos, _ in checked.moments(finding):
            event = checked.events.get(pos)
            if event is not None:
                moments.append((role, pos, shown(lane(event)), shown(sentence(event))))
        out.append({
            "finding": finding, "rule": RULES[finding.code], "message": shown(finding.message),
            "moments": moments, "edge": shown(finding.edge or ""),
            "believed": facts_line(finding.believed), "actual": facts_line(finding.actual),
            "more": [f.id for f in like[1:]],
            "caused": [
                (by_id[i].id, by_id[i].code, shown(by_id[i].message))
                for i in finding.caused[:20] if i in by_id
            ],
        })  # fmt: skip
    return out


def _others(checked: Checked) -> dict[str, int]:
    """Root findings beyond those told, by rule."""
    out: dict[str, int] = {}
    for like in alike(checked.roots)[MOST_FINDINGS:]:
        out[like[0].code] = out.get(like[0].code, 0) + len(like)
    return out


def _not_evaluable(report: Report) -> list[tuple[str, str, str]]:
    return [
        (code, RULES[code].name, ", ".join(needs)) for code, needs in report.not_evaluable.items()
    ]


def _length(value: float | None, clock: bool) -> str:
    """A length of time, in seconds or in events."""
    if value is None:
        return "–"
    return f"{value / 1e9:,.3f} s" if clock else f"{value:,.0f} events"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _for_script(value: Any) -> str:
    """JSON that cannot end the script it stands in."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
