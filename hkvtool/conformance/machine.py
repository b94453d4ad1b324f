"""Random programs against an allocator, by hypothesis: the layers and constraints as properties."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from unittest import TestCase

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hkvtool.conformance.allocator import Make, Prompt
from hkvtool.conformance.driver import Driver
from hkvtool.conformance.properties import VETO, judge
from hkvtool.conformance.small import SMALL
from hkvtool.engine.geometry import Preset

SETTINGS = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
"""The same programs each time: what passed once does not fail without a change."""

_MOST_STEPS = 40
"""Of a request that is served at once; one that takes longer is left to other rules."""

_HEADS = 4
"""Beginnings that prompts share, each going on from the one before."""


def allocator_test(
    make: Make,
    models: Mapping[str, Preset] = SMALL,
    blocks: Sequence[int] = (40, 90),
    *,
    but: Collection[str] = (VETO,),
    how: settings = SETTINGS,
) -> type[TestCase]:
    """A test case, which pytest and unittest collect, of an allocator made by `make`.

    It has a test for each of the `models`. Each runs random programs on pools of so many `blocks`,
    and every program has to hold every property (`hkvtool.conformance.properties`); one that does
    not is shrunk to the fewest calls that still do not. `but` names rules that are no fault of
    this allocator; `how` are hypothesis' settings.
    """

    def test_of(model: Preset) -> Callable[[TestCase], None]:
        def test(self: TestCase) -> None:
            run_state_machine_as_test(programs(make, model, blocks, but), settings=how)

        return test

    tests = {f"test_{name.replace('-', '_')}": test_of(model) for name, model in models.items()}
    return type("AllocatorTest", (TestCase,), tests)


def programs(
    make: Make, model: Preset, blocks: Sequence[int], but: Collection[str] = (VETO,)
) -> type[RuleBasedStateMachine]:
    """The machine that makes such programs up, for hypothesis."""

    class Programs(RuleBasedStateMachine):
        driver: Driver

        @initialize(size=st.sampled_from(blocks))
        def begin(self, size: int) -> None:
            self.driver = Driver(make, model, size)
            self.count = 0

        @rule(head=st.integers(0, _HEADS), own=st.integers(1, 40), output=st.integers(1, 12))
        def arrive(self, head: int, own: int, output: int) -> None:
            self._arrive(head, own, output)

        @precondition(lambda self: self.count)
        @rule()
        def arrive_again(self) -> None:
            """The last prompt once more: all of it could be there."""
            self._arrive(*self.last)

        @precondition(lambda self: self.driver.waiting)
        @rule()
        def admit(self) -> None:
            self.driver.admit()

        @precondition(lambda self: self.driver.running)
        @rule(budget=st.sampled_from((8, 24, 64)), stride=st.sampled_from((1, 3, 8)))
        def step(self, budget: int, stride: int) -> None:
            self.driver.step(budget, stride)

        @precondition(lambda self: self.driver.running)
        @rule(budget=st.sampled_from((24, 64)), times=st.integers(2, 8))
        def steps(self, budget: int, times: int) -> None:
            for _ in range(times):
                self.driver.step(budget, 8)
                self.driver.retire()

        @rule(head=st.integers(0, _HEADS), own=st.integers(1, 40), output=st.integers(1, 12))
        def serve(self, head: int, own: int, output: int) -> None:
            """One request after the others, from its beginning to its end."""
            self._arrive(head, own, output)
            for _ in range(len(self.driver.waiting)):
                self.driver.admit()
            self._run()

        @rule()
        def retire(self) -> None:
            self.driver.retire()

        @precondition(lambda self: self.driver.running)
        @rule(which=st.integers(0, 7), how=st.sampled_from(("preempt", "abort")))
        def give_back(self, which: int, how: str) -> None:
            running = self.driver.running
            self.driver.give_back(running[which % len(running)], how)

        @rule(count=st.integers(1, 8))
        def evict(self, count: int) -> None:
            self.driver.allocator.evict(count)

        def teardown(self) -> None:
            if not hasattr(self, "driver") or sys.exc_info()[0] is not None:
                return
            self.driver.end()
            verdicts = judge(self.driver.events, but).values()
            broken = [str(verdict) for verdict in verdicts if not verdict.holds]
            assert not broken, "\n".join([self._of(), *broken, *self._last()])

        def _run(self) -> None:
            for _ in range(_MOST_STEPS):
                if not self.driver.running:
                    return
                self.driver.step(64, 8)
                self.driver.retire()

        def _arrive(self, head: int, own: int, output: int) -> None:
            self.last = (head, own, output)
            # A prompt's own tokens are those of every prompt as long, so that some repeat.
            tokens = [n for h in range(head) for n in range(h << 8, (h << 8) + 16)]
            tokens += range(1 << 16, (1 << 16) + own)
            prompt = f"r{self.count}"
            self.count += 1
            generated = range((1 << 20) + 64 * self.count, (1 << 20) + 64 * self.count + output)
            self.driver.arrive(Prompt(prompt, (*tokens, *generated), len(tokens)))

        def _of(self) -> str:
            return f"{self.driver.preset.name}, {len(self.driver.events)} events"

        def _last(self) -> list[str]:
            return [f"    {n} {e}" for n, e in enumerate(self.driver.events, 1)][-40:]

    return Programs
