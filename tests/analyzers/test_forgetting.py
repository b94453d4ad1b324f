"""What is over is forgotten while a long trace is checked, and nothing is told otherwise for it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from variants.correct import correct_trace
from variants.mutants import OPERATORS
from variants.options import random_options

from hkvtool.analyzers import check, context
from hkvtool.analyzers.check import Check
from hkvtool.bench.synthetic import synthetic_trace
from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl

SHIPPED = Path(__file__).parents[2] / "fixtures"

EVENTS = 60_000


def _said(events: list[Event]) -> str:
    return json.dumps(check(events).as_json())


def _events(lines: list[dict[str, Any]]) -> list[Event]:
    return [Event.of(pos, line) for pos, line in enumerate(lines, 1)]


def _forgetting(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on whatever may be forgotten is, after every event; more steps may be in flight
    than these engines have."""
    run = Check.event

    def event(self: Check, event: Event) -> None:
        run(self, event)
        self.forget()

    monkeypatch.setattr(Check, "event", event)
    monkeypatch.setattr(context, "STEPS", 8)
    monkeypatch.setattr(context, "MOST_NAMES", 0)


def _told_alike(traces: list[list[Event]], monkeypatch: pytest.MonkeyPatch) -> None:
    before = [_said(events) for events in traces]
    _forgetting(monkeypatch)
    for events, said in zip(traces, before, strict=True):
        assert _said(events) == said, events[0]


def test_the_corpus_and_the_real_traces_are_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    files = sorted(SHIPPED.glob("cases/*/*.jsonl")) + sorted(SHIPPED.glob("real/*/*.jsonl"))
    assert len(files) > 130
    traces = [list(read_jsonl(file.open("rb"))) for file in files]
    _told_alike([events for events in traces if len(events) < 600], monkeypatch)


def test_mutants_are_told_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[list[dict[str, Any]]] = []
    for number in range(8):
        rng = Random(f"forgetting {number}")
        events = correct_trace(number, random_options(rng))
        traces.append(events)
        mutants = (change(events, rng) for change in OPERATORS.values())
        traces.extend(mutant[1] for mutant in mutants if mutant is not None)
    _told_alike([_events(lines) for lines in traces], monkeypatch)


_PEAK = """
import re, sys
from hkvtool.analyzers import check
from hkvtool.analyzers.long_check import screen_of
from hkvtool.store import open_trace
with open_trace(sys.argv[1]) as trace:
    if sys.argv[2] == "reading":
        for event in trace.events():
            pass
    else:
        report = screen_of(trace) if sys.argv[2] == "screen" else check(trace.events())
        assert report is not None and not report.findings
print(int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]) >> 10)
"""


def _peak(file: Path, path: str) -> int:
    """MiB that a process of its own takes at most."""
    command = [sys.executable, "-c", _PEAK, str(file), path]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, cwd=file.parent)
    return int(ended.stdout)


def test_memory_does_not_grow_with_the_trace(tmp_path: Path) -> None:
    kept: dict[str, list[int]] = {"rules": [], "screen": []}
    for times in (1, 4):
        file = tmp_path / f"{times}.duckdb"
        synthetic_trace(file, times * EVENTS, pool_blocks=1 << 10)
        # What DuckDB holds of the file, as long as it has room, is not the check's.
        reading = _peak(file, "reading")
        for path, peaks in kept.items():
            peaks.append(_peak(file, path) - reading)
    # A few numbers of each request and hash are kept to the end; all that was known of them and
    # of their blocks would be 80 MiB more.
    for path, (once, four_times) in kept.items():
        assert four_times - once < 30, (path, kept)
