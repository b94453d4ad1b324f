"""`hkvtool replay`."""

from __future__ import annotations

import json
from typing import Any

import pytest


def test_it_folds_a_trace(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), "--format", "json")
    assert out.code == 0
    facts = json.loads(out.out)
    assert facts["depth"] == "state"
    assert {g["group"]: g["filled"] for g in facts["groups"]} == {"fa": 6, "mb": 4}


def test_until_stops_there(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), "--until", "9", "--format", "json")
    facts = json.loads(out.out)
    assert facts["until"] == 9
    assert {g["group"]: g["filled"] for g in facts["groups"]} == {"fa": 2, "mb": 0}


def test_step_shows_what_an_event_changes(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), "--step", "--until", "9", "--format", "json")
    steps = [json.loads(line) for line in out.out.splitlines()]
    assert [s["pos"] for s in steps] == list(range(1, 10))
    assert [(c["block"], c["changed"]["written"]) for c in steps[-1]["changes"]] == [
        (11, [0, 256]), (12, [0, 256])]  # fmt: skip
    out = hkvtool("replay", str(cases["A01"].bad), "--step", "--until", "9")
    assert "written 0 -> 256" in out.out


def test_step_of_one_request(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), "--step", "--request", "r2", "--format", "json")
    steps = [json.loads(line) for line in out.out.splitlines()]
    assert steps[0]["pos"] == 34
    assert hkvtool("replay", str(cases["A01"].bad), "--step", "--request", "nobody").code == 2


def test_findings_are_confirmed(hkvtool: Any, cases: dict[str, Any]) -> None:
    path = str(cases["B01"].bad)
    out = hkvtool("replay", path, "--finding", "F1", "--runs", "3", "--format", "json")
    assert out.code == 1
    told = json.loads(out.out)
    assert "replay" not in told
    (result,) = told["results"]
    assert result["verdict"] == "confirmed"
    assert result["fault_arm"]["corrupt"] == 3
    assert result["control_arm"] == {"runs": 3, "corrupt": 0}
    out = hkvtool("replay", path, "--depth", "cache", "--runs", "2")
    assert "as recorded: 10 reads of 352 rows, no wrong byte" in out.out
    assert "F1 HKV703  confirmed: req-c was due" in out.out


def test_a_consequence_is_confirmed_by_its_root(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), "--finding", "f2", "--runs", "1")
    assert "F2 follows from F1" in out.err
    assert "F1 HKV102  confirmed" in out.out


@pytest.mark.parametrize("name", ["F1", "f1", "HKV703", "703", "realloc-under-writer"])
def test_a_finding_is_named_in_one_way(hkvtool: Any, cases: dict[str, Any], name: str) -> None:
    path = str(cases["B01"].bad)
    out = hkvtool("replay", path, "--finding", name, "--runs", "1")
    assert out.out.startswith("F1 HKV703  confirmed")
    assert "F1 HKV703" in hkvtool("explore", path, "--finding", name, "--no-confirm").out
    assert hkvtool("explain", path, name).code == 0


def test_free_lanes_are_counted(hkvtool: Any, cases: dict[str, Any]) -> None:
    path = str(cases["B16"].bad)
    out = hkvtool("replay", path, "--finding", "F1", "--free", "--runs", "5", "--format", "json")
    told = json.loads(out.out)
    assert told["finding"] == "F1"
    assert told["free"]["runs"] == 5 and told["free"]["lanes"] > 1
    assert out.code == (1 if told["free"]["corrupt"] else 0)
    assert told["free"]["held"] == {"runs": 5, "corrupt": 0}
    out = hkvtool("replay", str(cases["B16"].good), "--depth", "cache", "--free", "--runs", "3",
                  "--jitter", "200")  # fmt: skip
    assert (out.code, "0 of 3 runs read wrong bytes" in out.out) == (0, True)


def test_what_was_fixed_replays_clean(hkvtool: Any, cases: dict[str, Any]) -> None:
    out = hkvtool("replay", str(cases["A01"].good), "--depth", "cache", "--format", "json")
    assert out.code == 0
    told = json.loads(out.out)
    assert told["results"] == []
    assert told["replay"]["wrong_rows"] == 0
    assert told["replay"]["reads"]


def test_decisions_are_taken_again(hkvtool: Any, cases: dict[str, Any]) -> None:
    path = str(cases["C04"].bad)
    out = hkvtool(
        "replay", path, "--redecide", "--limit", "recovering_blocks=8", "--format", "json"
    )
    assert json.loads(out.out)["differences"] == {"must wait for the cap": 3}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--finding", "F99"], "there is no finding 'F99'"),
        (["--finding", "F1", "--depth", "state"], "real caches"),
        (["--depth", "cache", "--step"], "state depth"),
        (["--limit", "recovering_blocks=1"], "--redecide"),
        (["--redecide", "--limit", "x=1"], "recovering_blocks=N"),
        (["--request", "r1"], "--step"),
        (["--finding", "F1", "--until", "3"], "whole trace"),
        (["--device", "cuda"], "needs no device"),
        (["--free"], "--depth cache"),
        (["--jitter", "5"], "--free"),
        (["--free", "--depth", "cache", "--until", "3"], "--finding alone"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_said(
    hkvtool: Any, cases: dict[str, Any], args: list[str], said: str
) -> None:
    out = hkvtool("replay", str(cases["A01"].bad), *args)
    assert out.code == 2
    assert said in out.err


def test_a_gpu_that_is_not_there_is_said(hkvtool: Any, cases: dict[str, Any]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    out = hkvtool("replay", str(cases["A01"].bad), "--depth", "cache", "--device", "cuda")
    assert out.code == 2
    assert "no CUDA device" in out.err
