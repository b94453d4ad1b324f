"""A probe from noise to verdict: measure what differs anyway, screen, repeat what diverged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hkvtool.probe.controls import NOISE, ONLY_REPEATS, SENSITIVITY, among_strangers, unshared
from hkvtool.probe.dialect import Dialect
from hkvtool.probe.judging import Judged, diverges, judge
from hkvtool.probe.kept import Kept
from hkvtool.probe.load import Spent
from hkvtool.probe.patterns import PATTERNS, Maker, Shape
from hkvtool.probe.playing import Played, play
from hkvtool.probe.scenario import Scenario, scenario_of
from hkvtool.probe.server import Refused, Unreachable
from hkvtool.probe.shrinking import shrunk
from hkvtool.probe.survey import hits

Made = Callable[[Maker], Scenario]

_TRIED = 3
"""How many times as many divergences are gone into as findings are wanted: noise is among them."""

_FAILURES = 0.1
"""The share of trials that may fail before nothing can be said."""

_SHAPES_UNSEEN = 0.5
"""Nats below which nothing counts where no cold answer can be had twice: what another shape of the
same computation does to an answer is not measured there."""


@dataclass(frozen=True)
class Options:
    """`comparisons` in all, over the patterns in turn; `noise` and `sensitivity` trials before;
    `repeats` of what diverged and as many controls; it ends with so many confirmed `findings`."""

    comparisons: int = 200
    noise: int = 24
    sensitivity: int = 12
    repeats: int = 8
    findings: int = 4
    least: float = 0.01
    tolerance: float | None = None
    alpha: float = 0.05
    seed: int = 0
    reset: str = ""
    shrink: bool = True
    patterns: tuple[str, ...] = tuple(PATTERNS)


@dataclass
class Divergence:
    """One trial that diverged, gone into. `scenario` is the smallest that still does; `links` is
    what else tells of it."""

    id: str
    scenario: Scenario
    record: dict[str, Any]
    links: dict[str, Any] = field(default_factory=dict)

    def as_record(self) -> dict[str, Any]:
        return {
            "stage": "finding", "finding": self.id, "scenario": self.scenario.as_json(),
            "record": self.record, "links": self.links,
        }  # fmt: skip

    @staticmethod
    def of(record: dict[str, Any]) -> Divergence:
        scenario = scenario_of(record["scenario"], "--state")
        return Divergence(record["finding"], scenario, record["record"], record["links"])


@dataclass
class Probe:
    """One run. `told` hears of progress, `caught` of each divergence as it happens."""

    dialect: Dialect
    shape: Shape
    options: Options
    kept: Kept
    cold: bool
    """Whether what was seen can be made cold again: by salts that separate, or by a reset."""
    told: Callable[[str, int, int], None] = lambda stage, done, of: None
    caught: Callable[[Divergence], None] = lambda divergence: None
    found: list[Divergence] = field(default_factory=list)
    stopped: str = ""
    """Why it ended before all was compared."""

    @property
    def least(self) -> float:
        return self.options.least if self.cold else max(self.options.least, _SHAPES_UNSEEN)

    def judged(self) -> Judged:
        """What the records come to until now."""
        return judge(
            self.kept.records, least=self.least, fixed=self.options.tolerance,
            alpha=self.options.alpha,
        )  # fmt: skip

    @property
    def whole(self) -> bool:
        """Whether all was compared, or enough was found before."""
        return not self.stopped

    def run(self, again: Scenario | None = None) -> None:
        """Go through all stages, or with `again` repeat that one scenario."""
        try:
            noise = NOISE if self.cold else ONLY_REPEATS
            if not self.dialect.can_go_on or not self.dialect.ids:
                noise = {n: m for n, m in noise.items() if n != "decoded"}
            self._stage("noise", noise, self.options.noise)
            self._stage("sensitivity", {"changed": SENSITIVITY}, self.options.sensitivity)
            kept = {r["finding"]: Divergence.of(r) for r in self.kept.of("finding")}
            self.found.extend(kept.values())
            for divergence in self.found:
                self._repeat(divergence)
            if again is not None:
                if not self.found:
                    self._go_into(again, {})
                return
            before = hits(self.dialect.server)
            try:
                self._screen()
            finally:
                self._count_hits(before)
        except Spent as e:
            self.stopped = str(e)
        except Unreachable as e:
            # What was compared before is worth telling, not least if it was what broke the server.
            self.stopped = f"the server answers no more: {e.what}"

    def _count_hits(self, before: float | None) -> None:
        """What the server's metrics say was reused, for servers that tell of no answer whether."""
        after = None if before is None else hits(self.dialect.server)
        if before is not None and after is not None:
            self.kept.add({"stage": "hits", "hits": after - before})

    def _stage(self, stage: str, makers: dict[str, Made], count: int) -> None:
        names = list(makers)
        for i in range(len(self.kept.of(stage)), count):
            name = names[i % len(names)]
            self._trial(stage, i, makers[name](self._maker(stage, i, i // len(names))))
            self.told(stage, i + 1, count)

    def _screen(self) -> None:
        patterns = [p for p in self.options.patterns if p in PATTERNS]
        limit = self.judged().noise.tolerance
        done = len(self.kept.of("screen"))
        beyond: dict[str, int] = {}
        for kept in self.kept.of("screen"):
            beyond[kept["pattern"]] = beyond.get(kept["pattern"], 0) + diverges(kept, limit)
        for i in range(done, self.options.comparisons):
            name, turn = patterns[i % len(patterns)], i // len(patterns)
            scenario = PATTERNS[name](self._maker("screen", i, turn))
            record = self._trial("screen", i, scenario)
            self.told("compared", i + 1, self.options.comparisons)
            if record is not None and diverges(record, limit):
                beyond[name] = beyond.get(name, 0) + 1
                if beyond[name] <= 2 and len(self.found) < _TRIED * self.options.findings:
                    self._go_into(scenario, record)
                    judged = self.judged()
                    if sum(map(judged.confirmed, judged.findings)) >= self.options.findings:
                        return
            if i % 3 == 2:
                self._control(i)
            if self._fails():
                raise Spent("too many requests fail")

    def _control(self, i: int) -> None:
        """The twin of a pattern in which nothing is reused."""
        patterns = [p for p in self.options.patterns if p not in ("salt", "adapter")]
        names = patterns or ["warm"]
        turn = i // 3
        maker = self._maker("control", i, turn // len(names))
        if self.cold:
            scenario = unshared(PATTERNS[names[turn % len(names)]](maker))
        else:
            scenario = ONLY_REPEATS["repeat"](maker)
        self._trial("control", i, scenario)

    def _go_into(self, scenario: Scenario, record: dict[str, Any]) -> None:
        """Something diverged: say so at once, then see whether it does again."""
        name = f"D{len(self.found) + 1}"
        if "a stranger" not in {ask.name for ask in scenario.asks}:
            scenario = among_strangers(scenario, self._maker("stranger", len(self.found), 0))
        divergence = Divergence(name, scenario, record)
        self.found.append(divergence)
        if record:
            self.caught(divergence)
        self.kept.add(divergence.as_record())
        self._repeat(divergence)

    def _repeat(self, divergence: Divergence) -> None:
        """As it was and with nothing shared, in turn; then make it smaller."""
        name, scenario = divergence.id, divergence.scenario
        limit = self.judged().noise.tolerance
        done = [r for r in self.kept.of("confirm control") if r["finding"] == name]
        for i in range(len(done), self.options.repeats):
            record = self._trial(
                "confirm",
                i,
                scenario if self.cold else self._alike(scenario, name, i),
                finding=name,
            )
            if record is not None and not divergence.record and diverges(record, limit):
                divergence.record = record
                self.caught(divergence)
            if self.cold:
                twin = unshared(scenario)
            else:
                twin = ONLY_REPEATS["repeat"](self._maker(f"confirm control {name}", i, i))
            self._trial("confirm control", i, twin, finding=name)
            self.told(f"repeating {name}", i + 1, self.options.repeats)
        if len(done) < self.options.repeats:
            self._shrink(divergence, limit)
            self.kept.add(divergence.as_record())

    def _shrink(self, divergence: Divergence, limit: float) -> None:
        mine = [r for r in self.kept.of("confirm") if r["finding"] == divergence.id]
        hits = sum(diverges(r, limit) for r in mine if "compared" in r)
        if self.options.shrink and self.cold and hits * 4 >= self.options.repeats * 3:
            divergence.scenario = shrunk(
                divergence.scenario, lambda s: self._still(s, limit), self._unit()
            )

    def _still(self, scenario: Scenario, limit: float) -> bool:
        """Whether a smaller scenario diverges twice in a row; not kept, it is chosen by this."""
        for _ in range(2):
            try:
                record = _record("shrink", 0, play(self.dialect, scenario, self.options.reset))
            except Refused:
                return False
            if not diverges(record, limit):
                return False
        return True

    def _alike(self, scenario: Scenario, name: str, i: int) -> Scenario:
        """The same pattern, with tokens that nobody has sent."""
        made = PATTERNS.get(scenario.pattern, PATTERNS["warm"])
        return made(self._maker(f"confirm {name}", i, i))

    def _trial(
        self, stage: str, i: int, scenario: Scenario, *, finding: str = ""
    ) -> dict[str, Any] | None:
        """Send a scenario and keep what came; None where it failed."""
        record: dict[str, Any]
        try:
            record = _record(stage, i, play(self.dialect, scenario, self.options.reset))
        except Refused as e:
            record = {
                "stage": stage, "i": i, "pattern": scenario.pattern, "failed": f"{e.status}, {e}",
            }  # fmt: skip
        if finding:
            record["finding"] = finding
        self.kept.add(record)
        return None if "failed" in record else record

    def _fails(self) -> bool:
        failed = sum("failed" in r for r in self.kept.records)
        return failed > 10 and failed > _FAILURES * len(self.kept.records)

    def _maker(self, stage: str, i: int, turn: int) -> Maker:
        # A session that was stopped may have sent the prompts of its last trial already.
        rng = random.Random(f"{self.options.seed}/{self.kept.sessions}/{stage}/{i}")
        return Maker(self.shape, rng, turn)

    def _unit(self) -> int:
        return min(b.tokens for b in self.shape.boundaries)


def _record(stage: str, i: int, played: Played) -> dict[str, Any]:
    return {
        "stage": stage, "i": i, "pattern": played.scenario.pattern, "told": played.scenario.told,
        "shared": played.scenario.shared, "leaked": played.leaked,
        "compared": [
            {
                "reference": c.reference, "subject": c.subject, "requests": list(c.requests),
                "cached": c.cached, "said": list(c.said), **c.apart.as_json(),
            }
            for c in played.compared
        ],
    }  # fmt: skip
