"""A whole engine, in processes of its own, killed in the middle: what it recorded is a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of
from hkvtool.recorder.control import family

HERE = Path(__file__).parent

PROGRAM = """
import sys
from pathlib import Path
from random import Random
from engines.vllm_engine import generate, make_engine
if __name__ == "__main__":
    engine = make_engine(Path(sys.argv[1]), "gemma3")
    chance = Random(1)
    base = [chance.randrange(5, 120) for _ in range(160)]
    for n in range(10_000):
        rest = [chance.randrange(5, 120) for _ in range(20)]
        generate(engine, [base[: chance.choice([64, 96, 160])] + rest for _ in range(4)])
        print("round", n, flush=True)
"""


@pytest.mark.soak
def test_every_process_killed_at_once(tmp_path: Path, findings: Any) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    folder = tmp_path / "t.hkv"
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    environment = {
        **os.environ, "PYTHONPATH": path, "HKV_RECORD": str(folder), "VLLM_PLUGINS": "hkvtool",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    }  # fmt: skip
    running = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)], env=environment, cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert running.stdout is not None
    pids: list[int] = []
    try:
        rounds = 0
        for line in running.stdout:
            rounds += line.startswith("round")
            if rounds == 20:
                break
        assert rounds == 20, "it did not get so far"
    finally:
        pids = family(running.pid)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        running.wait()
    assert len(pids) >= 2, "the engine has a process of its own"
    end = time.monotonic() + 300
    while stage_of(folder) is Stage.RECORDING and time.monotonic() < end:
        time.sleep(0.1)
    count = RecordingCount(stage_of(folder))
    events = [dict(event.data) for event in read_recording(folder, count)]
    assert count.stage is Stage.DIED
    assert (count.rings.dropped, count.rings.torn, count.unreadable) == (0, 0, {})
    finished = [event for event in events if event["ev"] == "finish"]
    assert len(finished) >= 4 * 20, "what had ended before is there"
    errors = [f for f in findings(events)["findings"] if f["severity"] == "error"]
    assert errors == []
