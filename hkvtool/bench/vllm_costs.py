"""Starts the measurement of a real vLLM under the engine's own Python, and reads what it found."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Any

from hkvtool.bench.vllm_cost import ARMS
from hkvtool.model.errors import HkvError

LOADS = {
    "scheduler": "vLLM's scheduler and cache manager alone, 16 requests",
    "engine": "a whole vLLM with a tiny model on the CPU, 4 requests",
}

_MODULE = "hkvtool.bench.vllm_cost"


@dataclass(frozen=True)
class Arm:
    """One way to run: microseconds of processor time a step, what that is more than off in the
    same round, the bounds of that, and its share of off."""

    us_a_step: float
    more_us: float
    more_low: float
    more_high: float
    share: float


@dataclass(frozen=True)
class LoadCost:
    """What one load was measured to take, by arm."""

    load: str
    rounds: int
    steps: int
    events_a_step: float
    ring_bytes: float
    ns_an_event: float
    arms: dict[str, Arm]


@dataclass(frozen=True)
class VllmCost:
    """Both loads. `shares` has by arm what the events of a step of the whole engine cost, each as
    much as in the scheduler alone, of the median step: a difference as small as that drowns in what
    two runs of an engine differ by. `share` is that of recording."""

    scheduler: LoadCost
    engine: LoadCost

    @property
    def share(self) -> float:
        """The events of a step of the engine, of that step."""
        each = self.scheduler.ns_an_event / 1000
        return each * self.engine.events_a_step / self.engine.arms["off"].us_a_step

    @property
    def shares(self) -> dict[str, float]:
        """The same of what tells events, guarded or not."""
        events = self.engine.events_a_step / self.scheduler.events_a_step
        step = self.engine.arms["off"].us_a_step
        return {
            arm: self.scheduler.arms[arm].more_us * events / step
            for arm in ARMS if arm not in ("off", "kv events")
        }  # fmt: skip


def vllm_cost(python: str, rounds: int) -> VllmCost:
    """Measure both loads under this interpreter. Raises HkvError where that cannot be done."""
    return VllmCost(*(_measured(python, load, rounds) for load in LOADS))


def _measured(python: str, load: str, rounds: int) -> LoadCost:
    with tempfile.TemporaryDirectory(prefix="hkvtool-") as place:
        try:
            run = subprocess.run(
                [python, "-m", _MODULE, load, str(rounds)],
                cwd=place,
                capture_output=True,
                text=True,
            )
        except OSError as e:
            raise HkvError(
                f"cannot start {python}: {e.strerror}", hint="--engine takes an engine's Python"
            ) from e
    lines = run.stdout.splitlines()
    if run.returncode or not lines:
        said = [line for line in run.stderr.splitlines() if line.strip()][-1:]
        raise HkvError(
            f"the measurement of {load} ended with {run.returncode}: {''.join(said)}",
            where=python,
            hint="it needs vllm 0.32 and, by pip install --no-deps, this hkvtool in there",
        )
    try:
        return _read(json.loads(lines[-1]))
    except (ValueError, KeyError, TypeError) as e:
        raise HkvError(
            f"the measurement of {load} is not what was expected: {type(e).__name__}: {e}",
            where=python,
            hint="hkvtool in there must be of this version",
        ) from e


def _read(found: dict[str, Any]) -> LoadCost:
    arms = {name: Arm(**found.pop(name)) for name in ARMS}
    return LoadCost(**found, arms=arms)
