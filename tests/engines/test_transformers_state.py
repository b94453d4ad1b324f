"""Fold = engine: what is recorded of continuous batching rebuilds its state, step by step."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers.generation.continuous_batching.cache_allocators")
from transformers.generation.continuous_batching import continuous_api

from hkvtool.model.findings import Report
from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.transformers.attach import attach
from tests.engines import transformers_engine as engine
from tests.engines.transformers_state import Folded, differences


class Watched:
    """A recording whose fold is held against the engine after every step."""

    def __init__(self) -> None:
        self.folded = Folded()
        self.guard = Guard(Mode.LOG)
        self.steps = 0
        self.wrong: list[str] = []
        self.then: dict[int, Callable[[], None]] = {}
        """What is done in the engine's own thread once it has been compared so often."""
        self.hooks = attach(self._take)

    def _take(self, data: dict[str, Any]) -> None:
        self.folded(data)
        self.guard.see(data)

    def compare(self, cache: Any) -> None:
        self.steps += 1
        self.wrong += differences(self.folded, cache)
        self.then.pop(self.steps, lambda: None)()

    @property
    def kinds(self) -> Counter[str]:
        return Counter(event["ev"] for event in self.folded.events)

    def report(self) -> Report:
        return self.folded.checked()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    gc.collect()
    watch = Watched()
    prepare, update = (
        continuous_api.ContinuousBatchProcessor.prepare_next_batch,
        continuous_api.ContinuousBatchProcessor.update_batch,
    )

    def prepared(self: Any) -> Any:
        result = prepare(self)
        watch.compare(self.cache)
        return result

    def updated(self: Any) -> Any:
        result = update(self)
        watch.compare(self.cache)
        return result

    monkeypatch.setattr(continuous_api.ContinuousBatchProcessor, "prepare_next_batch", prepared)
    monkeypatch.setattr(continuous_api.ContinuousBatchProcessor, "update_batch", updated)
    yield watch
    monkeypatch.undo()
    watch.hooks.remove()
    assert not watch.hooks.failed


def quiet(watch: Watched) -> Report:
    """Nothing differed, and neither check nor guard has anything to say."""
    assert not watch.wrong, watch.wrong[:4]
    assert not watch.guard.count and watch.guard.off is None and not watch.guard.rules.refused
    report = watch.report()
    loud = [f for f in report.findings if f.code != "HKV308"]
    assert not loud, (loud[0].code, loud[0].message, loud[0].events)
    return report


@pytest.mark.parametrize("kind", ["qwen3", "gemma3", "gptoss"])
def test_two_waves_with_a_shared_beginning(kind: str, watched: Watched) -> None:
    made = engine.model(kind)
    asked = engine.prompts(4)
    done = engine.generate(made, asked, waves=2)
    report = quiet(watched)
    assert watched.steps > 20
    if kind == "qwen3":
        assert report.ratios.matched == report.ratios.resumable == 80
        assert watched.kinds["resume"] == 2
    else:
        assert not watched.kinds["resume"] and watched.kinds["use"]
    assert {tuple(r.prompt_ids): r.generated_tokens for r in done.values()} == {
        tuple(p): engine.plainly(made, p, 12) for p in asked
    }


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_children_share_what_is_complete_and_copy_the_rest(kind: str, watched: Watched) -> None:
    engine.generate(engine.model(kind), engine.prompts(2), new_tokens=10, sequences=3)
    quiet(watched)
    assert watched.kinds["copy"] and watched.kinds["touch"]


@pytest.mark.parametrize("kind", ["qwen3", "gptoss"])
def test_a_full_cache_has_requests_begin_anew(kind: str, watched: Watched) -> None:
    made = engine.model(kind)
    asked = engine.prompts(6, shared=24, own=10, seed=3)
    done = engine.generate(made, asked, new_tokens=30, num_blocks=20)
    quiet(watched)
    assert watched.kinds["preempt"] and watched.kinds["refuse"]
    assert {tuple(r.prompt_ids): r.generated_tokens for r in done.values()} == {
        tuple(p): engine.plainly(made, p, 30) for p in asked
    }


@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_a_full_cache_puts_requests_aside(kind: str, watched: Watched) -> None:
    made = engine.model(kind)
    asked = engine.prompts(6, shared=24, own=10, seed=3)
    with engine.pinless():
        done = engine.generate(
            made, asked, new_tokens=30, num_blocks=20, cpu_offload_space=0.01,
        )  # fmt: skip
    quiet(watched)
    assert watched.kinds["store_begin"] and watched.kinds["load_begin"]
    assert {tuple(r.prompt_ids): r.generated_tokens for r in done.values()} == {
        tuple(p): engine.plainly(made, p, 30) for p in asked
    }


def test_cancelled_requests_end(watched: Watched) -> None:
    with engine.manager(engine.model("gemma3"), engine.settings(), new_tokens=200) as running:
        names: list[str] = []

        def cancel() -> None:
            for name in names:
                running.cancel_request(name)

        # While they generate: the thread itself asks, and hears of it before its next step.
        watched.then[16] = cancel
        names += engine.ask(running, engine.prompts(3), max_new_tokens=200)
        engine.until(running, lambda: watched.kinds["abort"] == 3)
    assert watched.kinds["retire"] >= 4 and not watched.kinds["finish"]
    quiet(watched)


@pytest.mark.parametrize(("window", "page"), [(16, 16), (12, 16), (48, 16), (16, 8), (4, 8)])
def test_rings_of_every_shape(window: int, page: int, watched: Watched) -> None:
    made = engine.model("gemma3", window)
    asked = engine.prompts(3, shared=30, seed=7)
    engine.generate(made, asked, waves=3, new_tokens=20, page_size=page, num_blocks=40)
    quiet(watched)
    assert watched.kinds["use"] > 20


def test_a_ring_that_wraps_inside_a_block_is_not_told_and_that_is_said(watched: Watched) -> None:
    engine.generate(engine.model("gemma3", 20), engine.prompts(2))
    quiet(watched)
    assert not watched.kinds["use"]
    notes = [e["note"] for e in watched.folded.events if "note" in e]
    assert any("no multiple of its page" in note for note in notes)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 12))]
)
@pytest.mark.parametrize("kind", ["qwen3", "gemma3"])
def test_random_load(kind: str, seed: int, watched: Watched) -> None:
    rng = Random(seed)
    made = engine.model(kind)
    heads = engine.prompts(3, shared=rng.choice((0, 16, 33)), own=8, seed=seed)
    with engine.pinless(), engine.manager(
        made, engine.settings(
            num_blocks=rng.choice((16, 24, 40)), max_batch_tokens=rng.choice((24, 64)),
            cpu_offload_space=rng.choice((0.0, 0.01)),
        ), new_tokens=20,
    ) as running:  # fmt: skip
        count = 24
        with running.pause():
            for _ in range(count):
                tail = [rng.randrange(3, 128) for _ in range(rng.randrange(0, 30))]
                running.add_request(rng.choice(heads) + tail, max_new_tokens=rng.randrange(1, 24))
        engine.results(running, count)
    quiet(watched)
    assert watched.steps > 60
