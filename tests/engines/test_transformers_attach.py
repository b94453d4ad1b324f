"""Attaching leaves the engine as it was: late, off, with a hook that fails, from a `with` block."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers.generation.continuous_batching.cache_allocators")

import transformers
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

from hkvtool.model.errors import HkvError
from hkvtool.recorder.transformers import choke_points
from hkvtool.recorder.transformers.attach import attach, attach_report
from tests.engines import transformers_engine as engine
from tests.engines.transformers_state import Folded, differences


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    """What an earlier test has left is no cache that is there already."""
    gc.collect()


def functions() -> list[Any]:
    """What stands at every choke point."""
    found = []
    for point in choke_points.POINTS:
        target = point.target()
        assert not isinstance(target, str), target
        found.append(target.original)
    return found


def test_everything_is_put_back() -> None:
    before = functions()
    hooks = attach(lambda data: None)
    assert not set(map(id, functions())) & set(map(id, before))
    hooks.remove()
    assert functions() == before


def test_what_would_attach_is_told_without_attaching() -> None:
    before = functions()
    report = attach_report()
    assert report.version == transformers.__version__ and report.tried
    assert len(report.found) == len(choke_points.POINTS) and not report.missing
    assert report.evidence == ("host", "step", "layout")
    assert functions() == before


def test_an_engine_that_is_another_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    point = choke_points.POINTS[1]._replace(function="allocate_as_never_before")
    points = (choke_points.POINTS[0], point)
    monkeypatch.setattr("hkvtool.recorder.transformers.attach.POINTS", points)
    with pytest.raises(HkvError, match="not as hkvtool knows it"):
        attach(lambda data: None)
    assert attach_report().missing == {"alloc": "FullAttentionCacheAllocator has no "
                                                "allocate_as_never_before"}  # fmt: skip
    assert attach_report().evidence == ("step", "layout")


class Held:
    """Has the thread that generates stand still after some steps until somebody pauses it: whoever
    comes while it is at work comes at that step, on any machine."""

    def __init__(self, patch: pytest.MonkeyPatch, *steps: int) -> None:
        self.reached = {step: threading.Event() for step in steps}
        self.count = 0
        inner = ContinuousBatchProcessor.update_batch

        def update(processor: Any) -> Any:
            done = inner(processor)
            self.count += 1
            reached = self.reached.get(self.count)
            if reached is not None:
                reached.set()
                while not processor.background_thread_status.is_pause_requested():
                    time.sleep(0.001)
            return done

        patch.setattr(ContinuousBatchProcessor, "update_batch", update)

    @contextmanager
    def at(self, running: Any, step: int) -> Iterator[None]:
        assert self.reached[step].wait(engine.PATIENCE)
        with running.pause():
            yield


def test_a_late_attach_begins_with_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    folded = Folded()
    held = Held(monkeypatch, 5, 30)
    with engine.manager(engine.model("qwen3"), engine.settings(), new_tokens=40) as running:
        engine.ask(running, engine.prompts(3), max_new_tokens=40)
        with held.at(running, 5):
            assert len(running.batch_processor.scheduler.active_requests) == 3
            hooks = attach(folded)
            cache = running.batch_processor.cache
            assert not list(differences(folded, cache, tables=False))
        with held.at(running, 30):
            assert not list(differences(folded, cache, tables=False))
            hooks.remove()
    assert not hooks.failed
    assert sum(e["ev"] == "retire" for e in folded.events) >= 20
    assert "state" in {e["ev"] for e in folded.events}
    assert not [f for f in folded.checked().findings if f.severity == "error"]


_MOST = {"search", "load"}
"""Hooks whose failure is tried in every run; that of all others in long ones."""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", [
    pytest.param(p.name, marks=[] if p.name in _MOST else [pytest.mark.soak])
    for p in choke_points.POINTS
])  # fmt: skip
def test_a_hook_that_raises_is_off_and_the_engine_goes_on(
    name: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in turn, in a run that comes by all of them."""

    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ours")

    points = [p._replace(**{when: broken}) if p.name == name else p for p in choke_points.POINTS]
    monkeypatch.setattr("hkvtool.recorder.transformers.attach.POINTS", points)
    events: list[dict[str, Any]] = []
    made = engine.model("qwen3")
    hooks = attach(events.append)
    try:
        everything(made)
    finally:
        hooks.remove()
    assert hooks.failed == {name: "RuntimeError: ours"}
    notes = [e["note"] for e in events if e["ev"] == "evidence"]
    assert [n for n in notes if n == f"the hook on {name} failed: RuntimeError: ours"]


def everything(made: Any) -> None:
    """A run that comes by every choke point, and generates what the model generates."""
    asked = engine.prompts(6, shared=24, own=10, seed=3)
    with engine.pinless(), engine.manager(
        made, engine.settings(num_blocks=20, cpu_offload_space=0.01), new_tokens=30
    ) as running:  # fmt: skip
        engine.ask(running, asked, max_new_tokens=30)
        done = engine.results(running, len(asked))
        state = running.batch_processor
        with running.pause():
            # Both come with the request that is cancelled: it is not through before it is.
            running.cancel_request(running.add_request(asked[0], max_new_tokens=30))
            running.add_request(asked[1], max_new_tokens=2)
        engine.results(running, 1)
        with running.pause():
            aside = type("State", (), {"is_cpu_offloaded": False, "request_id": "none"})()
            state.offloading_manager.free_request_cpu_cache(aside)
            state.cache.evict_cached_blocks()
            state.cache.free_all_requests(clear_ledgers=True)
    plain = {tuple(p): engine.plainly(made, p, 30) for p in asked}
    assert {tuple(r.prompt_ids): r.generated_tokens for r in done.values()} == plain
    engine.generate(made, asked[:1], new_tokens=4, sequences=2)


PROGRAM = """
import sys
import hkvtool
from tests.engines import transformers_engine as engine

with hkvtool.record(sys.argv[1]):
    engine.generate(engine.model("gemma3"), engine.prompts(4), waves=2)
"""


def test_a_with_block_makes_a_trace(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    trace = tmp_path / "t.duckdb"
    root = str(Path(__file__).parents[2])
    # Behind everything else: the checkout lacks rooms that the installed package has.
    program = f"import sys; sys.path.append({root!r})\n{PROGRAM}"
    run = [sys.executable, "-c", program, str(trace)]
    done = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and "failed" not in done.stderr, done.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "hkvtool", "check", str(trace)], capture_output=True, text=True
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "evidence host, layout, step" in checked.stdout and "cannot" not in done.stderr
