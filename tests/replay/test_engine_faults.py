"""Every fault of the reference engine, replayed: confirmed, or why not here."""

from __future__ import annotations

from typing import Any

import pytest
from engine import tiny

from hkvtool.analyzers import check
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import fault, known
from hkvtool.model.event import Event
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import Result, confirm

CONFIRMED = {
    "HKV101": ("COMPRESSING", 6), "HKV102": ("COMPRESSING", 12), "HKV103": ("COMPRESSING", 12),
    "HKV104": ("COMPRESSING", 12), "HKV105": ("COMPRESSING", 12), "HKV201": ("COMPRESSING", 6),
    "HKV202": ("COMPRESSING", 6), "HKV203": ("COMPRESSING", 6), "HKV204": ("COMPRESSING", 6),
    "HKV301": ("COMPRESSING", 6), "HKV302": ("COMPRESSING", 6), "HKV303": ("COMPRESSING", 6),
    "HKV304": ("COMPRESSING", 12), "HKV305": ("COMPRESSING", 12), "HKV306": ("RECURRENT", 12),
    "HKV307": ("COMPRESSING", 6), "HKV403": ("COMPRESSING", 6), "HKV404": ("COMPRESSING", 6),
    "HKV601": ("COMPRESSING", 6), "HKV603": ("COMPRESSING", 6), "HKV604": ("COMPRESSING", 6),
    "HKV701": ("RECURRENT", 12), "HKV702": ("COMPRESSING", 12), "HKV703": ("COMPRESSING", 24),
    "HKV705": ("COMPRESSING", 6), "HKV706": ("COMPRESSING", 6), "HKV707": ("COMPRESSING", 6),
    "HKV709": ("COMPRESSING", 6), "HKV802": ("COMPRESSING", 6), "HKV803": ("COMPRESSING", 12),
    "HKV804": ("COMPRESSING", 6),
}  # fmt: skip
"""Geometry and number of requests with which the engine has the fault, and a replay shows it."""

NEEDS = {
    "HKV402": ("COMPRESSING", 6, "memory beyond the region"),
    "HKV602": ("COMPRESSING", 24, "bytes that the stated route turns into another form"),
    "HKV605": ("COMPRESSING", 6, "a read of what the transfer was to bring or to hold"),
    "HKV704": ("COMPRESSING", 6, "the block in two hands"),
    "HKV708": ("PLAIN", 12, "a write of other bytes than stand there"),
    "HKV801": ("COMPRESSING", 6, "a rebase that says which memory moved"),
    "HKV906": ("COMPRESSING", 12, "what changed the bytes"),
}
"""Faults that no read of this engine's trace gets wrong bytes from, and what would show them."""

NO_BYTES = {
    "HKV205", "HKV501", "HKV502", "HKV503", "HKV504", "HKV901", "HKV902", "HKV903", "HKV904",
    "HKV905",
}  # fmt: skip
"""Faults that cost something else than right bytes."""

ELSEWHERE = {"HKV401"}
"""Faults that the tiny geometries, of one byte's alignment, cannot have."""


def _result(code: str, preset: str, count: int, runs: int) -> Result:
    config = Config(
        getattr(tiny, preset), 500, cpu_blocks=300, disk_blocks=300, seed=1, budget=64, stride=4,
        abort_rate=0.0, token_ns=50_000,
    )  # fmt: skip
    events: list[Event] = []

    def keep(data: dict[str, Any]) -> None:
        events.append(Event.of(len(events) + 1, data))

    with Engine(config, keep) as engine:
        fault(code, 1).install(engine)
        engine.run(tiny.conversations(1, count, gap=4_000_000))
    report = check(iter(events))
    finding = next(f for f in report.findings if f.code == code and not f.cause)
    return confirm(Setting(events, survey(events), runs=runs), report, finding)


def test_every_fault_is_in_one_of_these_lists() -> None:
    lists = [set(CONFIRMED), set(NEEDS), NO_BYTES, ELSEWHERE]
    assert set().union(*lists) == set(known())
    assert sum(map(len, lists)) == len(known())


def _confirmed(code: str, runs: int) -> None:
    preset, count = CONFIRMED[code]
    result = _result(code, preset, count, runs)
    assert result.verdict == "confirmed", result.reason
    assert result.fault is not None and result.control is not None
    assert (result.fault.corrupt, result.control.corrupt) == (runs, 0)
    assert result.first is not None
    assert result.first["found"] != result.first["expected"]


@pytest.mark.parametrize("code", sorted(CONFIRMED))
def test_a_fault_corrupts_and_its_control_is_clean(code: str) -> None:
    _confirmed(code, 1)


@pytest.mark.soak
@pytest.mark.parametrize("code", sorted(CONFIRMED))
def test_it_does_so_twenty_times_of_twenty(code: str) -> None:
    _confirmed(code, 20)


@pytest.mark.parametrize("code", sorted(NEEDS))
def test_what_is_not_confirmable_here_says_what_it_needs(code: str) -> None:
    preset, count, needs = NEEDS[code]
    result = _result(code, preset, count, 1)
    assert result.verdict == "not-confirmable"
    assert needs in result.reason
