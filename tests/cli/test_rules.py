"""`hkvtool rules`."""

from __future__ import annotations

import json

import pytest

from hkvtool.cli import rules
from hkvtool.model.rules import FAMILIES, RULES


def test_the_list_has_every_rule_and_family(hkvtool) -> None:
    found = hkvtool("rules")
    lines = found.out.splitlines()
    assert (found.code, found.err) == (0, "")
    assert [w[0] for w in map(str.split, lines) if w[0] in RULES] == list(RULES)
    assert [line[4:] for line in lines if not line.startswith(" ")] == list(FAMILIES.values())


def test_the_list_as_json(hkvtool) -> None:
    rows = json.loads(hkvtool("rules", "--format", "json").out)
    assert [row["code"] for row in rows] == list(RULES)
    row = next(r for r in rows if r["code"] == "HKV702")
    assert row["needs"] == [["stream", "step"]]
    assert (row["family"], row["severity"]) == ("TOCTOU and pointer consistency", "error")


@pytest.mark.parametrize("text", ["HKV303", "hkv303", "303", "window-missing", " Window-Missing "])
def test_one_rule_is_found_by_code_or_name(hkvtool, text: str) -> None:
    found = hkvtool("rules", text)
    rule = RULES["HKV303"]
    assert found.out.startswith("HKV303 window-missing\n")
    words = " ".join(found.out.split())
    for fact in (rule.family, str(rule.severity), rule.fires, rule.fix):
        assert fact in words


@pytest.mark.parametrize(
    ("text", "hint"),
    [("windowmissing", "did you mean HKV303 window-missing?"), ("q", "see `hkvtool rules`")],
)
def test_an_unknown_rule(hkvtool, text: str, hint: str) -> None:
    found = hkvtool("rules", text)
    assert (found.code, found.out) == (2, "")
    assert found.err == f"error: there is no rule {text!r}\n  hint: {hint}\n"


@pytest.fixture
def small_traces(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = '{"ev":"trace","format":"hkv/1","note":"%s"}\n{"ev":"alloc","req":"r\\u001b","blocks":[4,5,6]}\n'
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "HKV101.fires.jsonl").write_text(head % "too early")
    (tmp_path / "rules" / "HKV101.silent.jsonl").write_text(head % "in time" + '{"ev":"reset"}\n')
    monkeypatch.setattr(rules, "shipped", lambda *parts: tmp_path.joinpath(*parts))


def test_small_traces_are_shown_with_what_differs(hkvtool, small_traces: None) -> None:
    lines = [line.rstrip() for line in hkvtool("rules", "HKV101").out.splitlines()]
    fires, silent = lines.index("Fires on"), lines.index("Does not fire on")
    assert lines[fires + 1 : silent - 1] == [
        "  too early",
        "     1  trace format=hkv/1",
        "     2  alloc req=r\\x1b blocks=[4-6]",
    ]
    assert lines[silent + 1 :] == [
        "  in time",
        "     1  trace format=hkv/1",
        "     2  alloc req=r\\x1b blocks=[4-6]",
        "  >  3  reset",
    ]


def test_small_traces_as_json(hkvtool, small_traces: None) -> None:
    row = json.loads(hkvtool("rules", "HKV101", "--format", "json").out)
    assert row["code"] == "HKV101"
    assert [len(row["traces"][arm]) for arm in ("fires", "silent")] == [2, 3]
    assert row["traces"]["silent"][2] == {"ev": "reset"}


def test_a_rule_without_small_traces_is_explained_all_the_same(hkvtool, tmp_path, monkeypatch) -> None:  # fmt: skip
    monkeypatch.setattr(rules, "shipped", lambda *parts: tmp_path.joinpath(*parts))
    found = hkvtool("rules", "HKV101")
    assert found.code == 0 and "Fires on" not in found.out
