"""Metrics of a recording that goes on, against what a check of it says in the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.cli.app import main
from hkvtool.model.recording import is_recording
from hkvtool.recorder.recording import sink
from hkvtool.report.metrics import Metrics
from hkvtool.store import open_trace

prometheus = pytest.importorskip("prometheus_client", reason="the extra `metrics`")

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "hkvtool.json"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the reference engine with a bug, as JSON lines."""
    path = tmp_path_factory.mktemp("metrics") / "run.jsonl"
    args = ["run", "--requests", "8", "--fault", "HKV303", "--seed", "1", "-o", str(path)]
    assert main(args) == 0
    return path


def samples(text: str) -> Samples:
    """What Prometheus reads out of its text format."""
    from prometheus_client.parser import text_string_to_metric_families

    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(metrics: Metrics) -> Samples:
    registry = prometheus.CollectorRegistry()
    registry.register(metrics)
    return samples(prometheus.generate_latest(registry).decode())


def lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open() as file:
        yield from map(json.loads, file)


def test_what_grew_is_what_a_check_finds_in_the_end(faulty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run.hkv"
    before: Samples = {}
    events = list(lines(faulty))
    with sink(folder) as emit:
        emit(events[0])
        metrics = Metrics(str(folder))
        for number, event in enumerate(events[1:], 1):
            emit(event)
            if number % 700 == 0:
                assert metrics.advance()
                now = told(metrics)
                assert now["hkvtool:recording_running", ()] == 1
                assert all(
                    now[key] >= value for key, value in before.items() if key[0].endswith("_total")
                )
                before = now
    assert not metrics.advance()
    now = told(metrics)
    with open_trace(str(folder)) as trace:
        report = check(trace.events())
    assert now["hkvtool:recording_running", ()] == 0
    assert now["hkvtool:recording_checked", ()] == 1
    assert now["hkvtool:recorded_events_total", ()] == report.trace["events"]
    assert now["hkvtool:prefix_cache_queried_tokens_total", ()] == report.ratios.asked
    assert now["hkvtool:prefix_cache_matched_tokens_total", ()] == report.ratios.matched > 0
    assert now["hkvtool:prefix_cache_resumable_tokens_total", ()] == report.ratios.resumable
    roots = [f.code for f in report.findings if not f.cause]
    assert "HKV303" in roots
    found = {
        dict(labels)["rule"]: n for (name, labels), n in now.items() if name == "hkvtool:findings"
    }
    assert found == {code: roots.count(code) for code in set(roots)}
    pools = {e["pool"]: e["blocks"] for e in events if e["ev"] == "pool"}
    for pool, count in pools.items():
        blocks = [
            n for (name, labels), n in now.items()
            if name == "hkvtool:blocks" and dict(labels)["pool"] == pool
        ]  # fmt: skip
        assert sum(blocks) == count


def test_every_panel_of_the_dashboard_asks_for_a_metric_that_there_is(
    faulty: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "run.hkv", tmp_path / "m.prom"
    with sink(folder) as emit:
        for event in lines(faulty):
            emit(event)
    assert main(["metrics", str(folder), "--textfile", str(out)]) == 0
    there: dict[str, set[str]] = {}
    for name, labels in samples(out.read_text()):
        there.setdefault(name, set()).update(dict(labels))
    dashboard = json.loads(DASHBOARD.read_text())
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 5
    asked = set()
    for panel in panels:
        for target in panel["targets"]:
            names = re.findall(r"hkvtool:\w+", target["expr"])
            assert names, panel["title"]
            assert set(names) <= set(there), panel["title"]
            asked |= set(names)
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert all(label in there[name] for name in names), panel["title"]
    assert asked == set(there)


def test_they_are_served_until_interrupted(faulty: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run.hkv"
    with sink(folder) as emit:
        for event in lines(faulty):
            emit(event)
    assert is_recording(folder)
    command = [sys.executable, "-m", "hkvtool", "metrics", str(folder), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as served:
        try:
            assert served.stderr is not None
            url = served.stderr.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert "hkvtool:recorded_events_total" in answer.read().decode()
        finally:
            served.send_signal(2)
            served.wait(30)
    assert served.returncode == 130


@pytest.mark.parametrize("listen", ["9464", "127.0.0.1:x", "127.0.0.1:99999", "nowhere.invalid:1"])
def test_an_address_that_is_none_is_told(
    listen: str, faulty: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run.hkv"
    with sink(folder) as emit:
        for event in list(lines(faulty))[:20]:
            emit(event)
    assert main(["metrics", str(folder), "--listen", listen]) == 2
    assert listen in capsys.readouterr().err
    assert main(["metrics", str(faulty)]) == 3
