"""The case corpus on real caches: each fault corrupts, and is clean with its cause taken away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.kernels import operations, reference
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.shipped import shipped
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import Result, confirm
from hkvtool.replay.whole import replay

Reading = Callable[[Path], list[Event]]

KINDS = frozenset("abde")
"""Cases whose faults are about which bytes a read gets."""

NOT_CONFIRMED = {
    ("A05", "HKV308"): "tokens computed again, and so no wrong byte",
    ("A19", "HKV308"): "tokens computed again, and so no wrong byte",
    ("B11", "HKV704"): "needs the block in two hands",
    ("E04", "HKV402"): "needs memory beyond the region",
}
"""The only findings of these cases that are not confirmed, and why."""


def _setting(events: Sequence[Event], runs: int = 20) -> Setting:
    return Setting(events, survey(events), runs=runs)


def _roots(report: Report) -> list[Finding]:
    return [f for f in report.findings if not f.cause]


def _confirmed(events: list[Event], runs: int = 20) -> list[Result]:
    report = check(iter(events))
    setting = _setting(events, runs)
    return [confirm(setting, report, finding) for finding in _roots(report)]


def test_faults_corrupt_and_controls_are_clean(case: Any, read_events: Reading) -> None:
    if case.meta["kind"] not in KINDS:
        pytest.skip("a case of waiting, of a router's belief, or of the seeded ones")
    results = _confirmed(read_events(case.bad))
    assert results
    for result in results:
        why = NOT_CONFIRMED.get((case.id, result.finding.code))
        if why is not None:
            assert result.verdict in ("not-confirmed", "not-confirmable")
            assert why in result.reason
            continue
        assert result.verdict == "confirmed", result.reason
        assert result.fault is not None and result.control is not None
        assert (result.fault.corrupt, result.fault.runs) == (20, 20)
        assert (result.control.corrupt, result.control.runs) == (0, 20)
        assert result.first is not None
        assert result.first["found"] != result.first["expected"]


def test_the_list_of_what_is_not_confirmed_is_of_real_cases(cases: dict[str, Any]) -> None:
    assert {name for name, _ in NOT_CONFIRMED} <= set(cases)


def test_what_was_fixed_reads_no_wrong_byte(case: Any, read_events: Reading) -> None:
    replayed = replay(_setting(read_events(case.good)))
    assert replayed.account.reads
    assert replayed.account.wrong_at == {}


def test_examples_that_no_rule_fires_on_read_no_wrong_byte(read_events: Reading) -> None:
    folder = Path(str(shipped("rules")))
    examples = sorted((*folder.glob("*.silent.jsonl"), *folder.glob("clauses/*.silent.jsonl")))
    assert len(examples) > 300
    for example in examples:
        assert replay(_setting(read_events(example))).account.wrong_at == {}, example.name


@pytest.mark.parametrize("name", ["A01", "B01", "D02", "E06"])
def test_a_verdict_comes_from_the_bytes_read(
    name: str, cases: dict[str, Any], read_events: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were every byte found right, nothing would be confirmed."""
    real = reference.verify

    def blind(*args: Any) -> Any:
        wrong, found = real(*args)
        return wrong & False, found

    monkeypatch.setattr(reference, "verify", blind)
    monkeypatch.setattr(operations, "heads", lambda packed: reference.torch.zeros(
        (len(packed), 4), dtype=reference.torch.int64))  # fmt: skip
    for result in _confirmed(read_events(cases[name].bad), runs=1):
        assert result.verdict != "confirmed"


@pytest.mark.parametrize("name", ["A02", "B01", "B10", "E01"])
def test_a_control_that_changes_nothing_confirms_nothing(
    name: str, cases: dict[str, Any], read_events: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the fault's own plan as its control, both arms corrupt."""
    from hkvtool.replay import confirming

    found = confirming._fault

    def same(*args: Any) -> Any:
        fault, _ = found(*args)
        return fault, fault.plan

    monkeypatch.setattr(confirming, "_fault", same)
    for result in _confirmed(read_events(cases[name].bad), runs=1):
        assert result.verdict == "not-confirmed"
        assert "control arm reads wrong bytes too" in result.reason


def test_whose_bytes_a_read_got_is_named(cases: dict[str, Any], read_events: Reading) -> None:
    (result,) = _confirmed(read_events(cases["B01"].bad), runs=1)
    assert result.first is not None
    assert result.first["expected"]["request"] == "req-c"
    assert result.first["found"]["request"] == "req-b"
    assert result.first["block"] == 33


def test_the_contract(cases: dict[str, Any], read_events: Reading) -> None:
    (result,) = _confirmed(read_events(cases["D02"].bad), runs=2)
    told = result.as_json()
    assert set(told) == {
        "finding", "code", "verdict", "reason", "fault_arm", "control_arm", "device", "schedule",
        "control",
    }  # fmt: skip
    assert told["fault_arm"].keys() == {"runs", "corrupt", "first"}
    assert told["fault_arm"]["first"].keys() >= {"block", "row", "expected", "found"}
    assert told["control_arm"] == {"runs": 2, "corrupt": 0}
    assert told["device"] == "cpu"
    assert "recorded pointers stands in" in told["schedule"]
