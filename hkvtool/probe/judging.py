"""What the comparisons come to: noise, tolerance, rates, and what of it is more than chance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

from hkvtool.probe.exact import detectable, fisher, holm, interval

Record = dict[str, Any]

FACTOR, USUAL = 3.0, 0.9
"""How far beyond the usual noise a difference must lie, and what share of the noise is usual.

Not beyond the largest: a router of experts that wavers once makes a jump that would hide all else.
Such jumps are counted as what they are, in comparisons with reuse and without.
"""

BLIND = 0.5
"""By how much more often changed prompts must be told apart than equal ones for `same`."""

SAME, DIFFERS, INCONCLUSIVE = "same", "differs", "inconclusive"


@dataclass(frozen=True)
class Noise:
    """What answers differ by though nothing is reused, and what is counted as more than that."""

    trials: int
    largest: float
    usual: float
    tolerance: float
    differed: int
    """Trials beyond the tolerance all the same."""
    void: int
    """Trials left out because the server says it reused something."""

    @staticmethod
    def of(records: Iterable[Record], least: float, fixed: float | None) -> Noise:
        kept = [r for r in records if "compared" in r]
        sound = [r for r in kept if not r["leaked"]]
        sizes = sorted(
            max((s for c in r["compared"] for s in steps_of(c) if isfinite(s)), default=0.0)
            for r in sound
        )
        largest = sizes[-1] if sizes else 0.0
        usual = sizes[int(USUAL * (len(sizes) - 1))] if sizes else 0.0
        tolerance = fixed if fixed is not None else max(least, FACTOR * usual)
        differed = sum(beyond(r, tolerance) for r in sound)
        return Noise(len(sound), largest, usual, tolerance, differed, len(kept) - len(sound))


def steps_of(compared: Record) -> list[float]:
    """The nats of a comparison, token by token."""
    return [inf if s is None else float(s) for s in compared["steps"]]


def beyond(record: Record, tolerance: float) -> bool:
    """Whether any comparison of a trial lies beyond the tolerance."""
    return any(s > tolerance for c in record.get("compared", ()) for s in steps_of(c))


def diverges(record: Record, tolerance: float) -> bool:
    """Whether a trial shows that reuse changed an answer, or reached what it must not."""
    return bool(record.get("leaked")) or beyond(record, tolerance)


def worst(record: Record, tolerance: float) -> Record | None:
    """The comparison of a trial that lies furthest apart, if one is beyond the tolerance."""
    found = [c for c in record["compared"] if max(steps_of(c), default=0.0) > tolerance]
    return max(found, key=lambda c: max(steps_of(c)), default=None)


def reused(record: Record) -> bool:
    """Whether the server says that an answer which is judged rests on what it had."""
    return any(c.get("cached") for c in record["compared"])


@dataclass
class Rate:
    """Hits among trials, held against controls."""

    hits: int
    trials: int
    control_hits: int
    control_trials: int
    adjusted: float = 1.0
    reused: int | None = None
    """Trials in which something was reused; None where the server tells of no trial whether."""

    @property
    def p(self) -> float:
        return fisher(self.hits, self.trials, self.control_hits, self.control_trials)

    def as_json(self) -> Record:
        low, high = interval(self.hits, self.trials)
        return {
            "divergent": self.hits, "comparisons": self.trials,
            "rate": self.hits / self.trials if self.trials else None,
            "interval": [round(low, 6), round(high, 6)],
            "control_divergent": self.control_hits, "controls": self.control_trials,
            "p": self.p, "p_adjusted": self.adjusted, "reused": self.reused,
        }  # fmt: skip


@dataclass
class Judged:
    """All of it."""

    noise: Noise
    seen: tuple[int, int]
    """Changed prompts that were told apart, of how many."""
    patterns: dict[str, Rate] = field(default_factory=dict)
    findings: dict[str, Rate] = field(default_factory=dict)
    alpha: float = 0.05
    idle: str = ""
    """Why what was compared says nothing of reuse; empty where something was reused."""

    @property
    def sensitivity(self) -> float:
        return self.seen[0] / self.seen[1] if self.seen[1] else 0.0

    def detectable(self, pattern: str) -> float:
        """The least rate of a fault in this pattern that would have shown."""
        rate = self.patterns[pattern]
        trials = rate.trials if rate.reused is None else rate.reused
        return detectable(trials, self.sensitivity)

    def confirmed(self, finding: str) -> bool:
        return self.findings[finding].adjusted < self.alpha

    def verdict(self, whole: bool) -> str:
        """`whole`: whether all that was planned was compared."""
        tests = [*self.patterns.values(), *self.findings.values()]
        if any(t.adjusted < self.alpha for t in tests):
            return DIFFERS
        noise = self.noise
        wavering = noise.differed / noise.trials if noise.trials else 0.0
        blind = self.seen[1] > 0 and self.sensitivity - wavering < BLIND
        # Where answers without reuse never jump, one that jumped with it is not explained by noise.
        jumps = self.noise.differed + sum(t.control_hits for t in tests)
        if not whole or blind or self.idle or (not jumps and any(t.hits for t in tests)):
            return INCONCLUSIVE
        return SAME


def judge(records: Sequence[Record], *, least: float, fixed: float | None, alpha: float) -> Judged:
    """Everything that follows from the records, and from them alone."""

    def of(stage: str) -> list[Record]:
        return [r for r in records if r.get("stage") == stage and "compared" in r]

    noise = Noise.of(of("noise"), least, fixed)
    limit = noise.tolerance
    changed = of("sensitivity")
    judged = Judged(noise, (sum(beyond(r, limit) for r in changed), len(changed)), alpha=alpha)
    screen, control = of("screen"), of("control")
    for pattern in dict.fromkeys(r["pattern"] for r in screen):
        mine = [r for r in screen if r["pattern"] == pattern]
        # Many at once have many chances to differ, with reuse and without: like against like.
        fellows = [r for r in control if (r["pattern"] == "load") == (pattern == "load")]
        judged.patterns[pattern] = rate = _rate(mine, fellows, limit)
        if any(r["shared"] for r in mine) and _tells(records):
            rate.reused = sum(map(reused, mine))
    judged.idle = _idle(records, screen)
    confirm, against = of("confirm"), of("confirm control")
    for finding in dict.fromkeys(r["finding"] for r in confirm):
        judged.findings[finding] = _rate(
            [r for r in confirm if r["finding"] == finding],
            [r for r in against if r["finding"] == finding],
            limit,
        )
    tests = [*judged.patterns.values(), *judged.findings.values()]
    for test, adjusted in zip(tests, holm([t.p for t in tests]), strict=True):
        test.adjusted = adjusted
    return judged


def _tells(records: Iterable[Record]) -> bool:
    """Whether the server ever told how many tokens were cached: some tell it only of a hit."""
    return any(c.get("cached") is not None for r in records for c in r.get("compared", ()))


def _idle(records: Sequence[Record], screen: Sequence[Record]) -> str:
    """Why nobody can say that something was reused, where something should have been."""
    sharing = [r for r in screen if r["shared"]]
    counted = [float(r["hits"]) for r in records if r.get("stage") == "hits"]
    if not sharing or any(map(reused, sharing)) or any(h > 0 for h in counted):
        return ""
    if counted or _tells(records):
        return "the server reused nothing, so that nothing was compared with reuse"
    return (
        "whether anything was reused cannot be seen: the server tells no cached tokens (vLLM: "
        "--enable-prompt-tokens-details, SGLang: --enable-cache-report)"
    )


def _rate(trials: Sequence[Record], controls: Sequence[Record], limit: float) -> Rate:
    hits = sum(diverges(r, limit) for r in trials)
    # A control that the server says it reused something in is none.
    sound = [r for r in controls if not r["leaked"]]
    return Rate(hits, len(trials), sum(beyond(r, limit) for r in sound), len(sound))
