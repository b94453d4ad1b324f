"""A prefix whose hash is hit and which nobody can go on from, in SGLang's own code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engines_sglang.sglang_cache import CORES, Engine
from engines_sglang.sglang_requests import begin, end
from engines_sglang.sglang_state import Folded, differences
from hkvtool.recorder.sglang.attach import attach
from hkvtool.recorder.sglang.hooks import Hooks

HEAD = list(range(1, 25))
LEFT, RIGHT = HEAD + list(range(1000, 1016)), HEAD + list(range(2000, 2016))
NEW = [*HEAD, 3000, 3001, 3002, 3003, 3004]


@pytest.fixture
def watched() -> Iterator[tuple[Folded, Hooks]]:
    folded = Folded()
    hooks = attach(folded, keyed=lambda digest: digest.hex()[:16])
    yield folded, hooks
    hooks.remove()
    assert not hooks.failed


@pytest.mark.parametrize("core", CORES)
def test_a_full_hit_that_is_not_resumable(core: str, watched: tuple[Folded, Hooks]) -> None:
    folded, hooks = watched
    engine = Engine(core)
    for tokens in (HEAD, LEFT, RIGHT):
        engine.prefill(tokens)
    engine.match(LEFT)
    engine.match(RIGHT)
    assert engine.evict(swa=24).swa_num_tokens_evicted == 24
    end(engine, begin(engine, "new", NEW))
    end(engine, begin(engine, "again", NEW))
    assert not list(differences(folded, engine.cache, hooks.caches[0].pools))

    report = folded.checked()
    [veto] = report.findings
    assert (veto.code, veto.request, veto.group) == ("HKV308", "new", "swa")
    assert veto.tokens == (0, 24) and veto.actual["lost"] == 24
    ratios = report.ratios
    assert ratios.matched - ratios.resumable == 24
    told = {e["req"]: e for e in folded.events if e["ev"] == "lookup"}
    assert told["new"]["hit"] == {"full": 24, "swa": 0}
    assert told["again"]["hit"] == {"full": 24, "swa": 24}
    resumes = {e["req"]: e["at"] for e in folded.events if e["ev"] == "resume"}
    assert resumes == {"new": 0, "again": 24}
    assert not folded.guard.count


@pytest.mark.parametrize("core", CORES)
def test_the_core_is_the_one_that_the_engine_would_take(
    core: str, watched: tuple[Folded, Hooks]
) -> None:
    cache = Engine(core).cache
    name = type(cache.tree_core._core).__name__
    assert name == {"python": "UnifiedTreeCore", "rust": "RustUnifiedTreeCore"}[core]
    assert cache._tree_core_backend == core


def test_nothing_is_left_of_the_hooks() -> None:
    folded = Folded()
    hooks = attach(folded)
    kept = Engine("rust")
    kept.prefill(LEFT)
    hooks.remove()
    told = len(folded.events)
    assert told > 5
    kept.prefill(RIGHT)
    engine = Engine("rust")
    engine.prefill(LEFT)
    assert type(engine.cache.tree_core).__name__ == "RustUnifiedTreeCore"
    assert len(folded.events) == told


def test_a_hook_that_fails_is_off_and_the_engine_goes_on() -> None:
    events: list[dict[str, object]] = []

    def keyed(digest: bytes) -> str:
        raise RuntimeError("no key")

    hooks = attach(events.append, keyed=keyed)  # type: ignore[arg-type]
    try:
        engine = Engine("rust")
        engine.prefill(LEFT)
        engine.prefill(RIGHT)
        assert engine.match(RIGHT).device_prefix_len == len(RIGHT)
    finally:
        hooks.remove()
    assert list(hooks.failed) == ["insert"]
    said = [e for e in events if e["ev"] == "evidence"]
    assert len(said) == 1 and said[0]["evidence"] == []
