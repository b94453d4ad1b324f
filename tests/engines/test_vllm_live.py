"""An engine that is followed while it runs: what is read bit by bit is what is read at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hkvtool.analyzers.check import Check
from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.recording import Stage, is_recording, read_recording
from hkvtool.model.recording_tail import RecordingTail
from hkvtool.store.derive_reads import Deriving, derive_reads

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
    for n in range(12):
        rest = [chance.randrange(5, 120) for _ in range(20)]
        generate(engine, [base[: chance.choice([64, 96, 160])] + rest for _ in range(3)])
"""


def no_segments(*_: Any) -> Any:
    raise AssertionError("nobody seals this")


def test_followed_while_it_runs(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "t.hkv"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    running = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)], cwd=tmp_path, stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path, "HKV_RECORD": str(folder),
             "VLLM_PLUGINS": "hkvtool", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )  # fmt: skip
    try:
        end = time.monotonic() + 300
        while not is_recording(folder) and running.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        tail, deriving, seen = RecordingTail(folder, no_segments), Deriving(), Evidence()
        events: list[Event] = []
        judge: Check | None = None
        grown = 0
        while time.monotonic() < end:
            found = [e for raw in tail.more(4096) for e in deriving.of(raw)]
            for event in found:
                seen.see(event)
                judge = judge or Check(Context(seen))
                judge.count += 1
                judge.event(event)
            events += found
            running_still = tail.count.stage is Stage.RECORDING
            grown += bool(found) and running_still
            if not running_still and not tail.waiting:
                break
            time.sleep(0.1)
        assert running.wait(60) == 0
    finally:
        running.kill()
    assert grown > 1, "it was followed, not read at its end"
    whole = list(derive_reads(read_recording(folder)))
    assert _told(events) == _told(whole)
    assert len(events) > 1000 and not tail.count.rings.dropped and not tail.count.unreadable
    assert judge is not None
    report = judge.report()
    assert not [f for f in report.findings if f.severity.value == "error"]
    assert report.ratios.matched > 0


def _told(events: list[Event]) -> list[tuple[int, dict[str, object]]]:
    """But for how a recording's clock goes, which is told once it has ended."""
    return [(e.pos, {k: v for k, v in e.data.items() if k != "clock"}) for e in events]
