"""Hit accounting against the public kvcache-simulator 0.1.3, on the whole conversation trace."""

from __future__ import annotations

from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.engine.config import Config, unlimited
from hkvtool.engine.engine import Engine
from hkvtool.engine.geometry import Preset
from hkvtool.engine.presets import preset
from hkvtool.engine.sequential import Count, run_sequential
from hkvtool.engine.workload import Request, read_workload
from hkvtool.model.event import Event

from .conftest import CONVERSATION
from .tiny import PLAIN, PRESETS, conversations

ASKED = 67_915_607
"""Tokens of the last half of the requests."""


def count(preset_: Preset, requests: list[Request], blocks: int) -> tuple[Engine, list[Count]]:
    with Engine(Config(preset_, blocks), lambda event: None) as engine:
        return engine, run_sequential(engine, requests)


@pytest.mark.parametrize(
    ("blocks", "hits"),
    [
        pytest.param(None, 27_038_068, id="unlimited"),
        # The peer evicts the least recently used leaf of its tree, we the head of the free
        # list; freed last block first, that is the same leaf.
        pytest.param(28_108, 22_845_360, id="LRU"),
    ],
)
def test_hit_tokens_are_those_of_the_peer(blocks: int | None, hits: int) -> None:
    requests = list(read_workload(CONVERSATION))
    plain = preset("plain")
    pool = unlimited(plain, requests, 8192) if blocks is None else blocks + 1
    engine, counts = count(plain, requests, pool)
    half = counts[len(counts) // 2 :]
    assert sum(c.asked for c in half) == ASKED
    assert sum(c.resumed for c in half) == hits
    assert all(c.matched == c.resumed for c in counts), "a plain model resumes all it matches"
    assert engine.memory.bad_reads == 0


def test_a_whole_prompt_is_hit_up_to_its_partial_last_block() -> None:
    requests = conversations(1, 6)
    again = [r for r in requests if r.prompt % 8]
    _, counts = count(PLAIN, requests + again, 200)
    assert again and [c.resumed for c in counts[-len(again) :]] == [r.prompt for r in again]


@pytest.mark.parametrize("found", PRESETS.values(), ids=lambda p: p.name)
def test_sequential_traces_are_clean(found: Preset) -> None:
    events: list[Event] = []

    def keep(data: dict[str, Any]) -> None:
        events.append(Event.of(len(events) + 1, data))

    with Engine(Config(found, 160), keep) as engine:
        counts = run_sequential(engine, conversations(2, 60))
    assert engine.memory.bad_reads == 0
    assert {f.code for f in check(iter(events)).findings} <= {"HKV308"}
    assert 0 < sum(c.resumed for c in counts) <= sum(c.matched for c in counts)
