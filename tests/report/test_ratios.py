"""`hkvtool ratios`: the account of a trace."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hkvtool.model.errors import Exit


def test_an_account(hkvtool: Any, cases: Any, golden: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(cases["C04"].folder)
    found = hkvtool("ratios", "bad.jsonl")
    assert found.code == Exit.OK and max(map(len, found.out.splitlines())) <= 80
    golden("ratios-C04.txt", found.out)


@pytest.mark.parametrize("part", ["time", "group", "tenant", "request", "rule", "blocks"])
def test_each_part_by_itself(hkvtool: Any, cases: Any, part: str) -> None:
    found = hkvtool("ratios", str(cases["A14"].bad), "--by", part)
    assert found.code == Exit.OK and "1,100" in found.out
    assert ("window-missing" in found.out) == (part == "rule")


def test_the_account_of_every_case(hkvtool: Any, case: Any) -> None:
    for path in case.arms:
        text = hkvtool("ratios", str(path))
        assert text.code == Exit.OK and max(map(len, text.out.splitlines())) <= 80
        said = json.loads(hkvtool("ratios", str(path), "--format", "json").out)
        checked = json.loads(hkvtool("check", str(path), "--format", "json").out)
        assert said["ratios"] == checked["ratios"]
