"""Hit accounting: requests one after the other, each inserted whole before the next.

This is how cache simulators count, so that the numbers can be held against theirs: no time, no
overlap, no answer tokens, a hit of the whole prompt allowed, the partial last block counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hkvtool.engine.engine import Engine
from hkvtool.engine.live import Live
from hkvtool.engine.lookup import lookup
from hkvtool.engine.workload import Request


@dataclass(frozen=True)
class Count:
    """Tokens of one request: asked for, matched by the best group, resumable by all."""

    asked: int
    matched: int
    resumed: int


def run_sequential(engine: Engine, requests: Iterable[Request], note: str = "") -> list[Count]:
    """Run the prompts of `requests` in order through an engine; one count a request."""
    engine.declare(note)
    return [_insert(engine, request) for request in requests]


def _insert(engine: Engine, request: Request) -> Count:
    allocator, preset = engine.allocator, engine.config.preset
    prompt = request.prompt
    live = Live(request, known=prompt, target=prompt)
    hit = lookup(preset, request, prompt, allocator.pools, prompt)
    engine.scheduler.announce(live, hit)
    allocator.hold(request, hit)
    live.restart(hit.at)
    live.hit = hit.at
    live.route = dict.fromkeys(hit.sources, "reuse")
    engine.scheduler.enter(live)
    if live.ahead == prompt:
        engine.scheduler.finish(live)
    while live.ahead < prompt:
        engine.compute(live, prompt)
    engine.requests += 1
    return Count(hit.asked, hit.matched, hit.at)
