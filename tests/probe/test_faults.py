"""A server whose cache is broken in one way is told from one that is right, and by which pattern."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probe.asked import asked
from probe.stub import FAULTS, Stub

SHOWN_BY = {
    "stale window": {"warm", "return", "churn", "abort"},
    "swapped block": {"warm", "extend", "fork", "return", "turns", "churn", "abort"},
    "missing state": {"warm", "extend", "fork", "return", "turns", "churn", "abort"},
    "wrong salt": {"salt"},
    "late load": {"reload"},
}
REQUESTS = 400
"""Within so many requests a finding is confirmed, those of the repeats included."""


def test_a_server_that_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(
        Stub(capacity=200), capsys, "--comparisons", "60", "--cache-tokens", "3200"
    )
    assert code == 0 and report["summary"]["verdict"] == "same"
    assert report["summary"]["compared"] == 60 and report["findings"] == []
    assert report["sensitivity"] == {"told_apart": 12, "changed": 12}
    assert {p["pattern"] for p in report["patterns"]} >= {"reload", "load", "salt", "turns"}


@pytest.mark.soak
def test_a_server_that_is_right_a_thousand_times(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(noise=1e-4), capsys, "--comparisons", "1000")
    assert code == 0 and report["summary"]["divergent"] == 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(fault=fault, capacity=60 if fault == "late load" else 4096, noise=1e-4)
    more = ("--pattern", "reload", "--cache-tokens", "960") if fault == "late load" else ()
    code, report = asked(
        stub, capsys, "--comparisons", "40", "--max-requests", str(REQUESTS), *more
    )
    assert code == 1 and report["summary"]["verdict"] == "differs"
    confirmed = [f for f in report["findings"] if f["confirmed"]]
    assert confirmed and {f["pattern"] for f in confirmed} <= SHOWN_BY[fault]
    for finding in confirmed:
        told = finding["repeated"]
        assert told["divergent"] >= 6 and told["control_divergent"] == 0
        assert told["p"] <= told["p_adjusted"] < 0.05
        assert finding["boundary"] and finding["requests"] and finding["cached_tokens"] > 0


def test_noise_is_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Noise of a tenth of a nat flips tokens that were nearly as likely; nothing is wrong."""
    code, report = asked(Stub(noise=0.1), capsys, "--comparisons", "60")
    assert report["noise"]["largest_nats"] > 0.05
    assert code == 0 and report["summary"]["confirmed"] == 0


def test_answers_that_jump_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    """Some jump without any reuse: that is neither a finding, nor does it hide one."""
    code, report = asked(Stub(jumps=0.04), capsys, "--comparisons", "60")
    assert report["summary"]["divergent"] > 0 and report["summary"]["confirmed"] == 0
    assert code in (0, 4) and report["noise"]["tolerance_nats"] < 0.5
    code, report = asked(Stub(jumps=0.04, fault="missing state"), capsys, "--comparisons", "20")
    assert code == 1 and report["summary"]["confirmed"] >= 1


def test_noise_does_not_hide_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = asked(Stub(noise=0.02, fault="missing state"), capsys, "--comparisons", "20")
    assert code == 1


def test_a_blind_probe_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    code, report = asked(Stub(noise=3.0), capsys, "--comparisons", "20")
    assert code == 4 and report["summary"]["verdict"] == "inconclusive"
    assert report["sensitivity"]["told_apart"] < 6


def test_a_saved_divergence_is_the_smallest_and_shows_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = Stub(fault="swapped block")
    code, report = asked(stub, capsys, "--pattern", "return", "--save", str(tmp_path))
    finding: dict[str, Any] = report["findings"][0]
    assert code == 1 and finding["smallest"]["requests"] == 2, "B is not needed"
    saved = ("--again", finding["replay"])
    code, report = asked(Stub(fault="swapped block"), capsys, *saved)
    assert code == 1 and report["findings"][0]["repeated"]["divergent"] == 8
    code, report = asked(Stub(), capsys, *saved)
    assert code == 0 and report["findings"][0]["repeated"]["divergent"] == 0
