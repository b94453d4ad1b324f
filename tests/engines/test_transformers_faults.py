"""Sharing forced on a hybrid model: what that breaks is found, and named after what it is."""

from __future__ import annotations

import gc
from typing import Any

import pytest

pytest.importorskip("transformers.generation.continuous_batching.cache_allocators")

from hkvtool.recorder.guard import Guard, Mode
from hkvtool.recorder.transformers.attach import attach
from tests.engines import transformers_engine as engine
from tests.engines.transformers_state import Folded


@pytest.fixture(autouse=True)
def nothing_is_left() -> None:
    """What an earlier test has left is no cache that is there already."""
    gc.collect()


def share_everything(cache: Any) -> None:
    """Rings are shared too, under the hash of a prefix that they no longer hold."""
    for allocator in cache.cache_allocators.values():
        allocator.use_block_sharing = True
    cache.use_prefix_sharing = True


def trust_full_attention(cache: Any) -> None:
    """A hit of the full group is a hit; the window is not asked, and brings nothing."""
    cache.use_prefix_sharing = True
    cache.cache_allocators["full_attention"].use_block_sharing = True
    ring = cache.cache_allocators["sliding_attention"]
    ring.match_prefix_blocks = lambda prompt: [-1] * ((len(prompt) - 1) // ring.tokens_per_page)
    ring.acquire_prefix_blocks = lambda *args: None
    ring.mark_complete_blocks = lambda *args: None


@pytest.mark.parametrize("kind", ["gemma3", "gptoss"])
@pytest.mark.parametrize("tamper", [share_everything, trust_full_attention])
def test_forced_sharing_is_found(kind: str, tamper: Any) -> None:
    folded = Folded()
    guard = Guard(Mode.LOG)

    def sink(data: dict[str, Any]) -> None:
        folded(data)
        guard.see(data)

    made = engine.model(kind)
    asked = engine.prompts(4)
    hooks = attach(sink)
    try:
        done = engine.generate(made, asked, waves=2, new_tokens=24, tamper=tamper)
    finally:
        hooks.remove()
    assert not hooks.failed
    wrong = {
        name for name, result in done.items()
        if result.generated_tokens != engine.plainly(made, result.prompt_ids, 24)
    }  # fmt: skip
    assert wrong, "the fault does not show in what is generated"
    found = [f for f in folded.checked().findings if f.severity == "error"]
    roots = [f for f in found if not f.cause]
    assert roots and {f.code for f in roots} == {"HKV303"}
    assert all(str(f.group).startswith("sliding_attention") for f in roots)
    resumed = {e["req"] for e in folded.events if e["ev"] == "resume"}
    assert resumed and resumed <= {f.request for f in found} & wrong
    if tamper is share_everything:
        # Even without a hit: of two rings with one hash, one gives way, and both write to the other.
        assert "HKV708" in {f.code for f in found}
    assert "HKV303" in guard.count
