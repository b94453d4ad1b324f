"""SIGKILL at any moment: every event whose `emit` had returned is read back."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of

PROGRAM = """
import os, struct, sys
from hkvtool.model.ring_format import Policy
from hkvtool.recorder.recording import Recording
folder, policy, out = sys.argv[1], Policy(int(sys.argv[2])), int(sys.argv[3])
recording = Recording.start(folder, policy=policy, ring_bytes=1 << 18)
os.write(out, struct.pack("=q", -1))
n = 0
while True:
    stored = recording.emit("alloc", req=f"r{n}", group="kv", blocks=list(range(n % 40)), n=n)
    if stored:
        os.write(out, struct.pack("=q", n))
    n += 1
"""
"""Emits numbered events and tells which of them came back from `emit` as stored."""


def killed(folder: Path, policy: int, delay: float) -> list[int]:
    """Numbers that the program reported before it was killed."""
    read_end, write_end = os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(folder), str(policy), str(write_end)],
        pass_fds=[write_end],
    )
    os.close(write_end)
    try:
        assert os.read(read_end, 8) == struct.pack("=q", -1), "it did not start"
        os.set_blocking(read_end, False)
        told, end = bytearray(), time.monotonic() + delay
        while time.monotonic() < end:
            try:
                told += os.read(read_end, 1 << 16)
            except BlockingIOError:
                time.sleep(0)
        program.send_signal(signal.SIGKILL)
        program.wait()
        os.set_blocking(read_end, True)
        while rest := os.read(read_end, 1 << 16):
            told += rest
    finally:
        program.kill()
        program.wait()
        os.close(read_end)
    return [n for (n,) in struct.iter_unpack("=q", told[: len(told) // 8 * 8])]


def check(folder: Path, policy: int, chance: random.Random) -> None:
    told = killed(folder, policy, chance.uniform(0, 0.25))
    count = RecordingCount(stage_of(folder))
    assert count.stage is Stage.DIED
    events = [e for e in read_recording(folder, count) if e.ev == "alloc"]
    found = [e["n"] for e in events]
    assert found == sorted(set(found))
    for e in events:
        assert e["blocks"] == list(range(e["n"] % 40)) and e["req"] == f"r{e['n']}"
    if policy == 1 and found:
        # The oldest have gone, as agreed; what is left has no hole.
        told = [n for n in told if n >= found[0]]
    assert set(told) <= set(found), sorted(set(told) - set(found))[:5]
    assert len(found) - len(told) <= 1, "at most one event was stored and not yet told"
    assert count.rings.torn == 0
    assert count.rings.stored + count.rings.dropped + count.rings.vanished >= len(told)


@pytest.mark.parametrize("policy", [0, 1, 2], ids=["drop", "overwrite", "grow"])
def test_killed_recording_has_every_event_that_was_emitted(tmp_path: Path, policy: int) -> None:
    chance = random.Random(policy)
    for run in range(2):
        check(tmp_path / f"{run}.hkv", policy, chance)


@pytest.mark.soak
@pytest.mark.parametrize("policy", [0, 1, 2], ids=["drop", "overwrite", "grow"])
def test_killed_forty_times(tmp_path: Path, policy: int) -> None:
    chance = random.Random(100 + policy)
    for run in range(40):
        check(tmp_path / f"{run}.hkv", policy, chance)
