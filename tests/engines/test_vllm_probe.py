"""A served vLLM, probed from outside: silent while it is right, found while it is broken."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from engines.served import Served, served
from hkvtool.probe.kept import Kept
from hkvtool.probe.load import Limits, Load
from hkvtool.probe.outcome import absences, cold_again, outcome
from hkvtool.probe.patterns import PATTERNS, Shape
from hkvtool.probe.prompts import Boundary
from hkvtool.probe.run import Options, Probe
from hkvtool.probe.server import Server
from hkvtool.probe.survey import begin

REQUESTS = {
    "stale window": 150, "swapped block": 150, "wrong salt": 150, "missing state": 150,
    "late load": 500,
}  # fmt: skip
"""Within so many requests each fault is confirmed, those that measure noise and repeat included.
To push a prompt out of the cache takes some."""

_VOCABULARY = (32, 250)

SEED = 23
"""What is asked is the same in every run; over other seeds the long runs go."""

SEEDS = random.Random(5).sample(range(1 << 31), 30)

FAULTS = [
    ("stale window", "return"), ("swapped block", "return"), ("wrong salt", "salt"),
    ("late load", "reload"),
]  # fmt: skip
"""What is broken, and a pattern that meets it in every comparison."""


def probed(
    server: Served, *patterns: str, comparisons: int, requests: int, length: int = 131,
    seed: int = SEED,
) -> dict[str, Any]:  # fmt: skip
    """The report of a probe, as JSON has it."""
    load = Load(Limits(requests=requests, seconds=7200))
    survey, dialect = begin(Server(server.url), load, "", _VOCABULARY)
    shape = Shape(
        length=length, output=4, boundaries=(Boundary("block", survey.block), Boundary("window", 64)),
        filler=int(survey.cache * 1.25), vocabulary=_VOCABULARY,
    )  # fmt: skip
    options = Options(comparisons, noise=8, sensitivity=4, findings=1, shrink=False,
                      seed=seed, patterns=patterns or tuple(PATTERNS))  # fmt: skip
    absent = absences(survey, dialect, options, adapters=False, filler=shape.filler)
    asked = tuple(p for p in options.patterns if p not in absent)
    options = Options(**{**vars(options), "patterns": asked})
    probe = Probe(dialect, shape, options, Kept(), cold_again(survey, ""))
    probe.run()
    return outcome(probe, survey, absent)


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Windows and full attention, with a tier below."""
    with served(tmp_path_factory.mktemp("windows"), "gemma3", offload=True) as server:
        yield server


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Recurrent states and full attention."""
    with served(tmp_path_factory.mktemp("states"), "qwen3next") as server:
        yield server


def _silent(report: dict[str, Any], comparisons: int) -> None:
    assert report["summary"]["verdict"] == "same", report["summary"]
    assert report["summary"]["compared"] == comparisons
    assert report["summary"]["divergent"] == 0 and report["findings"] == []
    assert report["load"]["failed"] == report["load"]["failed_comparisons"] == 0
    told = {p["pattern"]: p for p in report["patterns"]}
    assert told["warm"]["reused"] > 0
    for name in ("return", "churn", "reload"):
        assert told[name]["reused"] == told[name]["comparisons"] > 0, told[name]


def _found(report: dict[str, Any], fault: str, pattern: str) -> None:
    """By the first comparison, each time again, and never without reuse."""
    assert report["summary"]["verdict"] == "differs", report
    (finding,) = report["findings"]
    assert finding["confirmed"] and finding["pattern"] == pattern
    assert finding["cached_tokens"] > 0
    repeated = finding["repeated"]
    assert repeated["divergent"] == repeated["runs"] and repeated["control_divergent"] == 0
    assert report["summary"]["compared"] == 1
    assert report["load"]["requests"] <= REQUESTS[fault]


def test_a_right_server_is_silent(windows: Served) -> None:
    report = probed(windows, comparisons=10, requests=400)
    _silent(report, 10)
    assert report["server"]["block_tokens"] == 32 and report["server"]["salts"] == "separate"
    assert report["sensitivity"]["told_apart"] == 4


@pytest.mark.soak
def test_a_right_server_is_silent_a_thousand_times(windows: Served) -> None:
    _silent(probed(windows, comparisons=1000, requests=20_000), 1000)


@pytest.mark.parametrize(("fault", "pattern"), FAULTS)
def test_a_broken_server_is_found(windows: Served, fault: str, pattern: str) -> None:
    windows.breaks(fault)
    try:
        report = probed(windows, pattern, comparisons=4, requests=REQUESTS[fault])
    finally:
        windows.breaks("")
    _found(report, fault, pattern)


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "pattern"), FAULTS)
def test_a_broken_server_is_found_whatever_is_asked(
    windows: Served, fault: str, pattern: str
) -> None:
    windows.breaks(fault)
    try:
        for seed in SEEDS:
            report = probed(windows, pattern, comparisons=4, requests=REQUESTS[fault], seed=seed)
            _found(report, fault, pattern)
    finally:
        windows.breaks("")


@pytest.mark.soak
def test_a_missing_state_is_found(states: Served) -> None:
    states.breaks("missing state")
    for seed in [SEED, *SEEDS]:
        report = probed(
            states, "warm", comparisons=4, length=300, requests=REQUESTS["missing state"], seed=seed
        )
        _found(report, "missing state", "warm")
