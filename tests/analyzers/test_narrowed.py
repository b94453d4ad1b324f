"""Asked of the doubtful events alone, the rules say what they say of the whole trace: the reports
are the same to the byte, with whatever was narrowed and in however small batches it was read."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import pytest
from variants import faults_around, faults_blocks, faults_transfers  # noqa: F401  fill MUTATIONS
from variants.correct import Options, correct_trace
from variants.mutants import OPERATORS, _whole
from variants.mutation import MUTATIONS
from variants.options import random_options
from variants.recorded_so import RECORDED
from variants.test_variants_wellformed import ALL
from variants.transform import TRANSFORMS, variant

from hkvtool.analyzers import check
from hkvtool.analyzers.long_check import right_of, screen_of
from hkvtool.analyzers.screen import narrowed_down
from hkvtool.analyzers.screen_fold import Suspicious
from hkvtool.analyzers.shares import Shares
from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.store import open_trace
from hkvtool.store.importing import import_traces

SHIPPED = Path(__file__).parents[2] / "fixtures"

BESIDE = ("double", "load", "grow", "mirror", "private", "swap", "cut", "scale", "ids")
"""Transforms that change what happens around a fault."""

Lines = list[dict[str, Any]]


def as_whole(path: Path, size: int) -> bool | None:
    """Whether a trace with a fault was narrowed down; None where it is all for the rules. Its
    report is that of the rules over the whole trace."""
    with open_trace(str(path)) as trace:
        try:
            narrowed = narrowed_down(trace, size=size).as_json()
        except Suspicious:
            return None
        whole = check(trace.events()).as_json()
        assert json.dumps(narrowed) == json.dumps(whole)
        return bool(whole["findings"])


def written(lines: Lines, folder: Path) -> Path:
    source = folder / "lines.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return imported(source, folder)


def imported(source: Path, folder: Path) -> Path:
    path = folder / "trace.duckdb"
    import_traces([str(source)], path, force=True)
    return path


def keyless(lines: Iterable[dict[str, Any]]) -> Lines:
    """Without what is for the rules alone wherever it is said."""
    return [{k: v for k, v in e.items() if k not in ("key", "gens")} for e in lines]


def narrowed_of(traces: Iterable[Lines], folder: Path, size: int) -> int:
    """How many of some traces have a fault and were narrowed down."""
    return sum(bool(as_whole(written(keyless(lines), folder), size)) for lines in traces)


def test_cases_are_told_as_by_the_rules(tmp_path: Path) -> None:
    sources = sorted(SHIPPED.glob("cases/*/bad.jsonl"))
    found = [as_whole(imported(source, tmp_path), 16) for source in sources[::2]]
    assert found.count(True) > 15


@pytest.mark.soak
def test_every_clause_of_every_rule_is_told_as_by_the_rules(tmp_path: Path) -> None:
    sources = sorted(SHIPPED.glob("rules/**/*.jsonl"))
    found = [as_whole(imported(source, tmp_path), 16) for source in sources]
    assert found.count(True) > 200


def faults(seeds: int, every: int = 1) -> Iterable[Lines]:
    for name in list(MUTATIONS)[::every]:
        for seed in range(seeds):
            events = correct_trace(seed, Options(**MUTATIONS[name].options))
            faulty = MUTATIONS[name].change(events, Random(seed))
            if faulty is not None:
                yield faulty


def test_a_fault_in_a_correct_trace_is_told_as_by_the_rules(tmp_path: Path) -> None:
    assert narrowed_of(faults(1, every=2), tmp_path, 48) > 10


@pytest.mark.soak
def test_faults_in_correct_traces_are_told_as_by_the_rules(tmp_path: Path) -> None:
    assert narrowed_of(faults(6), tmp_path, 48) > 130


@pytest.mark.soak
def test_cases_beside_other_work_are_told_as_by_the_rules(tmp_path: Path) -> None:
    beside = [name for name in TRANSFORMS if name in BESIDE]
    made = (variant(case, f"narrowed {n}", beside).bad for case in ALL.values() for n in range(3))
    assert narrowed_of(made, tmp_path, 64) > 100


def mutants(numbers: range) -> Iterable[Lines]:
    """Mutants of random engines' traces, some of them mutated twice."""
    for number in numbers:
        rng = Random(f"narrowed {number}")
        events = keyless(correct_trace(number, _whole(random_options(rng))))
        for operate in OPERATORS.values():
            once = operate(events, rng)
            if once is not None:
                twice = operate(once[1], rng) if rng.random() < 0.5 else None
                yield (twice or once)[1]


