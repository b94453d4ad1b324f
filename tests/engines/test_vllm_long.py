"""Recordings of vLLM's scheduler with its offloading connector, requests sharing prompts, replayed
whole on real bytes; and what one release less in them comes to."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engines.long_load import KINDS, LONGEST, load, of_a_kind
from hkvtool.analyzers.check import check
from hkvtool.model.event import Event
from hkvtool.replay.arms import Setting, survey
from hkvtool.replay.confirming import CANNOT, confirm
from hkvtool.replay.whole import replay
from hkvtool.store.derive_reads import derive_reads

WITHOUT_A_WHOLE_ENGINE = sorted(set(KINDS) - {"deepseek-v4"})


def events_of(folder: Path, recorded: Any, kind: str, least: int, seed: int) -> list[Event]:
    folded, hooks = recorded
    drive = of_a_kind(folder, hooks, kind)
    load(drive, random.Random(seed), lambda: len(folded.events) < least, LONGEST.get(kind, 200))
    assert not hooks.failed, hooks.failed
    return list(derive_reads(Event.of(i, event) for i, event in enumerate(folded.events, 1)))


def errors(events: list[Event]) -> list[Any]:
    report = check(iter(events))
    return [f for f in report.findings if f.severity == "error" and not f.cause]


def reads_nothing_wrong(events: list[Event], reads: int) -> None:
    assert errors(events) == []
    account = replay(Setting(events, survey(events))).account
    assert account.reads > reads
    assert account.wrong_at == {}


def without(events: list[Event], left_out: int) -> list[Event]:
    """All but one, numbered anew: a number that is missing would be an event that was lost."""
    kept = (e for i, e in enumerate(events) if i != left_out)
    return [
        Event.of(pos, {key: value for key, value in e.data.items() if key != "seq"})
        for pos, e in enumerate(kept, 1)
    ]


@pytest.mark.parametrize("kind", WITHOUT_A_WHOLE_ENGINE)
def test_no_wrong_byte_as_recorded(tmp_path: Path, recorded: Any, kind: str) -> None:
    events = events_of(tmp_path, recorded, kind, 1500, 1)
    seen = {e.ev for e in events}
    assert {"store_begin", "free", "publish"} <= seen
    # Of three groups it takes longer until all have been stored that one resumes from.
    assert kind == "gemma" or "load_begin" in seen
    reads_nothing_wrong(events, 1000)


def test_a_store_that_leaves_out_what_is_stored_is_met(tmp_path: Path, recorded: Any) -> None:
    """Else the recordings above would not show that its tokens are told right."""
    events = events_of(tmp_path, recorded, "gpt-oss", 1500, 1)
    assert [e for e in events if e.ev == "store_begin" and "+" in str(e["handle"])]


def test_one_release_that_is_missing_is_found(tmp_path: Path, recorded: Any) -> None:
    events = events_of(tmp_path, recorded, "gemma", 1500, 2)
    chance = random.Random(4)
    frees = [i for i, e in enumerate(events[: len(events) // 2]) if e.ev == "free"]
    for place in chance.sample(frees, 2):
        changed = without(events, place)
        found = errors(changed)
        assert {f.code for f in found} == {"HKV704"}, (place, found)
        assert set(found[0].blocks) <= set(events[place]["blocks"])
    # It is one of books: who kept the block reads it no more, and the bytes are right.
    result = confirm(Setting(changed, survey(changed), runs=1), check(iter(changed)), found[0])
    assert result.verdict == CANNOT and "in two hands" in result.reason


@pytest.mark.soak
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_no_wrong_byte_in_a_hundred_thousand_events(
    tmp_path: Path, recorded: Any, kind: str
) -> None:
    events = events_of(tmp_path, recorded, kind, 60_000, 2)
    assert len(events) > 100_000
    reads_nothing_wrong(events, 30_000)
