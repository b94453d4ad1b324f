"""SIGKILL of the program, of its sealer, or of both, at any moment: every event whose emit had
returned is in the recording, once."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hkvtool.model.recording import RecordingCount, read_recording, stage_of
from hkvtool.store.segments import segment_rows

ENGINE = """
import os, struct, sys
from hkvtool.recorder.recording import Recording
folder, out = sys.argv[1], int(sys.argv[2])
recording = Recording.start(folder, ring_bytes=1 << 18)
write = recording.emitter("write", ("step", "group", "blocks"))
os.write(out, struct.pack("=q", -1))
n = 0
while True:
    blocks = list(range(n % 40))
    stored = write(n, "kv", blocks) if n % 4 else recording.emit("write", step=n, blocks=blocks)
    if stored:
        os.write(out, struct.pack("=q", n))
    n += 1
"""
"""Emits numbered events and tells which of them came back as stored."""

SEALERS = """
import os, sys
import pyarrow.parquet
from hkvtool.recorder.sealer import Sealer
for line in sys.stdin:
    folder, once = line.split()
    pid = os.fork()
    if not pid:
        sealer = Sealer(folder, filled=0.1)
        while once == "-":
            sealer.poll()
        sealer.poll(last=True)
        os._exit(0)
    print(pid, flush=True)
    if once == "once":
        print(os.waitpid(pid, 0)[1], flush=True)
"""
"""Starts a sealer for each folder it is told of: loading pyarrow takes longer than all the rest."""


class Sealers:
    """Processes that seal, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", SEALERS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: Path, how: str = "-") -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{folder} {how}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def finish(self, folder: Path) -> None:
        assert self._process.stdout is not None
        self.start(folder, "once")
        assert self._process.stdout.readline() == "0\n"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def sealers() -> Iterator[Sealers]:
    made = Sealers()
    yield made
    made.end()


def killed(folder: Path, sealers: Sealers, victims: str, chance: random.Random) -> list[int]:
    """Numbers that the program told were stored, before it was killed."""
    read_end, write_end = os.pipe()
    program = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(folder), str(write_end)], pass_fds=[write_end]
    )
    os.close(write_end)
    sealer = -1
    try:
        assert os.read(read_end, 8) == struct.pack("=q", -1), "it did not start"
        os.set_blocking(read_end, False)
        told, end = bytearray(), time.monotonic() + 30
        sealer = sealers.start(folder)
        while time.monotonic() < end:
            if end - time.monotonic() > 1 and any(folder.glob("seg-*")):
                # Sealing is under way: any moment from here on.
                end = time.monotonic() + chance.uniform(0, 0.3)
            try:
                told += os.read(read_end, 1 << 16)
            except BlockingIOError:
                time.sleep(0.001)
        for victim in victims.split():
            if victim == "sealer":
                os.kill(sealer, signal.SIGKILL)
                time.sleep(chance.choice([0, 0.02]))
            else:
                program.kill()
                program.wait()
                time.sleep(chance.choice([0, 0.02]))
        program.kill()
        program.wait()
        os.set_blocking(read_end, True)
        while rest := os.read(read_end, 1 << 16):
            told += rest
    finally:
        program.kill()
        program.wait()
        os.close(read_end)
        if sealer > 0:
            os.kill(sealer, signal.SIGKILL)
    return [n for (n,) in struct.iter_unpack("=q", told[: len(told) // 8 * 8])]


def check(folder: Path, told: list[int]) -> RecordingCount:
    count = RecordingCount(stage_of(folder))
    events = [e for e in read_recording(folder, count, segment_rows) if e.ev == "write"]
    found = [e["step"] for e in events]
    assert found == sorted(set(found)), "an event is told twice, or out of order"
    assert all(e["blocks"] == list(range(e["step"] % 40)) for e in events)
    missing = set(told) - set(found)
    assert not missing, f"{len(missing)} lost, {sorted(missing)[:5]}"
    assert len(found) - len(told) <= 1, "at most one event was stored and not yet told"
    assert not count.unreadable and count.rings.torn == 0
    return count


def runs(tmp_path: Path, sealers: Sealers, victims: str, times: int, seed: int) -> None:
    chance = random.Random(f"{victims} {seed}")
    sealed = 0
    for run in range(times):
        folder = tmp_path / f"{run}.hkv"
        told = killed(folder, sealers, victims, chance)
        before = check(folder, told)
        # Another sealer finishes what the dead have left, and nothing changes by that.
        sealers.finish(folder)
        after = check(folder, told)
        assert before.rings == after.rings
        assert not list(folder.glob("*.ring")), "nobody holds a ring any more"
        sealed += len(list(folder.glob("*.parquet")))
    assert sealed >= times, "not even once a run was anything sealed"


VICTIMS = ["engine", "sealer", "sealer engine", "engine sealer"]


@pytest.mark.parametrize("victims", VICTIMS)
def test_killed_five_times(tmp_path: Path, sealers: Sealers, victims: str) -> None:
    runs(tmp_path, sealers, victims, 5, 1)


@pytest.mark.soak
@pytest.mark.parametrize("victims", VICTIMS)
def test_killed_fifty_times(tmp_path: Path, sealers: Sealers, victims: str) -> None:
    runs(tmp_path, sealers, victims, 50, 2)