def test_mutants_are_told_as_by_the_rules(tmp_path: Path) -> None:
    assert narrowed_of(mutants(range(4, 6)), tmp_path, 24)


@pytest.mark.soak
def test_many_mutants_are_told_as_by_the_rules(tmp_path: Path) -> None:
    assert narrowed_of(mutants(range(6, 46)), tmp_path, 24) > 100


def recorded_so(how: str, numbers: range) -> Iterable[Lines]:
    """Correct traces and mutants as recorders leave them behind."""
    for number in numbers:
        rng = Random(f"{how} {number}")
        yield RECORDED[how](keyless(correct_trace(number, _whole(random_options(rng)))), rng)
        yield from (RECORDED[how](lines, rng) for lines in mutants(range(number, number + 1)))


@pytest.mark.parametrize("how", RECORDED)
def test_what_recorders_leave_behind_is_told_as_by_the_rules(how: str, tmp_path: Path) -> None:
    assert narrowed_of(islice(recorded_so(how, range(1)), 0, None, 5), tmp_path, 24)


@pytest.mark.soak
@pytest.mark.parametrize("how", RECORDED)
def test_much_of_what_recorders_leave_behind_is_told_as_by_the_rules(
    how: str, tmp_path: Path
) -> None:
    assert narrowed_of(recorded_so(how, range(20)), tmp_path, 24) > 60


@pytest.mark.soak
def test_recordings_with_all_of_it_are_told_as_by_the_rules(tmp_path: Path) -> None:
    def made() -> Iterable[Lines]:
        for number in range(20):
            rng = Random(f"recorded {number}")
            for lines in mutants(range(number, number + 1)):
                for how in ("begun midway", "described again", "losing", "cut off"):
                    lines = RECORDED[how](lines, rng) if rng.random() < 0.5 else lines
                yield lines

    assert narrowed_of(made(), tmp_path, 24) > 60


def engine(preset: str, rule: str, requests: int, folder: Path) -> Path:
    """A trace of the reference engine with a fault put in."""
    path = folder / "run.duckdb"
    options = ["--preset", preset, "--requests", str(requests), "--fault", rule, "-o", str(path)]
    command = [sys.executable, "-m", "hkvtool", "run", *options]
    subprocess.run(command, capture_output=True, check=False, cwd=folder)
    return path


def test_an_engine_with_races_is_told_as_by_the_rules(tmp_path: Path) -> None:
    assert as_whole(engine("deepseek-v4", "HKV702", 6, tmp_path), 1 << 10)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("preset", "rule"),
    [("gemma3", "HKV303"), ("gpt-oss", "HKV303"), ("deepseek-v4", "HKV303"),
     ("gemma3", "HKV702"), ("deepseek-v4", "HKV702"), ("qwen3-next", "HKV702")],
)  # fmt: skip
def test_engines_with_a_fault_are_told_as_by_the_rules(
    preset: str, rule: str, tmp_path: Path
) -> None:
    assert as_whole(engine(preset, rule, 40, tmp_path), 1 << 10)


def test_a_long_trace_with_a_fault_is_narrowed_down(tmp_path: Path) -> None:
    path = tmp_path / "trace.duckdb"
    synthetic_trace(path, 60_000, pool_blocks=1 << 10, faulty=True)
    with open_trace(str(path)) as trace:
        assert right_of(trace) is None
        shares = Shares(process_time)
        report = screen_of(trace, shares=shares)
        assert report is not None
        whole = check(trace.events()).as_json()
    assert whole["findings"]
    assert {"screen: compiled", "second pass: state", "second pass: toctou"} <= set(shares.seconds)
    assert json.dumps(report.as_json()) == json.dumps(whole)
