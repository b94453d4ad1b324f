"""The engine whose traces must be silent is itself held to account: shape, bytes, coverage."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from .correct import SWITCHES, Options, correct_run, correct_trace, random_options
from .memory import Memory
from .options import FAMILIES
from .wellformed import faults

_KNOWN = ["attach", "dropped"]


def _engines(name: str) -> list[Options]:
    changes = SWITCHES[name]
    chosen = [replace(Options(family=family), **changes) for family in FAMILIES]
    return [o for o in chosen if o.valid()]


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_gives_wellformed_traces(name: str) -> None:
    engines = _engines(name)
    assert engines
    for options in engines:
        # A recording that begins late, or lost something, has ends without their begins.
        if not (options.attach or options.dropped):
            assert not list(faults(correct_trace(1, options))), options


@pytest.mark.parametrize("name", [n for n, c in SWITCHES.items() if not set(_KNOWN) & set(c)])
def test_every_read_gets_the_bytes_of_its_own_sequence(name: str) -> None:
    for options in _engines(name):
        events, requests = correct_run(2, options)
        memory = Memory(requests)
        assert not list(memory.run(events, options.late_device)), options
        assert memory.reads > 10


def test_the_byte_oracle_sees_a_wrong_block() -> None:
    events, requests = correct_run(3, Options(requests=4))
    uses = {e["req"]: n for n, e in enumerate(events) if e["ev"] == "use"}
    last = uses["r3"]
    foreign = next(
        b for n in uses.values() for b in events[n]["blocks"] if b not in events[last]["blocks"]
    )
    events[last] = {**events[last], "blocks": [foreign, *events[last]["blocks"]]}
    assert list(Memory(requests).run(events, False))


def test_same_seed_same_trace() -> None:
    options = Options(tier="cpu", streams=True, tight=True, abort=True)
    assert correct_trace(5, options) == correct_trace(5, options)
    assert correct_trace(5, options) != correct_trace(6, options)


def test_random_engines_do_everything_that_engines_do() -> None:
    seen: Counter[str] = Counter()
    for changes in SWITCHES.values():
        seen.update(e["ev"] for e in correct_trace(0, Options(**changes)))
    for seed in range(40):
        options = random_options(Random(seed))
        events = correct_trace(seed, options)
        seen.update(e["ev"] for e in events)
        if not (options.attach or options.dropped):
            assert not list(faults(events)), (seed, options)
    common = "alloc touch free publish unpublish slide write seal index zero use dispatch retire"
    rare = "lookup resume store_begin load_begin rollback preempt abort refuse reset remap copy"
    for ev in (common + " " + rare + " wire fingerprint buffer launch signal wait").split():
        assert seen[ev], ev
