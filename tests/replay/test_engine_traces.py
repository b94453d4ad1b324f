"""Traces of the reference engine: right ones replay clean and are decided alike, wrong ones show."""

from __future__ import annotations

from typing import Any

import pytest
from engine import tiny

from hkvtool.analyzers import check
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.faults import fault
from hkvtool.engine.geometry import Preset
from hkvtool.engine.presets import preset
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import confirm
from hkvtool.replay.redeciding import redecide
from hkvtool.replay.whole import replay

PRESETS = ("COMPRESSING", "PLAIN", "RECURRENT", "WINDOWED", "CHUNKED", "INDEXED")


def _record(of: Preset, count: int = 15, blocks: int = 400) -> list[Event]:
    config = Config(
        of, blocks, cpu_blocks=300, disk_blocks=300, seed=1, budget=64, stride=4, abort_rate=0.0,
        token_ns=50_000,
    )  # fmt: skip
    events: list[Event] = []
    with Engine(config, lambda e: events.append(Event.of(len(events) + 1, e))) as engine:
        engine.run(tiny.conversations(1, count, gap=4_000_000))
    return events


@pytest.fixture(scope="module")
def traces() -> dict[str, list[Event]]:
    return {name: _record(getattr(tiny, name)) for name in PRESETS}


@pytest.mark.parametrize("name", PRESETS)
def test_a_right_trace_reads_no_wrong_byte(name: str, traces: dict[str, list[Event]]) -> None:
    events = traces[name]
    replayed = replay(Setting(events, survey(events)))
    assert replayed.account.reads > 50
    assert replayed.account.wrong_at == {}


@pytest.mark.parametrize("name", PRESETS)
def test_the_allocator_decides_its_own_trace_alike(
    name: str, traces: dict[str, list[Event]]
) -> None:
    outcome = redecide(traces[name], {})
    assert outcome.decisions > 20
    assert outcome.as_json()["differences"] == {}


def _without_a_fence(events: list[Event]) -> tuple[list[Event], Report, Finding]:
    """The trace without one wait that orders a transfer behind the step that wrote its blocks, and
    what is found then. Not every wait is the only order between two accesses."""
    waits = [i for i, e in enumerate(events) if e.ev == "wait" and e.actor.startswith("stream:")]
    for at in waits:
        rest = [*events[:at], *events[at + 1 :]]
        without = [Event.of(i, dict(e.data)) for i, e in enumerate(rest, 1)]
        report = check(iter(without))
        for finding in report.findings:
            if not finding.cause and finding.code in ("HKV103", "HKV702"):
                return without, report, finding
    raise AssertionError("no wait matters")


def test_one_edge_taken_out_is_found_and_confirmed(traces: dict[str, list[Event]]) -> None:
    events, report, finding = _without_a_fence(traces["WINDOWED"])
    result = confirm(Setting(events, survey(events), runs=3), report, finding)
    assert result.verdict == "confirmed", result.reason
    assert result.fault is not None
    assert "comes before" in result.fault.plan.words


@pytest.mark.parametrize("code", ["HKV103", "HKV105"])
def test_as_many_reads_are_wrong_as_the_engine_itself_saw(code: str) -> None:
    """The engine verifies its bytes by the requests' tokens, which no trace holds; the replay
    rebuilds them from the trace alone. Both see the same reads go wrong."""
    config = Config(
        tiny.COMPRESSING, 500, cpu_blocks=300, disk_blocks=300, seed=1, budget=64, stride=4,
        abort_rate=0.0, token_ns=50_000,
    )  # fmt: skip
    events: list[Event] = []
    with Engine(config, lambda e: events.append(Event.of(len(events) + 1, e))) as engine:
        fault(code, 1).install(engine)
        engine.run(tiny.conversations(1, 50, gap=4_000_000))
        seen = engine.memory.bad_reads
    assert seen
    replayed = replay(Setting(events, survey(events)))
    assert len(replayed.account.wrong_at) == seen


def test_rows_of_the_recorded_size_overlay_one_another() -> None:
    """DeepSeek-V4's groups lie in one storage at their offsets; nothing of one hurts another."""
    config = Config(preset("deepseek-v4"), 3000, cpu_blocks=3000).fitted(9000)
    events: list[Event] = []
    with Engine(config, lambda e: events.append(Event.of(len(events) + 1, e))) as engine:
        engine.run(tiny.conversations(1, 4))
    replayed = replay(Setting(events, survey(events)))
    assert not replayed.program.thin
    assert replayed.account.reads
    assert replayed.account.wrong_at == {}


def test_too_large_a_geometry_is_thinned(traces: dict[str, list[Event]], cases: Any) -> None:
    from hkvtool.store import open_trace

    with open_trace(cases["A11"].good) as trace:
        events = list(trace.events())
    whole = replay(Setting(events, survey(events)))
    thin = replay(Setting(events, survey(events), budget=whole.bytes // 4))
    assert not whole.program.thin
    assert thin.program.thin
    assert thin.account.rows == whole.account.rows
    assert thin.account.wrong_at == {}
