"""Several engines record to one folder: none is taken for another."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engines.one_of_two import TURNS
from hkvtool.analyzers.check import check
from hkvtool.model.event import Event
from hkvtool.model.recording import STEP_BITS, read_recording
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.vllm.attach import attach
from hkvtool.recorder.vllm.worker_hooks import process_is
from hkvtool.store.derive_reads import derive_reads

TESTS = Path(__file__).parents[1]


def config(instance: str, rank: int) -> Any:
    parallel = SimpleNamespace(data_parallel_index=rank, data_parallel_rank=0)
    return SimpleNamespace(instance_id=instance, parallel_config=parallel, kv_events_config=None)


def test_two_engines_beside_each_other(tmp_path: Path) -> None:
    made = Recording.start(tmp_path / "t.hkv")
    assert isinstance(made, Recording)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, sys.path)])}
    running = []
    for seed in ("1", "2"):
        own = tmp_path / seed
        own.mkdir()
        command = [sys.executable, "-m", "engines.one_of_two", made.folder, str(own), seed]
        running.append(
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True, env=environ, cwd=tmp_path,
            )
        )  # fmt: skip
    for process in running:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            pytest.fail(process.communicate()[1][-3000:])
    for _ in range(TURNS):
        for process in running:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("go on\n")
            process.stdin.flush()
            process.stdout.readline()
    for process in running:
        errors = process.communicate()[1]
        assert process.returncode == 0, errors[-3000:]
    made.close()
    events = list(read_recording(made.folder))
    assert {e["pool"] for e in events if e.ev == "pool"} == {"gpu", "gpu@e2"}
    # Unless one runs between steps of the other this shows nothing.
    whose = [int(e["step"]) >> STEP_BITS for e in events if e.ev == "dispatch"]
    assert sum(a != b for a, b in pairwise(whose)) >= TURNS
    report = check(derive_reads(events)).as_json()
    assert not [f for f in report["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize(
    ("instances", "names"),
    [
        ((("a", 0), ("a", 1)), ["gpu", "gpu@dp1"]),
        ((("a", 0), ("b", 0)), ["gpu", "gpu@e2"]),
        ((("a", 1), ("b", 1)), ["gpu@dp1", "gpu@e2@dp1"]),
        ((("a", 0), ("a_dp1", 1)), ["gpu", "gpu@dp1"]),
        ((("", 0), ("", 1)), ["gpu", "gpu@dp1"]),
    ],
)
def test_what_the_engines_of_a_recording_are_called(
    tmp_path: Path, instances: tuple[tuple[str, int], ...], names: list[str]
) -> None:
    """A worker is of the engine whose config it was given, whichever process it is."""
    made = Recording.start(tmp_path / "t.hkv")
    assert isinstance(made, Recording)
    told = []
    with made:
        for instance, rank in instances:
            core, worker = (
                attach(lambda event: None, number_of=made.engine_number) for _ in range(2)
            )
            for hooks in (core, worker):
                process_is(hooks, config(instance, rank))
                process_is(hooks, config("of another of its engines", 5))
            assert (core.rank, core.first_step) == (worker.rank, worker.first_step)
            told.append((f"gpu{core.rank}", core.first_step, core.next_tables(1)))
            for hooks in (worker, core):
                hooks.remove()
    assert [name for name, _, _ in told] == names
    assert len({step for _, step, _ in told}) == len({table for *_, table in told}) == 2


def test_a_step_goes_on_with_the_last_one_of_its_engine() -> None:
    first = {"ev": "dispatch", "starts": [0], "counts": [3]}
    events = [
        {**first, "step": 1, "reqs": ["a"]}, {**first, "step": (1 << 40) + 1, "reqs": ["b"]},
        {"ev": "dispatch", "step": 2}, {"ev": "dispatch", "step": (1 << 40) + 2},
    ]  # fmt: skip
    told = derive_reads(Event.of(i, e) for i, e in enumerate(events, 1))
    assert [e["reqs"] for e in told] == [["a"], ["b"], ["a"], ["b"]]
