"""From "probably a race" to the order that fails, or to none among all.

Predict from happens-before, confirm each candidate by one directed schedule, sample by a
portfolio, then certify: every inequivalent order, or how many were run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from hkvtool.replay.certify import Certificate, certify
from hkvtool.replay.samplers import portfolio
from hkvtool.replay.schedules import Failure, Runner, directed, spell
from hkvtool.replay.window import Window

DIRECTED = "directed"
CERTIFICATE = "sleep sets"

Stopped = Callable[[], bool]


@dataclass(frozen=True)
class Found:
    """One failing schedule and who found it, as which run."""

    by: str
    run: int
    schedule: str
    failure: Failure

    @property
    def key(self) -> tuple[int | None, ...]:
        """Failures with the same reader and writers are one."""
        ops = (self.failure.reader, self.failure.found, self.failure.due)
        return tuple(None if op is None else op.index for op in ops)


@dataclass
class Candidate:
    """Two ops that no order holds apart, and what comes of turning them round."""

    first: int
    second: int
    schedule: str
    failure: Failure | None


@dataclass
class Exploration:
    """What a search of one window saw."""

    window: Window
    seed: int
    candidates: list[Candidate] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    sampled: int = 0
    certificate: Certificate | None = None

    @property
    def verdict(self) -> str:
        """In words that claim no more than was done."""
        if self.found:
            runs = self.found[0].run
            return f"fails: the {self.found[0].by} schedule, run {runs:,}"
        seen = self.certificate
        if seen is not None and seen.complete:
            return f"no failing interleaving among {seen.orders:,} (complete)"
        orders = self.sampled + len(self.candidates) + (seen.orders if seen else 0)
        return f"explored {orders:,} interleavings, none fails (incomplete)"


def explore(
    window: Window, *, budget: int = 2000, seed: int = 0, stopped: Stopped = lambda: False
) -> Exploration:
    """Search a window with at most `budget` schedules; ends early where something fails."""
    out = Exploration(window, seed)
    runner = Runner(window)
    known: set[tuple[int | None, ...]] = set()

    def note(by: str, order: list[int], failure: Failure | None) -> None:
        if failure is None:
            return
        found = Found(by, runner.ran, spell(window, order), failure)
        if found.key not in known:
            known.add(found.key)
            out.found.append(found)

    for first, second in window.races:
        if runner.ran >= budget or stopped():
            return out
        order = directed(window, first, second)
        failure = runner.run(order)
        out.candidates.append(Candidate(first, second, spell(window, order), failure))
        note(DIRECTED, order, failure)
    if out.found:
        return out
    # A small window is settled for good before chance is asked.
    out.certificate = certify(window, runner, max(1, (budget - runner.ran) // 4), stopped=stopped)
    if not out.certificate.complete and not out.certificate.failing:
        for by, order in islice(portfolio(window, seed), max(0, (budget - runner.ran) // 2)):
            if out.found or stopped():
                return out
            out.sampled += 1
            note(by, order, runner.run(order))
        left = max(1, budget - runner.ran)
        out.certificate = certify(window, runner, left, stopped=stopped)
    for order, failure in out.certificate.failing:
        note(CERTIFICATE, order, failure)
    return out
