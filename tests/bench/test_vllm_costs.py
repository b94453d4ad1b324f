"""What the measurement under an engine's own Python found is read, and its failures are told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hkvtool.bench import vllm_costs
from hkvtool.bench.vllm_cost import interval
from hkvtool.bench.vllm_costs import vllm_cost
from hkvtool.model.errors import HkvError


def arm(us: float, more: float) -> dict[str, float]:
    return {
        "us_a_step": us, "more_us": more, "more_low": more - 1, "more_high": more + 1,
        "share": more / us,
    }  # fmt: skip


def found(load: str, events: float, us: float, each: float) -> dict[str, Any]:
    return {
        "load": load, "rounds": 2, "steps": 9, "events_a_step": events, "ring_bytes": 100.0,
        "ns_an_event": each, "off": arm(us, 0.0), "recording": arm(us + 9, 9.0),
        "guard log": arm(us + 10, 10.0), "guard raise": arm(us + 90, 90.0),
        "kv events": arm(us + 8, 8.0),
    }  # fmt: skip


def python(folder: Path, text: str) -> str:
    """Something that is started as an interpreter is."""
    place = folder / "python"
    place.write_text(f"#!{sys.executable}\nimport json, sys\n{text}\n")
    place.chmod(0o755)
    return str(place)


def test_the_engine_s_share_is_its_events_at_the_scheduler_s_price(tmp_path: Path) -> None:
    told = {
        "scheduler": found("scheduler", 15.0, 300.0, 2000.0),
        "engine": found("engine", 5.0, 2000.0, -7.0),
    }
    text = f"print('talk'); print(json.dumps(json.loads({json.dumps(told)!r})[sys.argv[3]]))"
    cost = vllm_cost(python(tmp_path, text), 2)
    assert cost.engine.arms["kv events"].more_us == 8.0
    assert cost.share == pytest.approx(2.0 * 5 / 2000)
    assert cost.shares == {
        "recording": pytest.approx(9.0 / 3 / 2000), "guard log": pytest.approx(10.0 / 3 / 2000),
        "guard raise": pytest.approx(90.0 / 3 / 2000),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("raise SystemExit('no vllm here')", "no vllm here"),
        ("pass", "ended with 0"),
        ("print('{')", "is not what was expected"),
        ("print('{}')", "is not what was expected"),
    ],
)
def test_a_measurement_that_fails_is_told(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(HkvError, match=said):
        vllm_cost(python(tmp_path, text), 2)


def test_no_such_python(hkvtool_missing: str) -> None:
    with pytest.raises(HkvError, match="cannot start"):
        vllm_cost(hkvtool_missing, 2)


@pytest.fixture
def hkvtool_missing(tmp_path: Path) -> str:
    return str(tmp_path / "nothing" / "python")


def test_bounds_enclose_the_median() -> None:
    low, high = interval([1.0, 2.0, 3.0, 4.0, 50.0])
    assert 1.0 <= low <= 3.0 <= high <= 50.0
    assert interval([2.0]) == (2.0, 2.0)


def test_both_loads_are_measured() -> None:
    from hkvtool.bench.vllm_cost import LOADS

    assert list(LOADS) == list(vllm_costs.LOADS)
