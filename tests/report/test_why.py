"""`hkvtool why`: ten stories, each understood on one screen of 80 by 24."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.analyzers.verdict import Verdict, Why, why
from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.shipped import shipped
from hkvtool.report.why import SCREEN, why_lines

from . import told


def case(name: str, arm: str) -> list[Event]:
    with Path(str(shipped("cases", name, f"{arm}.jsonl"))).open("rb") as stream:
        return list(read_jsonl(stream))


STORIES: dict[str, tuple[Callable[[], list[Event]], str, Verdict, str | None]] = {
    "resumed-without-a-window": (told.bad, "r2", Verdict.RESUMED_WRONGLY, "HKV303"),
    "nothing-is-wrong": (told.good, "r2", Verdict.EXONERATED, None),
    "rightly-recomputed": (told.recomputed, "r2", Verdict.RECOMPUTED, None),
    "reused-what-was-computed-wrongly": (told.spread, "r3", Verdict.READ_WRONGLY, "HKV303"),
    "events-lost-that-it-rests-on": (lambda: told.loss("rests"), "r2", Verdict.INCONCLUSIVE, None),
    "events-lost-afterwards": (lambda: told.loss("after"), "r2", Verdict.EXONERATED, None),
    "stale-hash": (lambda: case("A22", "bad"), "r2", Verdict.RESUMED_WRONGLY, "HKV105"),
    "overwritten-by-a-load": (lambda: case("B13", "bad"), "rid-s", Verdict.READ_WRONGLY, "HKV703"),
    "scales-left-out": (lambda: case("E08", "bad"), "r2", Verdict.READ_WRONGLY, "HKV201"),
    "its-copy-is-bad": (lambda: case("B10", "bad"), "req-a", Verdict.EXONERATED, None),
    "one-group-hit-for-all": (lambda: case("A01", "bad"), "r2", Verdict.RESUMED_WRONGLY, "HKV102"),
    "checkpoint-elsewhere": (lambda: case("A05", "bad"), "r2", Verdict.RECOMPUTED, None),
}


def screen(found: Why, events: list[Event]) -> str:
    by_pos = {e.pos: e for e in events}
    lines = [line.text for line in why_lines(found, by_pos, 80, name="run.duckdb")]
    assert len(lines) <= SCREEN and max(map(len, lines)) <= 80
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_fits_one_screen(name: str, golden: Any) -> None:
    tell, request, verdict, code = STORIES[name]
    events = tell()
    found = why(events, request)
    assert found.verdict is verdict, found.sentence
    assert (found.finding and found.finding.code) == code
    golden(f"why-{name}.txt", screen(found, events))


def test_the_other_story_of_each_pair_differs() -> None:
    # The fixed twin of each wrong story is exonerated: a verdict is no matter of the name.
    for name in ("A22", "B13", "E08", "A01"):
        request = {"B13": "rid-s"}.get(name, "r2")
        found = why(case(name, "good"), request)
        assert found.verdict in (Verdict.EXONERATED, Verdict.RECOMPUTED), (name, found.sentence)


def test_what_a_wrong_read_spreads_to_is_named() -> None:
    events = told.spread()
    found = why(events, "r2")
    spread = found.spread
    assert spread is not None
    assert list(spread.readers) == ["r3"]
    assert [(c.pool, c.blocks) for c in spread.copies] == [("cpu", [4]), ("disk", [7])]
    assert spread.blocks == {("gpu", "gpu"): {5, 6}, ("cpu", "cpu"): {4}, ("disk", "disk"): {7}}
    assert set(spread.hashes) == {"c", "w-c"}
    assert why(events, "r1").verdict is Verdict.EXONERATED


def test_who_read_before_it_came_to_light_is_named() -> None:
    def printed(value: str, at: str) -> dict[str, Any]:
        return {"ev": "fingerprint", "group": "kv", "blocks": [1], "values": [value], "at": at}

    seen = [*told.HEAD[1:], *told.first()]
    head = {**told.HEAD[0], "evidence": ["host", "step", "bytes"]}
    data = [
        head, *seen, printed("aa", "publish"),
        *told.resumes("r2", 3, 40, 32, [1, 2], [3], hit={"kv": 32, "w": 32}),
        printed("bb", "use"),
        *told.resumes("r3", 4, 40, 32, [1, 2], [3], hit={"kv": 32, "w": 32}),
    ]  # fmt: skip
    events = [Event.of(n, dict(e)) for n, e in enumerate(data, 1)]
    for request in ("r2", "r3"):
        found = why(events, request)
        assert found.verdict is Verdict.READ_WRONGLY, found.sentence
        assert found.finding is not None and found.finding.code == "HKV906"
        assert found.spread is not None and list(found.spread.readers) == ["r2", "r3"]
    assert why(events, "r1").verdict is Verdict.EXONERATED


def test_provenance_of_each_reused_block() -> None:
    found = why(told.good(), "r2")
    said = [(s.group, s.block, s.tokens, s.writer, s.hash) for s in found.sources]
    assert said == [
        ("kv", 1, (0, 16), "r1", "a"),
        ("kv", 2, (16, 32), "r1", "b"),
        ("w", 3, (16, 32), "r1", "w-b"),
    ]


def test_reads_of_a_whole_batch_are_those_of_what_a_request_holds() -> None:
    batch = [
        Event.of(e.pos, {k: v for k, v in e.data.items() if e.ev != "use" or k != "req"})
        for e in told.good()
    ]
    named, found = why(told.good(), "r2"), why(batch, "r2")
    assert found.coverage == named.coverage and found.coverage.of_reads == 3
    assert [s.block for s in found.sources] == [s.block for s in named.sources]
    assert why(batch, "r1").coverage.of_reads == 0


def test_a_loss_before_everything_it_rests_on_does_not_matter() -> None:
    found = why(told.loss("before"), "r3")
    assert found.verdict is Verdict.EXONERATED and not found.lost


def test_coverage_falls_with_the_evidence() -> None:
    events = told.good()
    all_seen = dict(events[0].data)
    all_seen["evidence"] = ["host", "step", "stream", "layout", "map", "bytes", "key", "lease",
                            "graph", "wire"]  # fmt: skip
    full = why([Event.of(1, all_seen), *events[1:]], "r2").coverage
    some = why(events, "r2").coverage
    assert full.percent == 100 and not full.not_evaluable
    assert some.percent < 60 and "HKV705" in some.not_evaluable


def test_evidence_that_failed_on_the_way_lowers_the_coverage() -> None:
    events = told.good()
    at = next(i for i, e in enumerate(events) if e.ev == "use")
    less = Event.of(0, {"ev": "evidence", "evidence": ["host"]})
    cut = [*events[:at], less, *events[at:]]
    renumbered = [Event.of(n, dict(e.data)) for n, e in enumerate(cut, 1)]
    found = why(renumbered, "r2")
    assert found.coverage.percent < why(events, "r2").coverage.percent
    assert "HKV503" not in found.coverage.not_evaluable  # it bears on no bytes


def test_the_layers_say_who_was_stopped_and_who_should_have_been() -> None:
    stopped = why(told.recomputed(), "r2").attempts[0]
    missed = why(told.bad(), "r2").attempts[0]
    assert stopped.limiting is not None and stopped.limiting.group == "w"
    assert "x" in stopped.limiting.gone
    for attempt, word in ((stopped, "stopped"), (missed, "should have stopped")):
        by_group = {p.group: p.as_json()["layers"] for p in attempt.groups}
        assert by_group["kv"]["group intersection"] == "yes"
        assert by_group["w"]["group intersection"] == word


def test_every_request_of_every_case_fits(case: Any, read_events: Any) -> None:
    for path in case.arms:
        events = read_events(path)
        for request in dict.fromkeys(e.req for e in events if e.req is not None):
            found = why(events, request)
            screen(found, events)
            assert json.loads(json.dumps(found.as_json()))["verdict"] == found.verdict.value
            if path == case.good:
                wrong = (Verdict.RESUMED_WRONGLY, Verdict.READ_WRONGLY)
                assert found.verdict not in wrong, (request, found.sentence)
