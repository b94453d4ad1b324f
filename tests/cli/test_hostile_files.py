"""Files that a command is given and that are none of its: devices without an end, what is cut,
nested or of another kind. Said in words, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from hkvtool.cli.app import main
from hkvtool.cli.console import PIPE_WIDTH, console
from hkvtool.model.shipped import shipped
from hkvtool.store.duck import DuckTrace

CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"model_type": "llama", "num_hid', "no JSON"),
        (b'{"model_type": "\xff"}', "no JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[1, 2]", "no object"),
        (b'{"a": "' + b"x" * (17 << 20) + b'"}', "larger than 16 MiB"),
    ],
    ids=["cut", "not UTF-8", "nested", "a list", "large"],
)
def test_a_configuration_that_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert main(["preflight", str(path)]) == 3
    assert said in capsys.readouterr().err


def test_a_configuration_with_a_mark_of_its_order(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8-sig")
    assert main(["preflight", str(path)]) == 0


RACE = str(shipped("cases", "B13", "bad.jsonl"))


def test_the_state_of_a_search_is_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["explore", RACE, "--finding", "F1", "--budget", "5", "--state", "/dev/zero"])
    assert code == 2 and "never so large" in capsys.readouterr().err


def test_the_state_of_a_search_has_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    state = "/proc/search.state"
    code = main(["explore", RACE, "--finding", "F1", "--budget", "5", "--state", state])
    said = capsys.readouterr().err
    assert code == 2 and "cannot be kept" in said and f"where: {state}" in said


def test_a_query_of_any_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(tmp_path / "t.duckdb")
    assert main(["import", RACE, "-o", trace]) == 0
    assert main(["sql", trace, "SELECT '\udcff'"]) == 2
    assert "not in UTF-8" in capsys.readouterr().err


def test_names_that_are_not_in_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = str(tmp_path / "t\udcff.duckdb")
    for args in (["import", RACE], ["record"], ["listen", "tcp://127.0.0.1:9"]):
        more = ["--", "true"] if args[0] == "record" else []
        assert main([*args, "-o", odd, *more]) == 2
        assert "not in UTF-8" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    trace = tmp_path / "t.duckdb"
    assert main(["import", RACE, "-o", str(trace)]) == 0
    trace.rename(odd)
    capsys.readouterr()
    assert main(["check", odd]) == 3
    assert "not in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("schedule", ["8ddef6a7:1>" + "9" * 5000, "8ddef6a7:99999>1"])
def test_a_schedule_that_no_window_has(schedule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", RACE, "--finding", "F1", "--schedule", schedule]) == 2
    assert "schedule" in capsys.readouterr().err


def test_a_divergence_to_repeat_is_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "http://127.0.0.1:9", "--again", "/dev/zero"]) == 2
    assert "no JSON" in capsys.readouterr().err


def test_rings_in_a_folder_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rings, output = str(tmp_path / "none"), str(tmp_path / "t.duckdb")
    assert main(["record", "-o", output, "--rings", rings, "--", "true"]) == 2
    assert f"for the rings in {rings}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("columns", ["0", "-5", "wide", ""])
def test_columns_that_are_no_number_of_columns(
    columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert console().width == PIPE_WIDTH


def test_a_query_that_meets_damage_says_that_the_trace_is_damaged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def damaged(*_: object) -> None:
        raise duckdb.IOException("Corrupt database file: computed checksum 1 does not match 2")

    trace = str(tmp_path / "t.duckdb")
    assert main(["import", RACE, "-o", trace]) == 0
    monkeypatch.setattr(DuckTrace, "select", damaged)
    assert main(["sql", trace, "SELECT 1"]) == 3
    assert "the file is damaged or was cut" in capsys.readouterr().err
