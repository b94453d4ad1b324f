"""Workloads small enough to see through, for the geometries that allocators are tested with."""

from __future__ import annotations

from random import Random
from typing import Any

from hkvtool.conformance.small import (
    CHUNKED,
    COMPRESSING,
    INDEXED,
    PLAIN,
    RECURRENT,
    SMALL,
    WINDOWED,
    group,
    make,
)
from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.geometry import Preset
from hkvtool.engine.workload import OWN, Request
from hkvtool.model.event import Event

__all__ = [
    "CHUNKED", "COMPRESSING", "INDEXED", "PLAIN", "PRESETS", "RECURRENT", "UNIT", "WINDOWED",
    "conversations", "group", "make", "request", "run",
]  # fmt: skip

PRESETS = SMALL

UNIT = 8
"""Tokens of a prefix node in these workloads."""


def request(number: int, nodes: list[int], tail: int = 0, output: int = 8, at: int = 0) -> Request:
    """A prompt of whole nodes, the last cut to `tail` tokens where that is given."""
    prompt = len(nodes) * UNIT - (UNIT - tail if tail else 0)
    return Request(f"r{number}", at, prompt, output, tuple(nodes), UNIT, OWN + number)


def conversations(seed: int, count: int, gap: int = 4_000_000) -> list[Request]:
    """Requests that share prefixes as turns of conversations do, in order of arrival."""
    random = Random(seed)
    chains: list[list[int]] = [[0]]
    fresh = 1
    out: list[Request] = []
    arrival = 0
    for number in range(count):
        chain = list(random.choice(chains))
        chain = chain[: random.randint(1, len(chain))]
        more = random.randint(0 if len(chain) > 1 else 1, 6)
        chain += range(fresh, fresh + more)
        fresh += more
        tail = random.randint(1, UNIT)
        if tail != UNIT:
            # A cut last block is content of its own: no other prompt goes on from it.
            chain[-1] = fresh
            fresh += 1
        else:
            chains.append(chain)
        out.append(request(number, chain, tail % UNIT, random.randint(1, 40), arrival))
        arrival += random.randint(0, gap)
    return out


def run(
    preset: Preset, requests: list[Request], blocks: int = 200, **more: Any
) -> tuple[Engine, list[Event]]:
    """Run requests through an engine; the engine and its trace."""
    defaults: dict[str, Any] = {"budget": 64, "stride": 4, "abort_rate": 0.0, "token_ns": 50_000}
    config = Config(preset, blocks, **(defaults | more))
    events: list[Event] = []

    def keep(data: dict[str, Any]) -> None:
        events.append(Event.of(len(events) + 1, data))

    with Engine(config.fitted(max(r.total for r in requests)), keep) as engine:
        engine.run(requests)
    return engine, events
