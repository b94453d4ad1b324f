"""`hkvtool bench` says what was measured, and beside what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def test_fold_is_measured_beside_reading(hkvtool: Any, tmp_path: Path) -> None:
    kept = tmp_path / "kept.duckdb"
    found = json.loads(
        hkvtool(
            "bench", "fold", "--events", "2000", "--blocks", "3", "--plain-events", "500",
            "--keep", str(kept), "--format", "json",
        ).out
    )  # fmt: skip
    ways = {way["name"]: way for way in found["ways"]}
    assert list(ways)[:7] == [
        "reading alone", "reading every column", "bare loop", "compiled fold", "of which folding",
        "plain fold", "events for it",
    ]  # fmt: skip
    assert list(ways)[7].startswith("compiling")
    assert ways["compiled fold"]["events"] == found["events"] == pytest.approx(2000, rel=0.1)
    assert ways["plain fold"]["events"] == 500
    assert ways["reading alone"]["of_reading"] == ways["plain fold"]["of_plain"] == 1
    assert ways["compiled fold"]["wall"] > ways["of which folding"]["wall"] > 0
    assert len(found["moments_wall"]) == len(found["moments_cpu"]) > 5
    assert kept.stat().st_size == found["file_bytes"]


def test_a_table_gives_the_ratios_and_the_moments(hkvtool: Any, tmp_path: Path) -> None:
    lines = hkvtool("bench", "fold", "--events", "1000").out.splitlines()
    assert "of reading" in lines[0] and "of plain" in lines[0]
    assert lines[1].split()[-3] == "1.000"
    assert any(line.split()[:2] == ["--at,", "wall"] for line in lines)


def test_a_measuring_process_that_fails_is_told(
    hkvtool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.bench.fold.__name__", "hkvtool.bench.nothing")
    found = hkvtool("bench", "fold", "--events", "1000")
    assert found.code == 2 and "measuring process" in found.err


def test_without_a_name_it_says_which_there_are(hkvtool: Any) -> None:
    found = hkvtool("bench")
    assert found.code == 0
    assert [name for name in ("fold", "ring", "engine") if name not in found.out] == []


def test_the_engine_is_the_same_recorded_or_not(hkvtool: Any) -> None:
    found = hkvtool("bench", "engine", "--preset", "plain", "--requests", "3", "--format", "json")
    bare, recorded = json.loads(found.out)
    assert (bare["name"], recorded["name"]) == ("not recorded", "recorded")
    assert bare["events"] == recorded["events"] > 0
    assert bare["steps"] == recorded["steps"]


def test_the_terminal_application_is_measured(hkvtool: Any, tmp_path: Path) -> None:
    kept = tmp_path / "kept.duckdb"
    found = json.loads(
        hkvtool(
            "bench", "tui", "--events", "2000", "--blocks", "1000", "--keep", str(kept),
            "--format", "json",
        ).out
    )  # fmt: skip
    names = [cost["what"] for cost in found["costs"]]
    assert {"first paint", "next event", "seek anywhere", "open hit"} <= set(names)
    assert all(cost["cpu"] and len(cost["cpu"]) == len(cost["wall"]) for cost in found["costs"])
    assert found["blocks"] > 300 and found["peak_mib"] > 50
    assert kept.exists()


def test_checking_is_measured_beside_the_rules(hkvtool: Any) -> None:
    found = json.loads(
        hkvtool(
            "bench", "check", "--events", "2000", "--plain-events", "300", "--format", "json"
        ).out
    )
    ways = {way["name"]: way for way in found["ways"]}
    assert list(ways)[:4] == ["reading alone", "check", "check, one fault", "rules alone"]
    assert list(ways)[4].startswith("compiling")
    assert ways["check"]["events"] == found["events"] == pytest.approx(2000, rel=0.1)
    assert ways["rules alone"]["events"] == 300 and ways["rules alone"]["of_rules_alone"] == 1
    assert found["screened"] and found["findings"] == 0
    assert {"races", "toctou", "state", "order"} <= set(found["shares"])


def test_a_trace_of_ones_own_is_measured(hkvtool: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    hkvtool("bench", "fold", "--events", "1000", "--keep", kept)
    lines = hkvtool("bench", "check", "--trace", kept, "--plain-events", "200").out.splitlines()
    assert "of rules alone" in lines[0]
    assert any("races" in line and "%" in line for line in lines)


def test_the_share_of_each_family_is_told(hkvtool: Any, tmp_path: Path) -> None:
    kept = str(tmp_path / "kept.duckdb")
    hkvtool("bench", "fold", "--events", "1000", "--keep", kept)
    found = hkvtool("check", kept, "--profile")
    assert found.code == 0 and "match ratio" in found.out
    told = {
        line.split()[-1] for line in found.err.splitlines() if line.endswith(("races", "order"))
    }
    assert told == {"races", "order"}
    assert hkvtool("check", kept, "--profile", "--since", "3").code == 2
