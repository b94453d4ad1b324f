"""A flight recorder on a real engine: its beginning is overwritten, and what is left is a trace."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engines.engine_state import Folded, differences
from engines.vllm_scheduler import Drive, gemma_like, make_scheduler, qwen_next_like, random_load
from hkvtool.model.event import Event
from hkvtool.model.events import DECLARATIONS
from hkvtool.model.recording import RecordingCount, Stage, read_recording
from hkvtool.model.ring_format import Policy
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.vllm import plugin
from hkvtool.recorder.vllm.attach import attach
from hkvtool.recorder.vllm.hooks import Hooks
from hkvtool.store.derive_reads import derive_reads
from hkvtool.store.rounds import Rounds

KINDS: dict[str, dict[str, Any]] = {
    "windows": {"groups": gemma_like, "longest": 120, "output": 110},
    "recurrent": {
        "groups": qwen_next_like, "block": 64, "mamba": "align", "blocks": 80, "longest": 160, "output": 60,
    },
}  # fmt: skip


def made_for(folder: Path, kind: str, overlapped: bool) -> tuple[Any, Drive, dict[str, int]]:
    options = dict(KINDS[kind])
    groups, longest, output = options.pop("groups")(), options.pop("longest"), options.pop("output")
    made = make_scheduler(folder, groups, overlapped=overlapped, **options)
    drive = Drive(made.scheduler, 2 if overlapped else 1)
    return made.scheduler, drive, {"longest": longest, "output": output}


class FromTheMiddle(Folded):
    """Folds what a reader has of a recording whose beginning is gone: what was declared, and all
    from some moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False
        self.since: set[str] = set()
        """Requests that were admitted since."""
        self.rounds = Rounds()
        self.told: list[dict[str, Any]] = []

    def __call__(self, data: dict[str, Any]) -> None:
        if not self.begun and data["ev"] not in DECLARATIONS:
            return
        self.told.append(data)
        if self.rounds.needs(Event.of(len(self.told), data)):
            if data["ev"] == "admit":
                self.since.add(data["req"])
            super().__call__(data)

    def knows(self, hooks: Hooks, scheduler: Any) -> bool:
        """Whether a whole round has been told of an engine."""
        return self.rounds.knows(hooks.pool(scheduler.kv_cache_manager.block_pool).name)

    def wrong(self, hooks: Hooks, scheduler: Any) -> list[str]:
        """Where the folded state is not the engine's; what requests from before hold is told only
        as far as steps read it."""
        found = []
        for one in differences(self, hooks, scheduler):
            words = one.split()
            of_request = one.startswith("table of") or "only in the folded state" in one
            name = words[2] if one.startswith("table of") else words[0]
            if not of_request or name in self.since:
                found.append(one)
        return found


