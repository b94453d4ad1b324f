"""What a session records is judged where the environment asks for it, recorded or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.recording import Stage, read_recording, snapshots_of, stage_of
from hkvtool.recorder.guard import Guard, GuardError, Mode
from hkvtool.recorder.guarded import Guarded
from hkvtool.recorder.recording import Recording

PROGRAM = """
import json, sys
from hkvtool.recorder import guard_beside
from hkvtool.recorder.guard import GuardError
from hkvtool.recorder.session import follow

# However slow this machine is, what was told last is judged before it is over.
guard_beside.PATIENCE = 100

def start(recording):
    global R
    R = recording

R = None
follow(start, lambda recording: None)
if R is None:
    print(json.dumps(None))
    sys.exit()
R.emit("pool", pool="gpu", medium="gpu", blocks=4)
R.emit("group", group="g", form="compressed", pool="gpu", block_tokens=4)
alloc = R.emitter("alloc", ("req", "group", "blocks", "tokens"))
free = R.emitter("free", ("group", "blocks", "front"))
said = []
for call in (lambda: alloc("a", "g", [1], None), lambda: free("g", [1], None),
             lambda: free("g", [1], None)):
    try:
        said.append(call())
    except GuardError as e:
        said.append(e.violation.code)
print(json.dumps(said))
"""


def run(folder: Path, **env: str) -> tuple[Any, str]:
    """What the program says of its three events, and its stderr."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**kept, **env}, cwd=folder, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_nothing_is_there_unless_asked(tmp_path: Path) -> None:
    assert run(tmp_path) == (None, "")


def test_a_guard_alone_records_nothing(tmp_path: Path) -> None:
    said, _ = run(tmp_path, HKV_GUARD="raise")
    assert said == [True, True, "HKV704"]
    assert not list(tmp_path.iterdir())


def test_a_guard_that_logs_lets_go_on(tmp_path: Path) -> None:
    said, err = run(tmp_path, HKV_GUARD="log")
    assert said == [True, True, True]
    assert "HKV704 refcount: block 1 is released more often than it was taken" in err


@pytest.mark.parametrize("mode", ["log", "raise"])
def test_what_broke_is_recorded_and_the_rings_are_saved_then(mode: str, tmp_path: Path) -> None:
    folder = tmp_path / "r.hkv"
    said, _ = run(tmp_path, HKV_GUARD=mode, HKV_RECORD=str(folder))
    assert said == [True, True, "HKV704" if mode == "raise" else True]
    kinds = ["pool", "group", "alloc", "free", "free"]
    assert [e.ev for e in read_recording(folder)] == kinds
    (saved,) = snapshots_of(str(folder))
    assert "HKV704" in saved
    assert [e.ev for e in read_recording(folder / saved)] == kinds


WITHIN = """
import hkvtool
from hkvtool.recorder import guard_beside
from hkvtool.recorder.session import follow

guard_beside.PATIENCE = 100

with hkvtool.record("r.hkv") as recording:
    follow(lambda r: r.emit("pool", pool="gpu", medium="gpu", blocks=4), lambda r: None)
    recording.emit("alloc", pool="gpu", blocks=[1], owner="a")
    recording.emit("alloc", pool="gpu", blocks=[1], owner="b")
"""


def test_what_is_recorded_within_a_program_is_guarded_too(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHIN], env={**os.environ, "HKV_GUARD": "log"}, cwd=tmp_path,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "handed out while it is still referenced" in done.stderr
    assert [e.ev for e in read_recording(tmp_path / "r.hkv")] == ["pool", "alloc", "alloc"]
    assert stage_of(tmp_path / "r.hkv") is Stage.COMPLETE


def test_the_first_of_each_rule_is_saved_and_no_more(tmp_path: Path) -> None:
    made = Recording.start(tmp_path / "r.hkv")
    assert isinstance(made, Recording)
    both = Guarded(Guard(Mode.LOG), made)
    both.emit("pool", pool="gpu", medium="gpu", blocks=9)
    for block in range(5):
        both.emit("alloc", pool="gpu", blocks=[block], owner="a")
        both.emit("free", pool="gpu", blocks=[block], owner="a")
        both.emit("free", pool="gpu", blocks=[block], owner="a")
    both.close()
    assert len(snapshots_of(str(tmp_path / "r.hkv"))) == 1
    assert both.guard.count["HKV704"] == 5


def test_after_a_pause_it_begins_anew(tmp_path: Path) -> None:
    made = Recording.start(tmp_path / "r.hkv")
    assert isinstance(made, Recording)
    with Guarded(Guard(Mode.RAISE), made) as both:
        pool: dict[str, Any] = {"pool": "gpu", "medium": "gpu", "blocks": 9}
        both.emit("pool", **pool)
        both.emit("alloc", pool="gpu", blocks=[1], owner="a")
        both.pause()
        both.go_on()
        both.emit("pool", **pool)
        # It was freed meanwhile, and nobody said so.
        both.emit("alloc", pool="gpu", blocks=[1], owner="b")
        with pytest.raises(GuardError):
            both.emit("alloc", pool="gpu", blocks=[1], owner="c")
