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

SETTINGS = settings(max_examples=20, stateful_step_count=12, deadline=None, derandomize=True)
"""The same programs each time: what passed once does not fail without a change."""

_MOST_STEPS = 12
"""Of a request that is served at once; one that takes longer is left to other rules."""

_HEAD = st.integers(0, 4)
"""Beginnings that prompts share, each going on from the one before."""

_OWN, _OUTPUT, _BUDGET = st.integers(1, 40), st.integers(1, 12), st.sampled_from((8, 24, 64))
"""Tokens behind the shared beginning, tokens to generate, and of a step."""


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
            self.last: tuple[int, ...] = ()

        @rule(head=_HEAD, own=_OWN, output=_OUTPUT, budget=_BUDGET)
        def start(self, head: int, own: int, output: int, budget: int) -> None:
            """A request is let in, and left under way."""
            self._let_in(self._prompt(head, own, output), budget)

        @precondition(lambda self: self.last)
        @rule(budget=_BUDGET)
        def again(self, budget: int) -> None:
            """The last prompt once more, whose first may still be computing it."""
            self._let_in(self._prompt(*self.last), budget)

        @rule(head=_HEAD, own=_OWN, output=_OUTPUT)
        def serve(self, head: int, own: int, output: int) -> None:
            """A request from its beginning to its end, with all that are there."""
            self._serve(self._prompt(head, own, output))

        @rule()
        def fill(self) -> None:
            """A request that needs most of the pool, and is like no other."""
            blocks, tokens = self.driver.blocks, 8
            while model.blocks_for(tokens + 8) < blocks * 3 // 4:
                tokens += 8
            first = 1 << 22 | self.count << 12
            self._serve(Prompt(self._name(), tuple(range(first, first + tokens)), tokens - 1))

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
            broken += self.driver.problems
            assert not broken, "\n".join([self._of(), *broken, *self._last()])

        def _let_in(self, prompt: Prompt, budget: int) -> None:
            self.driver.arrive(prompt)
            # Before those that were put back.
            self.driver.waiting.rotate(1)
            self.driver.admit()
            self.driver.step(budget, 1)

        def _serve(self, prompt: Prompt) -> None:
            self.driver.arrive(prompt)
            for _ in range(_MOST_STEPS):
                if self.driver.waiting:
                    self.driver.admit()
                self.driver.step(64, 8)
                self.driver.retire()

        def _prompt(self, head: int, own: int, output: int) -> Prompt:
            self.last = (head, own, output)
            # Its own tokens are those of every prompt as long, so that some repeat.
            tokens = [n for h in range(head) for n in range(h << 8, (h << 8) + 16)]
            tokens += range(1 << 16, (1 << 16) + own)
            name, first = self._name(), 1 << 20 | self.count << 6
            return Prompt(name, (*tokens, *range(first, first + output)), len(tokens))

        def _name(self) -> str:
            self.count += 1
            return f"r{self.count}"

        def _of(self) -> str:
            return f"{self.driver.preset.name}, {len(self.driver.events)} events"

        def _last(self) -> list[str]:
            return [f"    {n} {e}" for n, e in enumerate(self.driver.events, 1)][-40:]

    return Programs
