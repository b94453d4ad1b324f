"""How many schedules it takes to a failure, by way of choosing them; what sleep sets save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import factorial, prod
from random import Random
from time import process_time
from typing import Any

from hkvtool.model.event import Event
from hkvtool.replay.certify import certify
from hkvtool.replay.samplers import pct, pos, walk
from hkvtool.replay.schedules import Failure, Runner, directed, enabled
from hkvtool.replay.window import Window, window

CAP = 300
"""Schedules after which a way has found nothing."""

Way = Callable[[Window, Runner, int], "int | None"]
"""From a window and a seed to the number of the first failing run."""

HEAD: tuple[dict[str, Any], ...] = (
    {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 1000},
    {"ev": "group", "group": "kv", "form": "compressed", "pool": "gpu", "block_tokens": 16},
)


@dataclass(frozen=True)
class Hunt:
    """One window, and by way the runs to the first failure for each seed; None: not within CAP."""

    name: str
    ops: int
    runs: dict[str, list[int | None]]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Reduction:
    """What an exhaustive search ran, beside all interleavings there are."""

    actors: int
    length: int
    blocks: int
    interleavings: int
    orders: int
    blocked: int
    complete: bool


def touch(ev: str, block: int) -> dict[str, Any]:
    return {"ev": ev, "group": "kv", "blocks": [block], "tokens": [0, 16]}


def planted(depth: int, size: int, seed: int) -> Window:
    """Four lanes that mostly mind their own blocks, and one check-then-use that can be spoilt.

    At depth 2 the last op of another lane must fall between; at depth 3 it waits for a third lane.
    """
    chance = Random(seed)
    lanes: list[list[dict[str, Any]]] = [
        [
            touch(chance.choice(["write", "use"]), 10 + chance.randrange(64) * 4 + number)
            for _ in range(size)
        ]
        for number in range(4)
    ]
    lanes[0].insert(size // 3, touch("write", 1))
    lanes[0].insert(size // 3 + 1 + size // 8, touch("use", 1))
    if depth == 3:
        lanes[1].append({"ev": "wait", "event": "late"})
        lanes[2].insert(size // 2, {"ev": "signal", "event": "late"})
    lanes[1].append(touch("write", 1))
    lines = list(HEAD)
    for number in (0, 2, 3, 1):
        lines += [{**data, "actor": f"stream:{number}"} for data in lanes[number]]
    return _window(lines)


def scattered(actors: int, length: int, blocks: int, seed: int) -> Window:
    """Straight-line actors over shared blocks, in no order at all."""
    chance = Random(seed)
    lines = list(HEAD)
    for number in range(actors):
        for _ in range(length):
            data = touch(chance.choice(["write", "use"]), 1 + chance.randrange(blocks))
            lines.append({**data, "actor": f"stream:{number}"})
    return _window(lines)


def _window(lines: list[dict[str, Any]]) -> Window:
    events = [Event.of(at, data) for at, data in enumerate(lines, 1)]
    return window(events, frozenset(("gpu", block) for block in range(1000)))


def hunts(windows: dict[str, Window], seeds: int) -> Iterator[Hunt]:
    """Every way on every window, in one run."""
    ways = _ways()
    for name, found in windows.items():
        runner = Runner(found)
        runs: dict[str, list[int | None]] = {}
        seconds: dict[str, float] = {}
        for way, first in ways.items():
            start = process_time()
            runs[way] = [first(found, runner, seed) for seed in range(seeds)]
            seconds[way] = process_time() - start
        yield Hunt(name, len(found.ops), runs, seconds)


def reduction(actors: int, length: int, blocks: int, seed: int, budget: int) -> Reduction:
    """Certify one random program."""
    found = scattered(actors, length, blocks, seed)
    seen = certify(found, Runner(found), budget, most_failing=budget)
    every = factorial(actors * length) // prod([factorial(length)] * actors)
    return Reduction(actors, length, blocks, every, seen.orders, seen.blocked, seen.complete)


def _ways() -> dict[str, Way]:
    ways: dict[str, Way] = {
        "random walk": _sampled(walk),
        "PCT 2": _sampled(lambda w, r: pct(w, r, 2)),
        "PCT 3": _sampled(lambda w, r: pct(w, r, 3)),
        "PCT 5": _sampled(lambda w, r: pct(w, r, 5)),
        "POS": _sampled(pos),
        "directed": _directed,
    }
    try:
        import hypothesis  # noqa: F401
    except ImportError:
        return ways
    return {"random walk": ways["random walk"], "hypothesis": _hypothesis, **ways}


def _sampled(sample: Callable[[Window, Random], list[int]]) -> Way:
    def first(found: Window, runner: Runner, seed: int) -> int | None:
        chance = Random(seed)
        tries = (n for n in range(1, CAP + 1) if runner.run(sample(found, chance)))
        return next(islice(tries, 1), None)

    return first


def _directed(found: Window, runner: Runner, seed: int) -> int | None:
    for n, (first, second) in enumerate(found.races, 1):
        if runner.run(directed(found, first, second)):
            return n
    return None


def _hypothesis(found: Window, runner: Runner, seed: int) -> int | None:
    """Search by a general-purpose generator of values: which enabled op runs next."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import seed as seeded
    from hypothesis import strategies as st
    from hypothesis.errors import HypothesisException

    ran = 0
    first: int | None = None

    @seeded(seed)
    @settings(
        max_examples=CAP, database=None, deadline=None, phases=_generate_only(),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.data())
    def search(data: Any) -> None:
        nonlocal ran, first
        if first is not None:
            return
        done, order = 0, []
        for _ in found.ops:
            index = data.draw(st.sampled_from(enabled(found, done)))
            order.append(index)
            done |= 1 << index
        ran += 1
        failure: Failure | None = runner.run(order)
        if failure is not None:
            first = ran

    try:
        search()
    except HypothesisException:
        return first
    return first


def _generate_only() -> list[Any]:
    from hypothesis import Phase

    return [Phase.generate]
