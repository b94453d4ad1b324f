"""The state folded from what was recorded is the engine's own, step after step."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engines.engine_state import Folded, differences
from engines.vllm_scheduler import (
    Drive,
    gemma_like,
    make_request,
    make_scheduler,
    qwen_next_like,
    random_load,
)
from hkvtool.engine.workload import read_workload
from hkvtool.model.shipped import shipped
from hkvtool.recorder.vllm.hooks import Hooks

KINDS: dict[str, dict[str, Any]] = {
    "windows": {"groups": gemma_like, "longest": 120, "output": 110},
    "recurrent": {
        "groups": qwen_next_like, "block": 64, "mamba": "align", "blocks": 80, "longest": 160, "output": 60,
    },
}  # fmt: skip


def run(
    folder: Path, recorded: tuple[Folded, Hooks], kind: str, overlapped: bool, steps: int, seed: int
) -> Counter[str]:
    folded, hooks = recorded
    options = dict(KINDS[kind])
    groups, longest, output = options.pop("groups")(), options.pop("longest"), options.pop("output")
    made = make_scheduler(folder, groups, overlapped=overlapped, events=True, **options)
    drive = Drive(made.scheduler, 2 if overlapped else 1)
    for step in random_load(drive, random.Random(seed), steps, longest=longest, output=output):
        found = list(differences(folded, hooks, made.scheduler))
        assert not found, (step, found[:5])
    drive.drain()
    assert not list(differences(folded, hooks, made.scheduler))
    assert not hooks.failed
    return Counter(event["ev"] for event in folded.events)


def unjustified(report: dict[str, Any]) -> list[Any]:
    return [f for f in report["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_random_load_folds_to_the_engine_s_state(
    tmp_path: Path, recorded: Any, findings: Any, kind: str, overlapped: bool
) -> None:
    seen = run(tmp_path, recorded, kind, overlapped, 520, 7)
    wanted = {
        "alloc",
        "free",
        "touch",
        "publish",
        "unpublish",
        "resume",
        "preempt",
        "abort",
        "finish",
        "reset",
    }
    assert wanted <= set(seen), wanted - set(seen)
    if kind == "windows":
        assert seen["slide"] > 100
    report = findings(recorded[0].events)
    assert unjustified(report) == []
    # The engine's own KV events are compared with what the hooks saw.
    assert seen["wire"] > 100
    assert not {"HKV105", "HKV702", "HKV902"} & {code["code"] for code in report["not_evaluable"]}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_long_random_load(
    tmp_path: Path, recorded: Any, findings: Any, kind: str, overlapped: bool, seed: int
) -> None:
    run(tmp_path, recorded, kind, overlapped, 4000, 100 + seed)
    assert unjustified(findings(recorded[0].events)) == []


def test_production_shaped_load(tmp_path: Path, recorded: Any, findings: Any) -> None:
    """500 requests of a real conversation trace, an eighth as long: shared prefixes as they were."""
    folded, hooks = recorded
    made = make_scheduler(
        tmp_path, gemma_like(), blocks=1500, budget=2048, seqs=24, length=8192, block=32
    )
    scheduler = made.scheduler
    drive = Drive(scheduler)
    path = Path(str(shipped("workloads"))) / "conversation_trace.jsonl.gz"
    waiting = list(read_workload(path, 500))[::-1]
    asked = 0
    while waiting or drive.busy:
        while waiting and len(scheduler.requests) < 30:
            one = waiting.pop()
            length = min(one.prompt // 8, 6000) + 1
            tokens = [
                one.content(min(i * 8, one.prompt - 1)) * 31 % 65_521 + i % 7 for i in range(length)
            ]
            asked += length
            scheduler.add_request(make_request(scheduler, one.id, tokens, 1 + one.output % 24))
        drive.step()
        found = list(differences(folded, hooks, scheduler))
        assert not found, (drive.steps, found[:5])
    seen = Counter(event["ev"] for event in folded.events)
    assert seen["finish"] == 500
    report = findings(folded.events)
    assert unjustified(report) == []
    # What the engine counts as asked and hit is what the trace says.
    assert report["ratios"]["asked"] >= asked
    resumed = sum(event["at"] for event in folded.events if event["ev"] == "resume")
    assert 0 < report["ratios"]["resumable"] == resumed


def test_a_kv_event_that_is_left_out_is_found(tmp_path: Path, recorded: Any, findings: Any) -> None:
    run(tmp_path, recorded, "windows", False, 120, 11)
    events = recorded[0].events
    live = {h for e in events if e["ev"] == "publish" for h in e["hashes"]}
    last = max(
        i for i, e in enumerate(events) if e["ev"] == "wire" and live & set(e.get("hashes", ()))
    )
    report = findings(events[:last] + events[last + 1 :])
    assert {f["code"] for f in unjustified(report)} >= {"HKV901"} or "HKV902" in str(
        report["findings"]
    )


def test_one_lost_event_is_seen(tmp_path: Path, recorded: Any) -> None:
    """The comparison is worth something: leave one event out and it fails."""
    folded, hooks = recorded
    made = make_scheduler(tmp_path, gemma_like())
    drive = Drive(made.scheduler)
    for _ in random_load(drive, random.Random(3), 120, longest=120, output=60):
        pass
    for kind in ("alloc", "touch", "free", "publish", "unpublish"):
        last = max((i for i, e in enumerate(folded.events) if e["ev"] == kind), default=None)
        assert last is not None, kind
        again = Folded()
        for event in folded.events[:last] + folded.events[last + 1 :]:
            again(event)
        assert list(differences(again, hooks, made.scheduler)), kind
