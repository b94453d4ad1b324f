"""`hkvtool bench` says what was measured, and beside what."""

from __future__ import annotations

import json
from typing import Any


def test_fold_is_measured_beside_reading(hkvtool: Any) -> None:
    ways = json.loads(hkvtool("bench", "fold", "--events", "2000", "--format", "json").out)
    assert [way["name"] for way in ways] == [
        "reading alone", "compiling, or its cache", "compiled fold", "plain fold",
    ]  # fmt: skip
    assert [way["events"] for way in ways] == [2000, 1000, 2000, 2000]
    assert all(way["cpu"] >= 0 for way in ways)


def test_a_table_gives_the_ratio(hkvtool: Any) -> None:
    lines = hkvtool("bench", "fold", "--events", "1000").out.splitlines()
    assert lines[0].endswith("of reading")
    assert lines[1].split()[-1] == "1.000"


def test_without_a_name_it_says_which_there_are(hkvtool: Any) -> None:
    found = hkvtool("bench")
    assert found.code == 2
    assert "hkvtool bench --help" in found.err


def test_the_engine_is_the_same_recorded_or_not(hkvtool: Any) -> None:
    found = hkvtool("bench", "engine", "--preset", "plain", "--requests", "3", "--format", "json")
    bare, recorded = json.loads(found.out)
    assert (bare["name"], recorded["name"]) == ("not recorded", "recorded")
    assert bare["events"] == recorded["events"] > 0
    assert bare["steps"] == recorded["steps"]
