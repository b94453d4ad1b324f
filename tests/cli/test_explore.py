"""`hkvtool explore` and `hkvtool minimize`, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hkvtool.replay.schedules import Runner


def test_the_command_says_what_fails_and_replays_it(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["B03"].bad)
    outcome = hkvtool("explore", trace, "--format", "json")
    assert outcome.code == 1
    said = json.loads(outcome.out)
    assert said["found"][0]["failure"]["found"] == 20
    again = hkvtool("explore", trace, "--schedule", said["found"][0]["schedule"])
    assert again.code == 1 and "gets the bytes of event 20" in again.out
    assert hkvtool("explore", str(cases["B03"].good), "--block", "gpu:9").code == 0


def test_where_the_check_finds_no_race_there_is_nothing_to_search(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    good = cases["B03"].good
    none = hkvtool("explore", str(good))
    assert none.code == 0 and "the check finds no race" in none.out and "--block" in none.err
    said = json.loads(hkvtool("explore", str(good), "--format", "json").out)
    full = json.loads(hkvtool("explore", str(good), "--block", "gpu:9", "--format", "json").out)
    assert said["finding"] is None and said["found"] == []
    assert set(said) == set(full)
    # Where events were lost, what was not found may be among them.
    lossy = tmp_path / "lossy.jsonl"
    lines = good.read_text().splitlines()
    lossy.write_text("\n".join([*lines[:-1], '{"ev": "dropped", "count": 3}', lines[-1]]) + "\n")
    assert hkvtool("check", str(lossy)).code == 4
    outcome = hkvtool("explore", str(lossy))
    assert outcome.code == 4 and "inconclusive" in outcome.err
    assert hkvtool("explore", str(good), "--schedule", "0:").code == 2


def test_what_fails_is_run_on_real_caches_too(hkvtool: Any, cases: Any) -> None:
    trace = str(cases["B16"].bad)
    said = json.loads(hkvtool("explore", trace, "--format", "json").out)
    proof = said["found"][0]["caches"]
    assert proof["verdict"] == "confirmed"
    assert proof["fault_arm"] == {"runs": 20, "corrupt": 20}
    assert proof["control_arm"] == {"runs": 20, "corrupt": 0}
    assert proof["first"]["found"] != proof["first"]["expected"]
    schedule = said["found"][0]["schedule"]
    again = hkvtool("explore", trace, "--schedule", schedule)
    assert "on real caches confirmed" in again.out
    plain = hkvtool("explore", trace, "--no-confirm", "--format", "json")
    assert plain.code == 1 and json.loads(plain.out)["found"][0]["caches"] is None


def _many_orders(path: Path) -> str:
    """Two workers that take, fill and give back the same blocks: thousands of orders, all right."""
    lines: list[dict[str, Any]] = [
        {"ev": "trace", "format": "hkv/1"},
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 8},
        {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    ]
    for turn in range(4):
        for lane in range(2):
            who = {"group": "kv", "blocks": [1], "req": f"r{lane}.{turn}", "actor": f"w:{lane}"}
            lines += [
                {"ev": "alloc", **who}, {"ev": "write", "tokens": [0, 16], **who},
                {"ev": "use", "tokens": [0, 16], **who}, {"ev": "free", **who},
            ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_ctrl_c_ends_with_a_command_that_goes_on(
    hkvtool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    trace = _many_orders(tmp_path / "t.jsonl")
    args = ("explore", trace, "--block", "gpu:1", "--redecide", "--budget", "400")
    run, ran = Runner.run, 0

    def pressed(self: Runner, order: Any) -> Any:
        nonlocal ran
        ran += 1
        if ran == 100:
            signal.raise_signal(signal.SIGINT)
        return run(self, order)

    monkeypatch.setattr(Runner, "run", pressed)
    first = hkvtool(*args, "--format", "json")
    assert first.code == 130 and json.loads(first.out)["stopped"]
    command = first.err.split("this goes on:")[1].split()
    assert command[:3] == ["hkvtool", "explore", trace]
    again = hkvtool(*command[1:])
    assert again.code == 4
    assert "goes on behind 100 schedules" in again.err
    assert ran > 400
    third = hkvtool(*command[1:], "--fresh")
    assert "goes on behind" not in third.err
    harmed = next((tmp_path / "cache").rglob("*.json"))
    harmed.write_text("{}")
    assert "goes on behind" not in hkvtool(*command[1:]).err
    assert hkvtool(*command[1:], "--state", str(tmp_path / "t.jsonl")).code == 2


def test_a_minimisation_that_was_cut_short_says_how_to_go_on(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    small = tmp_path / "small.jsonl"
    cut = hkvtool("minimize", str(cases["B03"].bad), "-o", str(small), "--budget", "9")
    assert cut.code == 0 and "this goes on:" in cut.err
    before = len(small.read_text().splitlines())
    command = cut.err.split("this goes on:")[1].split()
    assert hkvtool(*command[1:]).code == 0
    assert len((tmp_path / "small.smaller.jsonl").read_text().splitlines()) < before


def test_minimize_writes_a_trace_that_checks_the_same(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    small = tmp_path / "small.jsonl"
    outcome = hkvtool("minimize", str(cases["B03"].bad), "-o", str(small), "--format", "json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    assert said["code"] == "HKV703" and said["events"] < 10
    assert len(small.read_text().splitlines()) == said["events"]
    assert hkvtool("check", str(small), "--only", "HKV703").code == 1


def test_minimize_says_what_it_cannot(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    good, bad = str(cases["B03"].good), str(cases["B03"].bad)
    assert hkvtool("minimize", good).code == 2
    assert "there are F1" in hkvtool("minimize", bad, "--finding", "F9").err
    assert hkvtool("minimize", bad, "-o", str(tmp_path / "x.duckdb")).code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_bundle_is_a_trace_that_every_command_reads(
    hkvtool: Any, cases: Any, tmp_path: Path
) -> None:
    bundle = tmp_path / "b.zip"
    outcome = hkvtool("bundle", str(cases["B03"].bad), "-o", str(bundle))
    assert outcome.code == 0, outcome.err
    assert "failing schedule" in outcome.err
    assert hkvtool("check", str(bundle), "--only", "HKV703").code == 1
    schedule = outcome.err.split("failing schedule ")[1].strip()
    assert hkvtool("explore", str(bundle), "--schedule", schedule).code == 1
    assert hkvtool("info", str(bundle)).code == 0


def test_a_test_fails_while_the_bug_is_there(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    small, case = tmp_path / "small.jsonl", tmp_path / "test_race.py"
    assert hkvtool("minimize", str(cases["B03"].bad), "-o", str(small)).code == 0
    outcome = hkvtool("export", str(small), "--format", "pytest", "-o", str(case))
    assert outcome.code == 0, outcome.err
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(case)]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    first = subprocess.run(command, cwd=tmp_path, capture_output=True, env=clean)
    assert first.returncode == 1 and b"1 failed" in first.stdout
    again = subprocess.run(
        command, cwd=tmp_path, capture_output=True,
        env={**clean, "HKV_TRACE": str(cases["B03"].good)},
    )  # fmt: skip
    assert again.returncode == 0, again.stdout


def test_the_command_writes_a_file_or_nothing(hkvtool: Any, cases: Any, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    trace = str(cases["B03"].bad)
    assert hkvtool("export", trace, "--format", "perfetto", "-o", str(out)).code == 0
    assert json.loads(out.read_text())["traceEvents"]
    cut = hkvtool(
        "export", trace, "--format", "perfetto", "-o", str(out), "--force", "--most", "30"
    )  # fmt: skip
    assert "left out" in cut.err
    assert hkvtool("export", trace, "--format", "perfetto").code == 2