@pytest.mark.parametrize("overlapped", [False, True], ids=["in turn", "overlapped"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_from_the_first_round_on_it_folds_to_the_engine_s_state(
    tmp_path: Path, findings: Any, kind: str, overlapped: bool
) -> None:
    folded = FromTheMiddle()
    hooks = attach(folded, turns=lambda: 0.0)
    compared = 0
    try:
        scheduler, drive, load = made_for(tmp_path, kind, overlapped)
        for step in random_load(drive, random.Random(21), 500, **load):
            if step == 200:
                folded.begun = True
            if folded.begun and folded.knows(hooks, scheduler):
                wrong = folded.wrong(hooks, scheduler)
                assert not wrong, (step, wrong[:5])
                compared += 1
        drive.drain()
        assert not folded.wrong(hooks, scheduler) and not hooks.failed
    finally:
        hooks.remove()
    assert compared > 200
    report = findings(folded.told)
    assert [f for f in report["findings"] if f["severity"] == "error"] == []
    assert report["ratios"]["asked"] > 0


@pytest.mark.parametrize("ring_bytes", [1 << 17, 204_800, 221_184])
def test_what_a_ring_still_holds_is_such_a_trace(
    tmp_path: Path, findings: Any, ring_bytes: int
) -> None:
    place = tmp_path / "t.hkv"
    recording = Recording.start(place, policy=Policy.OVERWRITE, ring_bytes=ring_bytes)
    assert isinstance(recording, Recording)
    plugin.start(recording)
    try:
        scheduler, drive, load = made_for(tmp_path, "windows", False)
        for _ in random_load(drive, random.Random(21), 900, **load):
            pass
        hooks = plugin._begun[0]._hooks
        assert hooks is not None and not hooks.failed
        count = RecordingCount(Stage.RECORDING)
        events = [dict(event.data) for event in read_recording(place, count)]
        folded = FromTheMiddle()
        folded.begun = True
        for event in events:
            folded(event)
        assert folded.knows(hooks, scheduler) and not folded.wrong(hooks, scheduler)
    finally:
        plugin.stop(recording)
        recording.close()
    assert count.rings.vanished > 1000 and count.rings.dropped == 0
    report = findings(events)
    # Neither a fault, nor that events were lost.
    assert {f["code"] for f in report["findings"]} <= {"HKV308"}
    assert any(
        e["ev"] == "use"
        for e in (x.data for x in derive_reads(Event.of(i, d) for i, d in enumerate(events, 1)))
    )


def test_one_that_has_lost_nothing_is_read_as_any_other(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    plain: list[dict[str, Any]] = []
    for turns, into in ((lambda: 0.0, told), (None, plain)):
        hooks = attach(into.append, turns=turns)
        try:
            folder = tmp_path / str(turns is None)
            folder.mkdir()
            _, drive, load = made_for(folder, "windows", False)
            for _ in random_load(drive, random.Random(3), 120, **load):
                pass
        finally:
            hooks.remove()
    assert sum(e["ev"] == "state" for e in told) > 3 and not any(e["ev"] == "state" for e in plain)
    read = [dict(e.data) for e in derive_reads(Event.of(i, d) for i, d in enumerate(told, 1))]
    as_any = [dict(e.data) for e in derive_reads(Event.of(i, d) for i, d in enumerate(plain, 1))]
    differs = ("tables", "reqs", "starts", "counts", "rolling", "hashes", "ts", "seq")
    assert [{k: v for k, v in e.items() if k not in differs} for e in read] == [
        {k: v for k, v in e.items() if k not in differs} for e in as_any
    ]


PROGRAM = """
import sys
from pathlib import Path
from random import Random
from engines.vllm_engine import generate, make_engine
if __name__ == "__main__":
    engine = make_engine(Path(sys.argv[1]), "gemma3")
    chance = Random(1)
    base = [chance.randrange(5, 120) for _ in range(160)]
    for n in range(60):
        rest = [chance.randrange(5, 120) for _ in range(20)]
        generate(engine, [base[: chance.choice([64, 96, 160])] + rest for _ in range(4)])
"""


@pytest.mark.soak
def test_a_whole_engine_with_processes_of_its_own(tmp_path: Path, findings: Any) -> None:
    program, place = tmp_path / "program.py", tmp_path / "t.hkv"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    subprocess.run(
        [sys.executable, str(program), str(tmp_path)], cwd=tmp_path, check=True, timeout=600,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={
            **os.environ, "PYTHONPATH": path, "HKV_RECORD": str(place), "VLLM_PLUGINS": "hkvtool",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "HKV_POLICY": "overwrite",
            "HKV_RING_BYTES": str(1 << 17),
        },
    )  # fmt: skip
    count = RecordingCount(Stage.COMPLETE)
    events = [dict(event.data) for event in read_recording(place, count)]
    assert count.rings.vanished > 1000 and count.rings.dropped == 0
    report = findings(events)
    assert {f["code"] for f in report["findings"]} <= {"HKV308"}
    assert report["ratios"]["resumable"] > 0
