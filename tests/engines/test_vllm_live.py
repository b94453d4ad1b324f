"""An engine that is followed while it runs: what is read bit by bit is what is read at the end."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from engines.served import PATIENCE, end
from hkvtool.analyzers.check import Check
from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event
from hkvtool.model.evidence import Evidence
from hkvtool.model.recording import Stage, read_recording
from hkvtool.model.recording_tail import BEHIND_NS, RecordingTail
from hkvtool.store.derive_reads import Deriving, derive_reads

HERE = Path(__file__).parent

ROUNDS = 12

PROGRAM = """
import os, sys
from pathlib import Path
from random import Random
from engines.vllm_engine import generate, make_engine

def idle():
    os.write(int(sys.argv[3]), b".")
    sys.stdin.readline()

if __name__ == "__main__":
    engine = make_engine(Path(sys.argv[1]), "gemma3")
    chance = Random(1)
    base = [chance.randrange(5, 120) for _ in range(160)]
    for n in range(int(sys.argv[2])):
        idle()
        rest = [chance.randrange(5, 120) for _ in range(20)]
        generate(engine, [base[: chance.choice([64, 96, 160])] + rest for _ in range(3)])
    idle()
"""


def no_segments(*_: Any) -> Any:
    raise AssertionError("nobody seals this")


class Tail(RecordingTail):
    """Reads all the time, and gives what was recorded up to a moment when the engine was idle. Of
    processes at work one may be interrupted between an event and telling of it, for any time, and
    then what it tells has a place behind what others tell."""

    idle = 0

    def _merged(self, now: int | None) -> Any:
        return super()._merged(None if now is None else self.idle + BEHIND_NS)


def test_followed_while_it_runs(tmp_path: Path) -> None:
    program, folder = tmp_path / "program.py", tmp_path / "t.hkv"
    program.write_text(PROGRAM)
    path = os.pathsep.join([str(HERE.parent), *filter(None, sys.path)])
    # Not by its output, where the engine may say something too.
    told, tells = os.pipe()
    running = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path), str(ROUNDS), str(tells)], cwd=tmp_path,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        pass_fds=[tells], start_new_session=True,
        env={**os.environ, "PYTHONPATH": path, "HKV_RECORD": str(folder),
             "VLLM_PLUGINS": "hkvtool", "VLLM_ENABLE_V1_MULTIPROCESSING": "1"},
    )  # fmt: skip
    os.close(tells)
    assert running.stdin is not None
    try:
        assert os.read(told, 1) == b"."
        tail, deriving, seen = Tail(folder, no_segments), Deriving(), Evidence()
        events: list[Event] = []
        judge: Check | None = None

        def read() -> None:
            nonlocal judge
            found = [e for raw in tail.more(4096) for e in deriving.of(raw)]
            for event in found:
                seen.see(event)
                judge = judge or Check(Context(seen))
                judge.count += 1
                judge.event(event)
            events.extend(found)

        for number in range(ROUNDS + 1):
            # What is told to be over is recorded.
            tail.idle = time.monotonic_ns()
            read()
            assert sum(e.ev == "finish" for e in events) == 3 * number
            assert tail.count.stage is Stage.RECORDING and not tail.waiting
            running.stdin.write(b"go on\n")
            running.stdin.flush()
            while number < ROUNDS and not select.select([told], [], [], 0.05)[0]:
                read()
            assert number == ROUNDS or os.read(told, 1) == b"."
        assert running.wait(PATIENCE) == 0
        read()
        assert tail.count.stage is Stage.COMPLETE and not tail.waiting
    finally:
        os.close(told)
        end(running)
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
