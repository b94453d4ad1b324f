"""Schedules that others run: what a search finds does not depend on who ran them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from replay.orders import harmless

from hkvtool.analyzers import check
from hkvtool.bench.explore import scattered
from hkvtool.model.event import Event
from hkvtool.replay import elsewhere
from hkvtool.replay.certify import Frontier, certify
from hkvtool.replay.elsewhere import Verdict, inequivalent, run_portion
from hkvtool.replay.explore import Exploration, explore
from hkvtool.replay.samplers import sample
from hkvtool.replay.schedules import Runner
from hkvtool.replay.searched import Searched, load
from hkvtool.replay.window import Window, window

Reading = Callable[..., list[Event]]


class Others:
    """Others who run some portions ahead of what was asked for."""

    def __init__(self, window: Window, ahead: int = 3) -> None:
        self.window = window
        self.ahead = ahead
        self.ran = self.given_up = 0

    def portions(self, asked: Iterator[Any]) -> Generator[list[Verdict], None, None]:
        waiting: deque[list[Verdict]] = deque()
        try:
            for one in asked:
                self.ran += 1
                waiting.append(run_portion(self.window, one))
                if len(waiting) > self.ahead:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        finally:
            self.given_up += len(waiting)


def told(seen: Exploration) -> Any:
    """All that a search says, and all that it leaves for the next."""
    cert = seen.certificate
    return (
        seen.verdict, [(f.by, f.run, f.schedule, f.key, f.changed) for f in seen.found],
        [(c.schedule, c.failure is None) for c in seen.candidates], seen.sampled,
        cert and (cert.orders, cert.blocked, cert.complete), seen.known.as_json(),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("budget", [5, 60, 900])
def test_a_search_with_others_is_the_search_alone(
    seed: int, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "PORTION", 7)
    for found in (scattered(3, 4, 4, seed), scattered(4, 6, 2, seed), harmless(3, 2)):
        alone = explore(found, budget=budget, seed=seed)
        assert told(explore(found, budget=budget, seed=seed, elsewhere=Others(found))) == told(
            alone
        )


def test_what_a_window_without_candidates_hides_is_found_by_others_too() -> None:
    """A bug that only samples or sleep sets find, since no two ops are given as a race."""
    found = scattered(4, 6, 2, 3)
    object.__setattr__(found, "races", [])
    alone = explore(found, budget=4000)
    others = Others(found)
    assert told(explore(found, budget=4000, elsewhere=others)) == told(alone)
    assert alone.found
    assert others.ran


def test_a_search_with_others_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    found = harmless(3, 2)
    kept: list[Any] = []
    for others in (None, Others(found)):
        known = Searched.of(found, 0)
        for _ in range(3):
            asked = 0

            def soon() -> bool:
                nonlocal asked
                asked += 1
                return asked > 250

            seen = explore(found, budget=1200, stopped=soon, known=known, elsewhere=others)
            known.save(tmp_path / "s.json")
            known = load(tmp_path / "s.json", found, 0) or known
            kept.append(told(seen))
    assert kept[:3] == kept[3:]
    assert others is not None
    assert others.given_up


def test_the_orders_that_come_next_are_those_that_a_certificate_runs() -> None:
    found = scattered(3, 4, 4, 1)
    at = Frontier.of(found)
    ran: list[list[int]] = []

    class Noting(Runner):
        def run(self, order: Any) -> Any:
            ran.append(list(order))
            return super().run(order)

    ahead = inequivalent(found, at, 10**6)
    certify(found, Noting(found), 10**6, most_failing=10**6, at=at)
    assert list(ahead) == ran


def test_a_sample_is_the_same_wherever_one_begins() -> None:
    found = scattered(3, 4, 4, 1)
    whole = run_portion(found, (5, 0, 40))
    assert whole == [v for n in range(0, 40, 7) for v in run_portion(found, (5, n, min(40, n + 7)))]
    assert {sample(found, 5, n)[0] for n in range(12)} == {"POS", "PCT 2", "PCT 3", "PCT 5"}
    assert len({tuple(sample(found, 5, n)[1]) for n in range(40)}) > 10


def test_the_races_of_the_cases_are_found_with_others_as_alone(
    cases: Any, read_events: Reading
) -> None:
    races = 0
    for case in islice(cases.values(), 0, None, 3):
        events = read_events(case.bad)
        for finding in check(events).findings:
            if not (finding.edge and not finding.cause and finding.pool and finding.blocks):
                continue
            races += 1
            places = frozenset((str(finding.pool), b) for b in finding.blocks)
            found = window(events, places, finding.events)
            assert told(explore(found, elsewhere=Others(found))) == told(explore(found))
    assert races
