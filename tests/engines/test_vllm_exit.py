"""The end of an engine with processes of its own: recorded, it ends as it does by itself.

vLLM asks its engine core to end, which waits for its worker to end first. Each takes some two
seconds of CPU to take an interpreter with torch down, and after five seconds both are killed, by
the clock, recorded or not. What is compared here is the CPU that ending takes, and what is said.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of

HERE = Path(__file__).parent

PROGRAM = """
import os, resource, sys
from pathlib import Path
from engines.vllm_engine import generate, make_engine
from hkvtool.recorder.control import family

TICK = os.sysconf("SC_CLK_TCK")

def used(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK

def used_by_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

if __name__ == "__main__":
    import vllm.v1.engine.utils as utils
    end = utils.shutdown
    # On a busy machine five seconds of the clock are less than what ending takes.
    utils.shutdown = lambda processes, timeout=None: end(processes, 120.0)
    engine = make_engine(Path(sys.argv[1]), "gemma3")
    told = [generate(engine, [[(i * k) % 100 + 5 for i in range(100)] for k in (3, 5, 7)]) for _ in range(2)]
    before = used_by_children() + sum(used(pid) for pid in family(os.getpid())[1:])
    engine.llm_engine.engine_core.shutdown()
    print("ending took", used_by_children() - before)
    print("told", told, flush=True)
"""


class Run(NamedTuple):
    code: int
    seconds: float
    """CPU that the engine's own processes took to end."""
    told: str
    said: list[str]
    """What was logged of the end, without what differs from run to run."""


def run(folder: Path, **variables: str) -> Run:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    environment = {
        **os.environ, "PYTHONPATH": path, "VLLM_PLUGINS": "hkvtool", "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "60", **variables,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(program), str(folder)], env=environment, cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600,
    )  # fmt: skip
    took = re.search(r"^ending took (.*)$", done.stdout, re.M)
    told = re.search(r"^told .*$", done.stdout, re.M)
    assert took and told, done.stdout[-3000:]
    lines = [line for line in done.stdout.splitlines() if "shutdown]" in line or "hkvtool" in line]
    return Run(
        done.returncode, float(took[1]), told[0],
        sorted(re.sub(r"pid[= ]\d+|\d\d-\d\d \d\d:\d\d:\d\d", "", line) for line in lines),
    )  # fmt: skip


@pytest.mark.soak
def test_a_recorded_engine_ends_as_it_does_by_itself(tmp_path: Path) -> None:
    bare = run(tmp_path)
    folder = tmp_path / "t.hkv"
    recorded = run(tmp_path, HKV_RECORD=str(folder))
    assert (recorded.code, recorded.told, recorded.said) == (bare.code, bare.told, bare.said)
    assert not any("kill" in line for line in recorded.said)
    print(f"ending took {recorded.seconds:.2f} s of CPU, {bare.seconds:.2f} s by itself")
    assert recorded.seconds < 1.15 * bare.seconds + 0.2
    count = RecordingCount(stage_of(folder))
    finished = [e for e in read_recording(folder, count) if e.data["ev"] == "finish"]
    assert count.stage is Stage.COMPLETE and len(finished) == 6
