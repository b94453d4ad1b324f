"""The guard judges as a check does, while the engine runs, and harms nothing."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hkvtool.analyzers import check
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped
from hkvtool.recorder.guard import Guard, GuardError, Mode
from hkvtool.recorder.guard_rules import Rules
from hkvtool.recorder.violation import Violation
from tests.variants.correct import correct_trace, random_options

Data = dict[str, Any]

POOL: Data = {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 16, "reserved": [0]}
FULL: Data = {
    "ev": "group",
    "group": "full",
    "form": "compressed",
    "pool": "gpu",
    "block_tokens": 4,
}
SWA: Data = {
    "ev": "group", "group": "swa", "form": "swa", "pool": "gpu", "block_tokens": 4, "window": 8,
}  # fmt: skip
BEGIN = [{"ev": "trace", "format": "hkv/1"}, POOL, FULL, SWA]


def alloc(req: str, *blocks: int, group: str = "full") -> Data:
    return {"ev": "alloc", "group": group, "blocks": list(blocks), "req": req}


def free(req: str, *blocks: int, group: str = "full") -> Data:
    return {"ev": "free", "group": group, "blocks": list(blocks), "req": req}


def write(req: str, start: int, end: int, *blocks: int, group: str = "full") -> Data:
    return {
        "ev": "write", "group": group, "blocks": list(blocks), "tokens": [start, end], "req": req,
    }  # fmt: skip


def told(events: Iterable[Data], rules: Rules | None = None) -> list[Violation]:
    """What a guard says of events."""
    found: list[Violation] = []
    guard = Guard(Mode.LOG, [found.append], rules)
    for event in events:
        guard.see(event)
    assert guard.off is None
    return found


BROKEN: dict[str, tuple[str, list[Data]]] = {
    "double free": ("HKV704", [alloc("a", 1), free("a", 1), free("a", 1)]),
    "a shared block freed too often": ("HKV704", [
        alloc("a", 1), {"ev": "touch", "group": "full", "blocks": [1], "req": "b"},
        free("a", 1), free("b", 1), free("a", 1),
    ]),
    "handed out while it is held": ("HKV704", [alloc("a", 1), alloc("b", 1)]),
    "handed out while it is pinned": ("HKV704", [
        alloc("a", 1), {"ev": "pin", "pool": "gpu", "blocks": [1], "owner": "store"}, free("a", 1),
        alloc("b", 1),
    ]),
    "in the free list while it is held": ("HKV704", [
        {"ev": "state", "pool": "gpu", "blocks": [1], "refs": [1], "free_order": [1]},
    ]),
    "a window that is not there": ("HKV303", [
        alloc("a", 1, 2, 3), alloc("a", 4, 5, 6, group="swa"), write("a", 0, 12, 1, 2, 3),
        write("a", 0, 12, 4, 5, 6, group="swa"),
        {"ev": "publish", "group": "full", "blocks": [1, 2, 3], "hashes": ["x", "y", "z"]},
        {"ev": "lookup", "req": "b", "hit": {"full": 12}, "blocks": {"full": [1, 2, 3]}},
        {"ev": "touch", "group": "full", "blocks": [1, 2, 3], "req": "b"},
        {"ev": "resume", "req": "b", "at": 12, "blocks": {"full": [1, 2, 3], "swa": []}},
    ]),
    "a read of what is still loading": ("HKV603", [
        alloc("a", 1),
        {"ev": "load_begin", "handle": "l", "group": "full", "blocks": [1], "tokens": [0, 4]},
        {"ev": "use", "group": "full", "blocks": [1], "req": "a", "tokens": [0, 4]},
    ]),
    "a block of another group": ("HKV601", [
        alloc("a", 1, group="swa"), write("a", 0, 4, 1, group="swa"),
        {"ev": "use", "group": "full", "blocks": [1], "req": "a", "tokens": [0, 4]},
    ]),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_is_said_where_it_happens(name: str) -> None:
    code, events = BROKEN[name]
    found = told([*BEGIN, *events])
    assert [v.code for v in found] == [code]
    assert found[0].pos == len(BEGIN) + len(events)
    assert found[0].events[-1].pos == found[0].pos


@pytest.mark.parametrize("name", BROKEN)
def test_one_that_raises_stops_the_engine_there_and_not_before(name: str) -> None:
    code, events = BROKEN[name]
    guard = Guard(Mode.RAISE)
    for event in [*BEGIN, *events[:-1]]:
        guard.see(event)
    with pytest.raises(GuardError, match=code):
        guard.see(events[-1])


def test_the_report_tells_what_led_to_it() -> None:
    story = [alloc("a", 1, 2), alloc("b", 3), free("a", 1, 2), alloc("b", 4), free("a", 2)]
    (found,) = told([*BEGIN, *story])
    text = found.text()
    assert "HKV704 refcount: block 2 is released more often than it was taken (by a)" in text
    told_events = [line for line in text.splitlines() if "alloc" in line or "free" in line]
    assert len(told_events) == 3, text
    assert told_events[-1].lstrip().startswith("> 9")


def _examples() -> list[Path]:
    root = Path(str(shipped("rules")))
    return sorted([*root.glob("*.jsonl"), *root.glob("clauses/*.jsonl")])


def test_whatever_the_guard_says_a_check_says_too() -> None:
    said: set[str] = set()
    for path in _examples():
        with path.open("rb") as stream:
            lines = list(read_jsonl(stream))
        codes = {v.code for v in told(dict(e.data) for e in lines)}
        assert codes <= {f.code for f in check(lines).findings}, path.name
        said |= codes
    assert {"HKV704", "HKV303", "HKV603", "HKV305", "HKV601"} <= said


@pytest.mark.parametrize("seed", range(24))
def test_a_correct_engine_is_not_accused(seed: int) -> None:
    assert not told(correct_trace(seed, random_options(Random(seed))))


@pytest.mark.parametrize("seed", range(24))
def test_what_is_over_is_forgotten_and_nothing_is_accused_for_it(seed: int) -> None:
    rules = Rules(most_names=4)
    events = correct_trace(seed, random_options(Random(seed)))
    assert not told(events, rules)


def test_a_double_free_is_found_after_a_renewal() -> None:
    rules = Rules(most_names=4)
    story = [*BEGIN, alloc("held", 9), free("held", 9)]
    for i in range(40):
        story += [alloc(f"r{i}", 1), free(f"r{i}", 1), {"ev": "finish", "req": f"r{i}"}]
    found = told([*story, free("held", 9)], rules)
    assert rules.renewals
    assert [v.blocks for v in found] == [(9,)]


def test_pins_and_holders_outlive_a_renewal() -> None:
    rules = Rules(most_names=4)
    story = [
        *BEGIN, alloc("a", 1), {"ev": "pin", "pool": "gpu", "blocks": [1], "owner": "o"},
        *({"ev": "finish", "req": f"r{i}"} for i in range(20)),
        {"ev": "unpin", "pool": "gpu", "blocks": [1], "owner": "o"}, free("a", 1),
    ]  # fmt: skip
    assert not told(story, rules)
    assert rules.renewals


def test_content_that_nobody_tells_the_writes_of_is_not_judged() -> None:
    use: Data = {"ev": "use", "group": "full", "blocks": [1], "req": "a", "tokens": [0, 4]}
    assert not told([*BEGIN, alloc("a", 1), use])
    seen = [*BEGIN, alloc("b", 2), write("b", 0, 4, 2), alloc("a", 1), use]
    assert [v.code for v in told(seen)] == ["HKV101"]


def test_the_same_fault_is_said_once() -> None:
    use: Data = {"ev": "use", "group": "full", "blocks": [1], "req": "a", "tokens": [0, 4]}
    found = told([*BEGIN, alloc("a", 1, group="swa"), use, use, use])
    assert len(found) == 1


def test_evidence_that_is_not_there_is_no_fault() -> None:
    _, events = BROKEN["double free"]
    blind = [{"ev": "trace", "format": "hkv/1", "evidence": ["wire"]}, *BEGIN[1:], *events]
    assert not told(blind)


def test_a_guard_that_fails_turns_itself_off_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Failing(Rules):
        def judge(self, event: Any) -> Any:
            raise RuntimeError("a bug of ours")

    guard = Guard(Mode.RAISE, rules=Failing())
    guard.see(POOL)
    guard.see(POOL)
    assert guard.off == "RuntimeError: a bug of ours"
    assert len(caplog.records) == 1


def test_a_log_says_each_rule_a_few_times_and_counts_on(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard(Mode.LOG)
    for event in BEGIN:
        guard.see(event)
    for i in range(50):
        for event in (alloc(f"r{i}", 1), free(f"r{i}", 1), free(f"r{i}", 1)):
            guard.see(event)
    assert guard.count["HKV704"] == 50
    assert len(caplog.records) == 20
    assert caplog.records[0].levelno == logging.ERROR


def test_what_happens_in_answer_to_a_violation_is_not_judged() -> None:
    guard = Guard(Mode.LOG)
    answers: list[str] = []

    def answer(violation: Violation) -> None:
        answers.append(violation.code)
        guard.see(free("a", 1))

    guard.on_violation.append(answer)
    for event in [*BEGIN, alloc("a", 1), free("a", 1), free("a", 1)]:
        guard.see(event)
    assert answers == ["HKV704"]


def test_events_come_from_several_threads() -> None:
    guard = Guard(Mode.LOG)
    for event in BEGIN:
        guard.see(event)

    def work(block: int) -> None:
        for i in range(200):
            guard.see(alloc(f"{block}-{i}", block))
            guard.see(free(f"{block}-{i}", block))

    threads = [threading.Thread(target=work, args=(block,)) for block in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert guard.seen == len(BEGIN) + 1600
    assert not guard.count


def test_malformed_and_impossible_events_are_counted() -> None:
    guard = Guard(Mode.RAISE)
    for event in [*BEGIN, {"ev": "alloc"}, {"no": 1}, alloc("a", 99), alloc("a", 1, group="none")]:
        guard.see(event)
    assert guard.rules.refused == 4
    assert guard.off is None


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_nothing_is_guarded_unless_asked(value: str) -> None:
    assert Guard.asked_for({"HKV_GUARD": value}) is None
    assert Guard.asked_for({}) is None


def test_modes_are_named_in_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert Guard.asked_for({"HKV_GUARD": "Raise"}).mode is Mode.RAISE  # type: ignore[union-attr]
    assert Guard.asked_for({"HKV_GUARD": "log"}).mode is Mode.LOG  # type: ignore[union-attr]
    assert Guard.asked_for({"HKV_GUARD": "loud"}) is None
    assert "say log or raise" in capsys.readouterr().err


def test_an_event_is_stored_before_it_is_judged() -> None:
    stored: list[Data] = []
    guard = Guard(Mode.RAISE)
    emit = guard.guarding(stored.append)
    story = [*BEGIN, alloc("a", 1), free("a", 1), free("a", 1)]
    with pytest.raises(GuardError):
        for event in story:
            emit(event)
    assert stored == json.loads(json.dumps(story))
