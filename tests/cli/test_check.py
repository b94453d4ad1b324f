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
