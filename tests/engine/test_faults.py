"""Each fault is the only root finding of its run, and wrong bytes are read where bytes are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from hkvtool.analyzers import check
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import Fault, fault, known
from hkvtool.engine.presets import preset
from hkvtool.engine.workload import Request
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.rules import RULES

from .tiny import COMPRESSING, PLAIN, RECURRENT, conversations

CODES = list(known())

LAYOUT = [code for code in CODES if code[3] in "24"]
"""Faults of what is declared; they need no run of any length, and no read follows them."""

NO_BYTES = {
    *LAYOUT, "HKV501", "HKV502", "HKV503", "HKV504", "HKV602", "HKV605", "HKV702", "HKV704",
    "HKV706", "HKV708", "HKV801", "HKV804", "HKV901", "HKV902", "HKV903", "HKV904", "HKV905",
}  # fmt: skip
"""Faults by which no read gets wrong bytes: books, caps, routes and the stream of events itself;
and those by which only a store or a table buffer does."""

SUITED = {"HKV306": RECURRENT, "HKV504": PLAIN, "HKV701": PLAIN, "HKV708": PLAIN}
"""Presets other than the one with all other forms where that has no place for the fault."""

POOLS = {"HKV504": 40, "HKV604": 160, "HKV902": 160}
"""Pool sizes where the fault needs blocks to go round."""

BEFORE = {*LAYOUT, "HKV307", "HKV605", "HKV902"}
"""Rules that name what should have been followed by something: it comes before the fault."""


def run_with(code: str, seed: int, requests: list[Request]) -> tuple[Fault, Engine, list[Event]]:
    if code in LAYOUT:
        config = Config(preset("deepseek-v4"), 3000, cpu_blocks=3000).fitted(9000)
    else:
        config = Config(
            SUITED.get(code, COMPRESSING), POOLS.get(code, 500), cpu_blocks=300, disk_blocks=300,
            seed=seed, budget=64, stride=4, abort_rate=0.0, token_ns=50_000,
        )  # fmt: skip
        requests = conversations(seed, 50, gap=1_000_000 if code == "HKV504" else 4_000_000)
    events: list[Event] = []
    bug = fault(code, seed)
    with Engine(config, lambda e: events.append(Event.of(len(events) + 1, e))) as engine:
        bug.install(engine)
        engine.run(requests)
    return bug, engine, events


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("seed", range(2))
def test_a_fault_is_found_by_its_rule_and_by_the_bytes(
    code: str, seed: int, shipped_requests: Callable[[int], list[Request]]
) -> None:
    bug, engine, events = run_with(code, seed, shipped_requests(2))
    assert bug.placed is not None
    report = check(iter(events))
    roots = Counter(f.code for f in report.findings if not f.cause and f.code != "HKV308")
    assert set(roots) == {code}, roots
    first = next(f for f in report.findings if f.code == code)
    assert code in BEFORE or max(first.events) >= bug.placed - 1
    assert (engine.memory.bad_reads > 0) == (code not in NO_BYTES)


def test_without_a_fault_the_same_run_is_clean() -> None:
    config = Config(
        COMPRESSING, 150, cpu_blocks=300, disk_blocks=300, budget=64, stride=4, wire=True,
        fingerprint=True,
    )  # fmt: skip
    events: list[Event] = []
    with Engine(config, lambda e: events.append(Event.of(len(events) + 1, e))) as engine:
        engine.run(conversations(0, 60))
    assert {e.ev for e in events} >= {"wire", "fingerprint"}
    assert {f.code for f in check(iter(events)).findings} <= {"HKV308"}
    assert engine.memory.bad_reads == 0


def test_every_rule_has_its_fault() -> None:
    """A veto is no fault: every run of a hybrid model has some."""
    assert set(RULES) - set(CODES) == {"HKV308"}


@pytest.mark.parametrize("name", ["HKV303", "303", "window-missing", " Window-Missing "])
def test_faults_go_by_code_number_and_name(name: str) -> None:
    assert fault(name, 0).code == "HKV303"


def test_the_seed_moves_a_fault() -> None:
    places = {fault("HKV101", seed).skip for seed in range(20)}
    assert len(places) > 3
    assert fault("HKV101", 3).skip == fault("HKV101", 3).skip


def test_what_is_no_fault_or_has_no_place_is_told() -> None:
    with pytest.raises(HkvError, match="no fault 'x'") as error:
        fault("x", 0)
    assert "HKV303 window-missing" in error.value.hint
    engine = Engine(Config(PLAIN, 20), lambda event: None)
    with pytest.raises(HkvError, match="needs a preset with a swa group"):
        fault("HKV303", 0).install(engine)
