"""What recording costs the scheduler alone: off, on, and vLLM's own KV events on, in turn.

``python -m engines.cost [ROUNDS]`` in the engines' environment, from the folder `tests`. There is
no model in this loop, so a share of it says far more than one of a real step would.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any

import engines.conftest  # noqa: F401  the environment of an engine
from engines.vllm_scheduler import Drive, gemma_like, make_request, make_scheduler
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.vllm.attach import attach

REQUESTS, PROMPT, OUTPUT = 64, 400, 200


def drive(folder: Path, *, events: bool) -> tuple[int, int]:
    """CPU nanoseconds and steps of one load: 16 requests at a time, half of the prompts shared."""
    made = make_scheduler(
        folder, gemma_like(), blocks=2500, budget=1024, seqs=16, length=1024, events=events
    )
    rng = random.Random(1)
    shared = [rng.randrange(3, 250) for _ in range(PROMPT // 2)]
    for i in range(REQUESTS):
        own = [rng.randrange(3, 250) for _ in range(PROMPT // 2)]
        made.scheduler.add_request(
            make_request(made.scheduler, f"cmpl-{i:032x}-0", shared + own, OUTPUT)
        )
    steps = Drive(made.scheduler)
    begun = process_time_ns()
    while steps.busy:
        steps.step()
    return process_time_ns() - begun, steps.steps


def off(folder: Path) -> tuple[int, int, int]:
    return (*drive(folder, events=False), 0)


def wire(folder: Path) -> tuple[int, int, int]:
    return (*drive(folder, events=True), 0)


def on(folder: Path) -> tuple[int, int, int]:
    with tempfile.TemporaryDirectory() as out:
        recording = Recording.start(Path(out) / "r.hkv", ring_bytes=64 << 20, max_bytes=80 << 20)
        assert isinstance(recording, Recording), recording
        count = 0

        def counted(ev: str, keys: Any) -> Callable[..., Any]:
            return recording.emitter(ev, keys)

        hooks = attach(recording.emit_dict, counted, name_of=recording.keyed)
        try:
            took, steps = drive(folder, events=False)
        finally:
            hooks.remove()
        ring = recording._mine.ring
        count = ring.next_seq
        held = ring._head
        recording.close()
    on.bytes = held / max(1, count)  # type: ignore[attr-defined]
    return took, steps, count


def main(rounds: int = 9) -> None:
    folder = Path(tempfile.mkdtemp())
    arms: dict[str, Callable[[Path], tuple[int, int, int]]] = {
        "off": off,
        "on": on,
        "kv events": wire,
    }
    took: dict[str, list[float]] = {name: [] for name in arms}
    told = 0.0
    for i in range(rounds + 1):
        for name in sorted(arms, key=lambda _: random.random()):
            ns, steps, count = arms[name](folder)
            if i:
                took[name].append(ns / steps / 1000)
            if name == "on":
                told = count / steps
    base = took["off"]
    print(f"{steps} steps of 16 requests; median CPU time a step, in microseconds")
    for name, values in took.items():
        extra = [a - b for a, b in zip(values, base, strict=True)]
        low, high = interval(extra)
        print(
            f"  {name:10} {statistics.median(values):7.1f}   {statistics.median(extra):+6.1f} [{low:+.1f}, {high:+.1f}]"
        )
    cost = statistics.median([a - b for a, b in zip(took["on"], base, strict=True)])
    print(
        f"{told:.1f} events a step, {cost / told * 1000:.0f} ns each with the hook, {on.bytes:.0f} bytes each"
    )  # type: ignore[attr-defined]


def interval(values: list[float]) -> tuple[float, float]:
    """Of the median, by resampling: nine in ten."""
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(2000))
    return medians[100], medians[-101]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
