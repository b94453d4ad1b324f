"""From "probably a race" to the order that fails, or to none among all.

Predict from happens-before, confirm each candidate by one directed schedule, sample by a
portfolio, then certify: every inequivalent order, or how many were run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hkvtool.replay.certify import Certificate, Frontier, certify
from hkvtool.replay.elsewhere import Elsewhere, inequivalent, of_orders, of_samples
from hkvtool.replay.samplers import sample
from hkvtool.replay.schedules import Failure, directed, spell, unspell
from hkvtool.replay.searched import Remembering, Searched
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
    changed: tuple[str, ...] = ()
    """What the allocator decides otherwise in it, where its outcomes are not forced."""

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
    """What searches of one window saw, `known` what they leave behind for the next."""

    window: Window
    seed: int
    known: Searched
    candidates: list[Candidate] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    certificate: Certificate | None = None
    stopped: bool = False

    @property
    def sampled(self) -> int:
        return self.known.sampled

    @property
    def complete(self) -> bool:
        return self.certificate is not None and self.certificate.complete

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
    window: Window, *, budget: int = 2000, seed: int = 0, stopped: Stopped = lambda: False,
    known: Searched | None = None, told: Callable[[int], None] | None = None,
    elsewhere: Elsewhere | None = None,
) -> Exploration:  # fmt: skip
    """Search a window with at most `budget` schedules; ends early where something fails.

    `known` is what an earlier search of the window left: nothing that it ran is run again. With
    `elsewhere` others run the schedules, and what comes of it is the same.
    """
    known = Searched.of(window, seed) if known is None else known
    out = Exploration(window, seed, known)
    runner = Remembering(window, known)
    before = known.ran
    seen: set[tuple[int | None, ...]] = set()

    def note(by: str, order: Sequence[int], failure: Failure | None, run: int) -> None:
        if failure is None:
            return
        found = Found(by, run, spell(window, order), failure, tuple(runner.changed))
        if found.key not in seen:
            seen.add(found.key)
            out.found.append(found)
            known.found.append((by, run, found.schedule))

    def over() -> bool:
        known.ran = before + runner.ran
        if told is not None:
            told(runner.ran)
        out.stopped = out.stopped or stopped()
        return out.stopped

    earlier, known.found = known.found, []
    for by, run, text in earlier:
        order = unspell(window, text)
        note(by, order, runner.run(order), run)
    for first, second in window.races:
        order = directed(window, first, second)
        text = spell(window, order)
        if text not in known.verdicts and (runner.ran >= budget or over()):
            return out
        failure = runner.run(order)
        out.candidates.append(Candidate(first, second, text, failure))
        note(DIRECTED, order, failure, before + runner.ran)
    if out.found:
        over()
        return out
    _deeper(out, runner, budget, over, note, elsewhere)
    over()
    return out


def _deeper(
    out: Exploration, runner: Remembering, budget: int, over: Stopped,
    note: Callable[[str, Sequence[int], Failure | None, int], None], elsewhere: Elsewhere | None,
) -> None:  # fmt: skip
    """Sleep sets and samples in turn: a small window is settled for good before chance is asked."""
    window, known = out.window, out.known
    before = known.ran - runner.ran
    at = known.frontier = known.frontier or Frontier.of(window)

    def certified(most: int) -> bool:
        most = max(1, most)
        told = of_orders(elsewhere, inequivalent(window, at, most)) if elsewhere else None
        runner.told = told
        try:
            out.certificate = certify(window, runner, most, stopped=over, at=at)
        finally:
            runner.told = None
            if told is not None:
                told.close()
        known.complete = out.certificate.complete
        for order, failure in out.certificate.failing:
            note(CERTIFICATE, order, failure, before + runner.ran)
        return out.complete or bool(out.found) or out.stopped

    if certified((budget - runner.ran) // 4):
        return
    first = known.sampled
    end = first + max(0, (budget - runner.ran) // 2)
    told = None if elsewhere is None else of_samples(elsewhere, out.seed, first, end)
    try:
        for number in range(first, end):
            if out.found or over():
                return
            known.sampled += 1
            verdict = next(told) if told is not None else None
            if verdict is not None and not verdict[1]:
                runner.take(verdict, ())
                continue
            by, order = sample(window, out.seed, number)
            failure = runner.take(verdict, order) if verdict else runner.run(order)
            note(by, order, failure, before + runner.ran)
    finally:
        if told is not None:
            told.close()
    if not out.found:
        certified(budget - runner.ran)
