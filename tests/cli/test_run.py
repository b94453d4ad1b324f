"""`hkvtool run`, as a person uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    """Twelve short prompts, each the last one's and a little more."""
    path = tmp_path / "w.jsonl"
    records = [
        {
            "timestamp": 200 * n, "input_length": 512 * (n // 2 + 2), "output_length": 40,
            "hash_ids": list(range(n // 2 + 2)),
        }
        for n in range(12)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


def account(hkvtool: Any, *args: str) -> dict[str, Any]:
    outcome = hkvtool("run", *args, "--format", "json")
    assert outcome.code == 0, outcome.err
    loaded: dict[str, Any] = json.loads(outcome.out)
    return loaded


def test_the_account_and_the_trace_agree(hkvtool: Any, workload: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    said = account(hkvtool, "--workload", str(workload), "-o", str(trace))
    with trace.open("rb") as stream:
        events: list[Event] = list(read_jsonl(stream))
    assert said["events"] == len(events) and not any(e.problem for e in events)
    assert said["requests"] == sum(e.ev == "finish" for e in events) == 12
    assert said["asked_tokens"] == sum(e["tokens"] for e in events if e.ev == "lookup")
    assert said["resumed_tokens"] == sum(e["at"] for e in events if e.ev == "resume") > 0
    assert said["wrong_reads"] == 0
    assert events[0]["note"].startswith("w.jsonl, 12 requests")


def test_both_formats_hold_the_same_events(hkvtool: Any, workload: Path, tmp_path: Path) -> None:
    lines, database = tmp_path / "t.jsonl", tmp_path / "t.duckdb"
    for path in (lines, database):
        assert (
            hkvtool("run", "--workload", str(workload), "--preset", "gpt-oss", "-o", str(path)).code
            == 0
        )
    back = tmp_path / "back.jsonl"
    assert hkvtool("export", str(database), "--format", "jsonl", "-o", str(back)).code == 0

    def read(path: Path) -> list[dict[str, Any]]:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        # Addresses differ from run to run.
        return [{k: v for k, v in event.items() if k != "pointers"} for event in found]

    assert read(lines) == read(back)


def test_trusting_hashes_is_told_with_the_first_wrong_read(hkvtool: Any, workload: Path) -> None:
    said = account(hkvtool, "--workload", str(workload), "--trust-hash")
    assert said["wrong_reads"] > 0
    assert said["first_wrong_read"]["expected"] != said["first_wrong_read"]["found"]


def test_every_layer_reads_what_its_group_does(hkvtool: Any, workload: Path) -> None:
    options = ("--workload", str(workload), "--blocks", "400", "--preset", "deepseek-v4")
    one, every = (account(hkvtool, *options, "--layers", layers) for layers in ("one", "all"))
    assert one == every and one["reads"] > 0


def test_a_device_that_is_not_there_is_said(hkvtool: Any, workload: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    outcome = hkvtool("run", "--workload", str(workload), "--device", "cuda")
    assert outcome.code == 2 and "no CUDA device" in outcome.err


def test_sequential_counts_the_last_half(hkvtool: Any, workload: Path) -> None:
    said = account(
        hkvtool, "--workload", str(workload), "--preset", "plain", "--sequential",
        "--blocks", "unlimited",
    )  # fmt: skip
    half = said["last_half"]
    assert half["asked_tokens"] == 2 * 512 * (5 + 6 + 7)
    # The first of each pair finds all but its last block, the second everything.
    assert half["matched_tokens"] == half["resumed_tokens"] == 512 * (4 + 5 + 5 + 6 + 6 + 7)


def test_a_fault_is_put_in_and_named(hkvtool: Any, workload: Path) -> None:
    said = account(hkvtool, "--workload", str(workload), "--fault", "window-missing")
    assert said["fault"].startswith("HKV303 before event ")
    assert said["wrong_reads"] > 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--preset", "none"], "no preset 'none'"),
        (["--workload", "/nowhere.jsonl"], "no such workload"),
        (["--blocks", "0"], "--blocks 0: not a number from 1"),
        (["--blocks", "many"], "--blocks many: not a number from 1"),
        (["--blocks", "4"], "blocks of 4"),
        (["--limit", "x=1"], "no limit 'x'"),
        (["--limit", "recovering_blocks=-1"], "recovering_blocks -1: not a number from 1"),
        (["--fault", "HKV999"], "no fault 'HKV999'"),
        (["--fault", "HKV306"], "needs a preset with a recurrent group"),
        (["-o", "trace.txt"], "no trace is called so"),
        (["-o", "/nowhere/t.jsonl"], "no such folder"),
    ],
)
def test_mistakes_are_told_and_leave_nothing(
    hkvtool: Any, workload: Path, tmp_path: Path, args: list[str], says: str
) -> None:
    given = args if "--workload" in args else ["--workload", str(workload), *args]
    outcome = hkvtool("run", *given)
    assert outcome.code == 2
    assert says in outcome.err and "Traceback" not in outcome.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["w.jsonl"]


def test_a_fault_without_an_occasion_leaves_no_trace(
    hkvtool: Any, workload: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "t.jsonl"
    outcome = hkvtool(
        "run", "--workload", str(workload), "--requests", "1", "--fault", "HKV902", "-o", str(trace)
    )
    assert outcome.code == 2 and "found no place in this run" in outcome.err
    assert not trace.exists()


def test_an_existing_trace_is_kept_unless_forced(
    hkvtool: Any, workload: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text("mine")
    args = ("run", "--workload", str(workload), "--requests", "2", "-o", str(trace))
    assert hkvtool(*args).code == 2
    assert trace.read_text() == "mine"
    assert hkvtool(*args, "--force").code == 0
    assert trace.read_text() != "mine"
