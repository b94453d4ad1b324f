"""No room, no right, somebody else's files: a clear outcome, and the program is unharmed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.store import open_trace

PROGRAM = """
import os, resource, sys
folder, limit = sys.argv[1], int(sys.argv[2])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
from hkvtool.recorder.session import follow, session
stored = []
def start(recording):
    write = recording.emitter("write", ("step", "blocks"))
    stored.append(sum(write(n, [n]) for n in range(5000)))
follow(start, lambda recording: None)
print("result", sum(range(10)), stored)
"""
"""Records, and then does what it is there for."""


def run(folder: Path, limit: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(limit)],
        env={**os.environ, "HKV_RECORD": str(folder), **env}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_limit_on_file_sizes(tmp_path: Path) -> None:
    done = run(tmp_path / "t.hkv", 1 << 20)
    assert done.returncode == 0 and done.stdout == "result 45 []\n"
    assert "not recording" in done.stderr and "ulimit -f" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "place", ["/proc/t.hkv", "/sys/t.hkv", "/no/such/t.hkv", "/dev/null/t.hkv"]
)
def test_place_that_takes_nothing(place: str) -> None:
    done = run(Path(place))
    assert done.returncode == 0 and done.stdout == "result 45 []\n"
    assert f"not recording: cannot record to {place}" in done.stderr
    assert "Traceback" not in done.stderr


def test_rings_that_have_no_folder(tmp_path: Path) -> None:
    done = run(tmp_path / "t.hkv", HKV_RINGS="/no/such")
    assert done.returncode == 0 and "not recording" in done.stderr
    assert list(tmp_path.iterdir()) == []


SMALL = """
set -e
mount -t tmpfs -o size=3m tmpfs "$1"
"$2" -c "$3" "$1/t.hkv" 0
echo left: $(ls "$1")
"""


def test_full_tmpfs(tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("no file system can be mounted here")
    for ring, stored in (("16777216", []), ("1048576", [5000])):
        done = subprocess.run(
            ["unshare", "-Urm", "bash", "-c", SMALL, "-", str(tmp_path), sys.executable, PROGRAM],
            env={**os.environ, "HKV_RECORD": f"{tmp_path}/t.hkv", "HKV_RING_BYTES": ring},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"result 45 {stored}" in done.stdout
        assert ("No space left" in done.stderr) == (not stored)
        assert done.stdout.splitlines()[-1] == ("left: t.hkv" if stored else "left:")


def test_thread_for_which_there_is_no_room_later(tmp_path: Path) -> None:
    """The first ring had room, the next has none: that thread's events are counted."""
    done = subprocess.run(
        [sys.executable, "-c", """
import resource, sys, threading
from hkvtool.recorder.recording import Recording
recording = Recording.start(sys.argv[1], ring_bytes=1 << 20)
free = recording.emitter("free", ("blocks",))
assert free([1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
thread = threading.Thread(target=lambda: [free([n]) for n in range(7)])
thread.start(); thread.join()
assert free([2])
recording.close()
print(recording.off[0].what)
""", str(tmp_path / "t.hkv")], capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    with open_trace(tmp_path / "t.hkv") as trace:
        assert trace.kinds["free"] == 2 and trace.meta["dropped"] == 7


def damaged(folder: Path, chance: random.Random) -> None:
    """Some bytes of some file changed, or its end cut off."""
    file = chance.choice(sorted(f for f in folder.iterdir() if f.is_file()))
    data = bytearray(file.read_bytes())
    if not data:
        return
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    for _ in range(chance.randint(1, 4)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)
    file.write_bytes(data)


def mutate(tmp_path: Path, times: int, chance: random.Random) -> None:
    folder = tmp_path / "t.hkv"
    recording = Recording.start(folder, ring_bytes=1 << 13)
    assert isinstance(recording, Recording)
    sealer = Sealer(str(folder))
    free = recording.emitter("free", ("step", "blocks"))
    for n in range(150):
        free(n, list(range(n % 9)))
        if n in (50, 100):
            sealer.poll(last=True)
    sealer.close()
    recording.close()
    whole = {file: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    with open_trace(folder) as trace:
        assert trace.kinds["free"] == 150
    read = 0
    for _ in range(times):
        for file, data in whole.items():
            file.write_bytes(data)
        damaged(folder, chance)
        try:
            with open_trace(folder) as trace:
                assert trace.kinds["free"] <= 150
                read += trace.kinds["free"]
                assert trace.meta["dropped"] >= 0
        except HkvError:
            continue
    assert read > 75 * times, "most of what is whole is read"


def test_damaged_recordings_are_read_or_refused(tmp_path: Path) -> None:
    mutate(tmp_path, 100, random.Random(11))


@pytest.mark.soak
def test_ten_thousand_damaged_recordings(tmp_path: Path) -> None:
    mutate(tmp_path, 10_000, random.Random(12))


def test_sealer_of_a_folder_that_is_none(tmp_path: Path) -> None:
    for folder in ("/proc", "/no/such", str(tmp_path / "x")):
        with pytest.raises(HkvError):
            Sealer(folder)
