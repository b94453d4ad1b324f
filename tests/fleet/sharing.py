"""Reference engines that keep what they computed on one shared pool, each recorded by itself.

They take turns in an order drawn from a seed, on one clock; what each writes down is by a clock of
its own, which the head of its trace sets against the wall clock, as well as that is known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from engine import tiny

from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.geometry import Preset
from hkvtool.engine.workload import OWN, Request

TIER = "cpu"
"""The pool that they share."""

Event = dict[str, Any]


@dataclass
class Told:
    """One engine's trace, and how its clock lies: nanoseconds that its own is behind the true one,
    and by how much its wall clock is wrong."""

    name: str
    host: str
    behind: int = 0
    wrong: int = 0
    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        event = {**event, "ts": event["ts"] - self.behind}
        if event["ev"] == "trace":
            event["clock"] = {"host": self.host, "offset": self.behind + self.wrong,
                              "error": abs(self.wrong), "pairs": 2}  # fmt: skip
        self.events.append(event)

    def write(self, folder: Path) -> None:
        (folder / self.name).write_text("".join(json.dumps(e) + "\n" for e in self.events))

    def first(self, wanted: Callable[[Event], bool], start: int = 0) -> int:
        """Where the first such event stands."""
        return next(i for i in range(start, len(self.events)) if wanted(self.events[i]))


def request(number: int, nodes: Sequence[int], at: int, output: int = 8) -> Request:
    unit = tiny.UNIT
    return Request(
        f"r{number}", at, len(nodes) * unit, output, tuple(nodes), unit, OWN + number
    )  # fmt: skip


def run(
    preset: Preset, work: Sequence[Sequence[Request]], told: Sequence[Told], *, seed: int = 0,
    blocks: int = 400, tier: int = 400, fingerprint: bool = True,
) -> None:  # fmt: skip
    """Run an engine for each of the workloads until all are done."""
    random = Random(seed)
    config = Config(
        preset,
        blocks,
        cpu_blocks=tier,
        fingerprint=fingerprint,
        budget=64,
        stride=4,
        abort_rate=0.0,
    )
    now = 0

    def heard(sink: Told) -> Callable[[Event], None]:
        def take(event: Event) -> None:
            nonlocal now
            now = max(now, event["ts"])
            sink(event)

        return take

    with ExitStack() as stack:
        engines = [
            stack.enter_context(Engine(replace(config, seed=seed + n), heard(sink)))
            for n, sink in enumerate(told)
        ]
        first = engines[0]
        for other in engines[1:]:
            other.allocator.pools = (other.allocator.gpu, first.allocator.pools[1])
            other.tiers.lower[TIER] = first.tiers.lower[TIER]
            other.memory.pages[TIER] = first.memory.pages[TIER]
        turns: list[tuple[Engine, Iterator[int]]] = [
            (one, one.turns(iter(requests))) for one, requests in zip(engines, work, strict=True)
        ]
        while turns:
            soon = min(engine.now for engine, _ in turns) + _APART
            chosen = engine, turn = random.choice([one for one in turns if one[0].now <= soon])
            # No two turns begin at one moment, so that what is told of them has an order.
            engine.now = max(engine.now, now + 1)
            if next(turn, None) is None:
                turns.remove(chosen)
        for engine in engines:
            engine.memory.settle()
            assert engine.memory.bad_reads == 0


_APART = 20_000_000
"""Nanoseconds by which an engine may be ahead of another and still take the next turn."""
