"""Probing a server that a test has started, and what a right one and a broken one come to."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from engines.served import PATIENCE, Served
from hkvtool.probe.kept import Kept
from hkvtool.probe.load import Limits, Load
from hkvtool.probe.outcome import absences, cold_again, outcome
from hkvtool.probe.patterns import PATTERNS, Shape
from hkvtool.probe.prompts import Boundary
from hkvtool.probe.run import Options, Probe
from hkvtool.probe.server import Server
from hkvtool.probe.survey import begin

_VOCABULARY = (32, 250)

SEED = 23
"""What is asked is the same in every run; over other seeds the long runs go."""

SEEDS = random.Random(5).sample(range(1 << 31), 30)


def probed(
    server: Served, *patterns: str, comparisons: int, requests: int, length: int = 131,
    seed: int = SEED,
) -> dict[str, Any]:  # fmt: skip
    """The report of a probe, as JSON has it."""
    load = Load(Limits(requests=requests, seconds=7200))
    survey, dialect = begin(Server(server.url, timeout=PATIENCE), load, "", _VOCABULARY)
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


REUSING = ("return", "churn", "reload")
"""Patterns that reuse something in every comparison."""


def assert_silent(
    report: dict[str, Any], comparisons: int, reusing: Sequence[str] = REUSING
) -> None:
    assert report["summary"]["verdict"] == "same", report["summary"]
    assert report["summary"]["compared"] == comparisons
    assert report["summary"]["divergent"] == 0 and report["findings"] == []
    assert report["load"]["failed"] == report["load"]["failed_comparisons"] == 0
    told = {p["pattern"]: p for p in report["patterns"]}
    assert told["warm"]["reused"] > 0
    for name in reusing:
        assert told[name]["reused"] == told[name]["comparisons"] > 0, told[name]


def assert_found(report: dict[str, Any], pattern: str, requests: int) -> None:
    """By the first comparison, each time again, and never without reuse."""
    assert report["summary"]["verdict"] == "differs", report
    (finding,) = report["findings"]
    assert finding["confirmed"] and finding["pattern"] == pattern
    assert finding["cached_tokens"] > 0
    repeated = finding["repeated"]
    assert repeated["divergent"] == repeated["runs"] and repeated["control_divergent"] == 0
    assert report["summary"]["compared"] == 1
    assert report["load"]["requests"] <= requests
