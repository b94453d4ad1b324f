"""`hkvtool check`: exit codes, choices, and traces that are not as they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import Exit

HEAD = [
    {"ev": "trace", "format": "hkv/1", "evidence": ["host", "step", "bytes"]},
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
]


def _written(folder: Path, *events: dict[str, Any]) -> str:
    path = folder / "t.jsonl"
    path.write_text("".join(json.dumps(e) + "\n" for e in [*HEAD, *events]))
    return str(path)


def test_a_finding_exits_with_1_and_its_fix_with_0(hkvtool: Any, cases: Any) -> None:
    bad, good = (hkvtool("check", str(path)) for path in (cases["A01"].bad, cases["A01"].good))
    assert bad.code == Exit.FINDINGS and "HKV102 fractured-prefix" in bad.out
    assert good.code == Exit.OK and "no finding" in good.out


def test_json_is_one_report_a_trace(hkvtool: Any, cases: Any) -> None:
    found = hkvtool("check", "--format", "json", str(cases["A01"].bad), str(cases["A01"].good))
    bad, good = (json.loads(line) for line in found.out.splitlines())
    assert found.code == Exit.FINDINGS
    assert bad["findings"][0]["code"] == "HKV102" and good["findings"] == []
    assert bad["trace"]["path"] == str(cases["A01"].bad)


@pytest.mark.parametrize("rule", ["102", "HKV102", "1xx", "fractured-prefix"])
def test_rules_are_chosen_by_code_family_or_name(hkvtool: Any, cases: Any, rule: str) -> None:
    trace = str(cases["A01"].bad)
    assert hkvtool("check", trace, "--only", rule).code == Exit.FINDINGS
    assert "F1 HKV102" not in hkvtool("check", trace, "--ignore", rule).out


def test_choosing_no_rule_at_all_is_refused(hkvtool: Any, cases: Any) -> None:
    found = hkvtool("check", str(cases["A01"].bad), "--only", "102", "--ignore", "1xx")
    assert found.code == Exit.USAGE and "no rule would be run" in found.err
    unknown = hkvtool("check", str(cases["A01"].bad), "--only", "HKV999")
    assert unknown.code == Exit.USAGE and "there is no rule 'HKV999'" in unknown.err


def test_the_least_severity_that_fails_can_be_set(hkvtool: Any, tmp_path: Path) -> None:
    lost = _written(tmp_path, {"ev": "dropped", "count": 3})
    assert hkvtool("check", lost).code == Exit.INCONCLUSIVE
    assert hkvtool("check", lost, "--fail-on", "warning").code == Exit.FINDINGS


@pytest.mark.parametrize(
    "event",
    [
        {"ev": "dropped"},
        {"ev": "dropped", "count": "many"},
        {"ev": "fingerprint", "group": "kv", "blocks": [1], "values": 5, "at": "use"},
        {"ev": "fingerprint", "group": "kv", "blocks": {"a": 1}, "values": [1]},
        {"ev": "fingerprint"},
        {"ev": "retire"},
        {"ev": "signal"},
    ],
    ids=str,
)
def test_a_malformed_event_is_a_finding(hkvtool: Any, tmp_path: Path, event: Any) -> None:
    found = hkvtool("check", _written(tmp_path, event))
    assert found.code == Exit.FINDINGS and "HKV905" in found.out


def test_what_cannot_be_read_exits_with_3(hkvtool: Any, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for path in (empty, tmp_path / "missing.jsonl"):
        found = hkvtool("check", str(path))
        assert found.code == Exit.UNREADABLE and str(path.name) in found.err


def test_what_a_baseline_has_is_no_news(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    baseline.write_text(hkvtool("check", "--format", "json", str(cases["A01"].bad)).out)
    same = hkvtool("check", str(cases["A01"].bad), "--baseline", str(baseline))
    assert same.code == Exit.OK and "1 known finding left out" in same.out
    other = hkvtool("check", str(cases["A14"].bad), "--baseline", str(baseline))
    assert other.code == Exit.FINDINGS and "HKV303" in other.out


@pytest.mark.parametrize("text", ["", "{", '{"findings": [{}]}', '{"findings": 3}', "[]"])
def test_what_is_no_baseline_is_refused(
    hkvtool: Any, cases: Any, tmp_path: Path, text: str
) -> None:
    baseline = tmp_path / "known.json"
    baseline.write_text(text)
    for path in (baseline, tmp_path / "missing.json"):
        found = hkvtool("check", str(cases["A01"].bad), "--baseline", str(path))
        assert found.code == Exit.USAGE and "baseline" in found.err and found.out == ""


def test_a_part_of_a_trace(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["A01"].bad)
    parts = {
        ("--since", "38"): Exit.FINDINGS,
        ("--until", "37"): Exit.OK,
        ("--request", "r2"): Exit.FINDINGS,
        ("--request", "r1"): Exit.OK,
    }
    for part, code in parts.items():
        assert hkvtool("check", trace, *part).code == code, part
    said = json.loads(hkvtool("check", trace, "--request", "r2", "--format", "json").out)
    assert said["ratios"]["asked"] == 1300 and said["trace"]["part"] == {"request": "r2"}
    none = json.loads(hkvtool("check", trace, "--until", "30", "--format", "json").out)
    assert none["ratios"]["asked"] == 0


def test_what_if_there_were_a_cap(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["C04"].good)
    assert hkvtool("check", trace).code == Exit.OK
    capped = hkvtool("check", trace, "--limit", "recovering_blocks=4", "--format", "json")
    report = json.loads(capped.out)
    assert capped.code == Exit.FINDINGS and report["findings"][0]["code"] == "HKV501"
    assert report["findings"][0]["believed"] == {"recovering_blocks": 4}
    assert report["trace"]["limits"] == {"recovering_blocks": 4}
    assert report["trace"]["events"] == len(cases["C04"].good.read_text().splitlines())
    assert hkvtool("check", trace, "--limit", "recovering_blocks=1000").code == Exit.OK
    for wrong in ("blocks=4", "recovering_blocks", "recovering_blocks=-1"):
        assert hkvtool("check", trace, "--limit", wrong).code == Exit.USAGE


@pytest.mark.parametrize("format", ["sarif", "junit", "github"])
def test_every_format_has_the_exit_code_of_the_table(hkvtool: Any, cases: Any, format: str) -> None:
    for arm, code in (("bad", Exit.FINDINGS), ("good", Exit.OK)):
        found = hkvtool("check", str(getattr(cases["A01"], arm)), "--format", format)
        assert found.code == code and found.err == ""
        assert ("HKV102" in found.out and "fractured-prefix" in found.out) or format == "github"
    gone = hkvtool("check", "gone.jsonl", "--format", format)
    assert gone.code == Exit.UNREADABLE and "gone.jsonl" in gone.out
