"""`hkvtool record`, `attach`, `detach`, `snapshot` and `seal`, as a person uses them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.amounts import seconds, shown_bytes, size
from hkvtool.cli.status_line import line
from hkvtool.model.errors import HkvError
from hkvtool.recorder.sealing import Status

ENGINE = """
import sys, time
from hkvtool.recorder.session import follow
alloc = None
def start(recording):
    global alloc
    recording.emit("trace", format="hkv/1", engine="toy", evidence=["host"])
    recording.emit("pool", pool="gpu", medium="gpu", blocks=64)
    recording.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=16)
    alloc = recording.emitter("alloc", ("req", "group", "blocks"))
def stop(recording):
    global alloc
    alloc = None
follow(start, stop)
times, code, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
try:
    for n in range(times):
        if alloc:
            alloc(f"r{n}", "kv", [1 + n % 60])
        if pause:
            time.sleep(pause)
        if n == 5:
            print("under way", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
sys.exit(code)
"""


def engine(times: int, code: int = 0, pause: float = 0) -> list[str]:
    return [sys.executable, "-c", ENGINE, str(times), str(code), str(pause)]


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)


def facts(hkvtool: Any, trace: Path) -> dict[str, Any]:
    outcome = hkvtool("info", str(trace), "--format", "json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def begun(process: Any, *args: str, **env: str) -> subprocess.Popen[bytes]:
    """A recording whose engine is under way."""
    running: subprocess.Popen[bytes] = process("record", *args, **env)
    assert running.stdout is not None
    assert running.stdout.readline() == b"under way\n"
    return running


def test_trace_and_exit_code(process: Any, hkvtool: Any, tmp_path: Path) -> None:
    running = process("record", "-o", "t.duckdb", "--", *engine(5000, 9))
    out, err = running.communicate(timeout=120)
    assert running.returncode == 9 and out == b"under way\n"
    assert b"a busy engine" in err and b"5,003 events in" in err and b"0 dropped" in err
    assert [f.name for f in tmp_path.iterdir()] == ["t.duckdb"]
    assert facts(hkvtool, tmp_path / "t.duckdb")["kinds"]["alloc"] == 5000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 3), (signal.SIGTERM, 143)])
def test_signals_reach_the_program_and_the_trace_is_made(
    process: Any, hkvtool: Any, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    running = begun(process, "-o", "t.duckdb", "--", *engine(10**6, 0, 0.001))
    running.send_signal(number)
    out, err = running.communicate(timeout=120)
    assert running.returncode == code, err
    assert out == (b"interrupted\n" if number == signal.SIGINT else b"")
    assert [f.name for f in tmp_path.iterdir()] == ["t.duckdb"]
    assert facts(hkvtool, tmp_path / "t.duckdb")["events"] > 5


def test_sealed_recording_is_left_where_one_is_asked_for(
    process: Any, hkvtool: Any, tmp_path: Path
) -> None:
    running = process("record", "-o", "t.hkv", "--", *engine(3000))
    assert running.communicate(timeout=120) and running.returncode == 0
    assert {f.suffix for f in (tmp_path / "t.hkv").iterdir()} == {
        "",
        ".parquet",
        ".jsonl",
        ".json",
        ".lock",
    }
    assert facts(hkvtool, tmp_path / "t.hkv")["events"] == 3003
    assert hkvtool("ingest", str(tmp_path / "t.hkv")).code == 0
    assert hkvtool("check", str(tmp_path / "t.duckdb")).code in (0, 1)


def test_program_that_records_nothing(process: Any, tmp_path: Path) -> None:
    running = process("record", "-o", "t.duckdb", "--", sys.executable, "-c", "print(7)")
    out, err = running.communicate(timeout=120)
    assert running.returncode == 3 and out == b"7\n"
    assert b"nothing was recorded" in err and b"hkvtool doctor" in err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_recorded_is_refused_before_anything_starts(
    hkvtool: Any, tmp_path: Path
) -> None:
    (tmp_path / "there.duckdb").write_text("mine")
    touch = ["--", "touch", str(tmp_path / "started")]
    for args, said in (
        (["-o", str(tmp_path / "there.duckdb")], "exists already"),
        (["-o", str(tmp_path / "no/t.duckdb")], "there is no such folder"),
        (["-o", str(tmp_path / "t.txt")], "no trace is called so"),
        (["-o", str(tmp_path / "t.duckdb"), "--policy", "stall"], "no policy 'stall'"),
        (["-o", str(tmp_path / "t.duckdb"), "--policy", "grow"], "an engine must not"),
        (["-o", str(tmp_path / "t.duckdb"), "--ring-memory", "1M"], "less than the ring of one"),
        (["-o", str(tmp_path / "t.duckdb"), "--keep", "soon"], "not a time"),
        (["-o", str(tmp_path / "t.duckdb"), "--max-size", "-3"], "not a size"),
        (["-o", str(tmp_path / "t.duckdb"), "--hash-key", "/none"], ""),
        (["-o", "/proc/t.duckdb"], "/proc/t"),
    ):
        outcome = hkvtool("record", *args, *touch)
        assert outcome.code == 2 and said in outcome.err, (args, outcome.err)
    assert [f.name for f in tmp_path.iterdir()] == ["there.duckdb"]
    outcome = hkvtool("record", "-o", str(tmp_path / "t.duckdb"), "--", "/no/such/program")
    assert outcome.code == 2 and "cannot start /no/such/program" in outcome.err
    assert [f.name for f in tmp_path.iterdir()] == ["there.duckdb"]


def test_duration_ends_the_recording_and_not_the_program(
    process: Any, hkvtool: Any, tmp_path: Path
) -> None:
    # Its seconds begin before the program has loaded anything.
    args = ("-o", "t.duckdb", "--duration", "8", "--", *engine(10**6, 0, 0.001))
    running = begun(process, *args)
    until((tmp_path / "t.duckdb").exists)
    assert running.poll() is None, "the trace is there, and the program goes on"
    running.send_signal(signal.SIGTERM)
    assert running.communicate(timeout=120) and running.returncode == 143
    found = facts(hkvtool, tmp_path / "t.duckdb")
    assert 5 < found["kinds"]["alloc"] < 10**6 and found["kinds"]["evidence"] == 1
    assert [f.name for f in tmp_path.iterdir()] == ["t.duckdb"]


def test_launcher_that_is_killed_leaves_the_recording_to_its_sealer(
    process: Any, hkvtool: Any, tmp_path: Path
) -> None:
    running = begun(process, "-o", "t.duckdb", "--", *engine(1000, 0, 0.001))
    running.kill()
    running.wait()
    folder = tmp_path / "t.hkv"
    until(lambda: list(folder.glob("*.parquet")) and not list(folder.glob("*.ring")))
    assert hkvtool("ingest", str(folder)).code == 0
    assert facts(hkvtool, tmp_path / "t.duckdb")["kinds"]["alloc"] == 1000


def test_program_that_is_killed_is_said(process: Any, hkvtool: Any, tmp_path: Path) -> None:
    code = ENGINE.replace(
        "if n == 5:",
        "if n == 50:\n            import os; os.kill(os.getpid(), 9)\n        if n == 5:",
    )
    running = process("record", "-o", "t.hkv", "--", sys.executable, "-c", code, "100", "0", "0")
    assert running.communicate(timeout=120) and running.returncode == 137
    outcome = hkvtool("ingest", str(tmp_path / "t.hkv"))
    assert outcome.code == 0 and "died while it recorded" in outcome.err
    assert facts(hkvtool, tmp_path / "t.duckdb")["kinds"]["alloc"] == 51


HELD = """
import sys, time
from pathlib import Path
from hkvtool.cli.app import main
from hkvtool.store.writer import TraceWriter
def held(self, chunk):
    Path(sys.argv[1]).touch()
    time.sleep(600)
TraceWriter.append = held
sys.exit(main(sys.argv[2:]))
"""
"""A command that does not get beyond the first rows of a trace, and says when it is there."""


def test_making_the_trace_can_be_interrupted(
    hkvtool: Any, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    there = tmp_path_factory.mktemp("held") / "there"
    args = [str(there), "record", "-o", "t.duckdb", "--", *engine(4_000)]
    running = subprocess.Popen(
        [sys.executable, "-c", HELD, *args], cwd=tmp_path, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    until(there.exists)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 130 and b"interrupted" in err
    assert [f.name for f in tmp_path.iterdir()] == ["t.hkv"], "and it can be made later"
    assert facts(hkvtool, tmp_path / "t.hkv")["kinds"]["alloc"] == 4_000


def test_snapshots_of_a_flight_recorder(process: Any, hkvtool: Any, tmp_path: Path) -> None:
    args = ("--policy", "overwrite", "--ring-size", "16K", "-o", "t.duckdb")
    running = begun(process, *args, "--", *engine(10**6, 0, 0.0005))
    folder = tmp_path / "t.hkv"
    try:
        until(lambda: facts(hkvtool, folder)["kinds"]["alloc"] > 150)
        outcome = hkvtool("snapshot", str(folder))
        assert outcome.code == 0 and "t-snapshot.duckdb" in outcome.err
        running.send_signal(signal.SIGUSR1)
        until(lambda: list(folder.glob("snapshot-*-signal.hkv/complete")))
    finally:
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=120)
    assert running.returncode == 143
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "t-1.duckdb", "t-snapshot.duckdb", "t.duckdb"
    ]  # fmt: skip
    for name in ("t-1.duckdb", "t-snapshot.duckdb", "t.duckdb"):
        found = facts(hkvtool, tmp_path / name)
        assert found["kinds"]["pool"] == 1 and found["kinds"]["alloc"] > 50, name
    assert b"overwritten, as it was asked to" in err or found["kinds"]["alloc"] < 1000
    refused = hkvtool("snapshot", str(tmp_path / "t.hkv"))
    assert refused.code == 3


def test_attach_until_detach(process: Any, hkvtool: Any, tmp_path: Path) -> None:
    sockets = tmp_path / "run"
    sockets.mkdir()
    env = {"HKV_SOCKETS": str(sockets)}
    program = subprocess.Popen(
        engine(10**6, 0, 0.001), env={**os.environ, **env, "HKV_ATTACH": "1"},
        stdout=subprocess.PIPE, cwd=tmp_path,
    )  # fmt: skip
    try:
        until(lambda: list(sockets.glob("*/*.sock")))
        attached = process("attach", str(program.pid), "-o", "t.duckdb", **env)
        until(lambda: list((tmp_path / "t.hkv").glob("*-0000-*.ring")))
        until(lambda: facts(hkvtool, tmp_path / "t.hkv")["events"] > 20)
        detached = process("detach", str(program.pid), **env)
        assert b"1 process detached" in detached.communicate(timeout=120)[1]
        _, err = attached.communicate(timeout=120)
        assert attached.returncode == 0, err
        assert program.poll() is None
        again = process("detach", str(program.pid), **env)
        assert b"records nothing" in again.communicate(timeout=120)[1] and again.returncode == 2
    finally:
        program.kill()
        program.communicate()
    assert facts(hkvtool, tmp_path / "t.duckdb")["kinds"]["alloc"] > 10


def test_sidecar_seals_what_another_container_records(
    process: Any, hkvtool: Any, tmp_path: Path
) -> None:
    sidecar = process("seal", "t.hkv", "--wait")
    environment = {**os.environ, "HKV_RECORD": str(tmp_path / "t.hkv")}
    done = subprocess.run(engine(2000), env=environment, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    until(lambda: list((tmp_path / "t.hkv").glob("*.parquet")))
    # The container is started anew: what it recorded before is set aside, sealed as well.
    done = subprocess.run(engine(1000), env=environment, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert facts(hkvtool, tmp_path / "t-1.hkv")["events"] == 2003
    until(lambda: list((tmp_path / "t.hkv").glob("*.parquet")))
    sidecar.send_signal(signal.SIGTERM)
    _, err = sidecar.communicate(timeout=120)
    assert sidecar.returncode == 0 and b"2,003 events, 0 dropped" in err
    assert b"1,003 events, 0 dropped" in err
    for name, events in (("t-1.hkv", 2003), ("t.hkv", 1003)):
        assert not list((tmp_path / name).glob("*.ring"))
        assert facts(hkvtool, tmp_path / name)["events"] == events


CONTAINER = """
set -e
mount --bind / / && mount -o remount,bind,ro /
mount -t tmpfs -o size=200m tmpfs "$1"
mount -t tmpfs -o size=1m tmpfs /dev/shm
cd "$1"
shift
! touch /tmp/here 2> /dev/null
TMPDIR=$PWD HOME=/nonexistent exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""


def test_read_only_root_without_rights_and_with_little_memory(tmp_path: Path) -> None:
    probe = subprocess.run(["unshare", "-m", "setpriv", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("there are no containers here")
    args = [sys.executable, "-m", "hkvtool", "record", "-o", "t.duckdb", "--", *engine(3000)]
    then = f"{shlex.join(args)}; code=$?; ls -A; exit $code"
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", CONTAINER, "-", str(tmp_path), "bash", "-c", then],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["under way", "t.duckdb"]
    assert "3,003 events" in done.stderr and "Traceback" not in done.stderr


def test_doctor_says_what_is_here(hkvtool: Any) -> None:
    outcome = hkvtool("doctor")
    assert outcome.code == 0
    for name in ("python", "rings", "reading the clock", "recording an event", "engines"):
        assert name in outcome.out
    assert {"name", "value", "advice"} == set(
        json.loads(hkvtool("doctor", "--format", "json").out)[0]
    )


def test_amounts() -> None:
    assert (size("512", "-"), size("2k", "-"), size("1.5G", "-"), size("3MiB", "-")) == (
        512, 2048, 3 << 29, 3 << 20
    )  # fmt: skip
    assert (seconds("90", "-"), seconds("1.5h", "-"), seconds("2d", "-")) == (90, 5400, 172800)
    assert (size(None, "-"), seconds(None, "-")) == (None, None)
    for text in ("", "x", "1x", "0", "-1"):
        with pytest.raises(HkvError):
            size(text, "--max-size")
        with pytest.raises(HkvError):
            seconds(text, "--keep")
    assert [shown_bytes(n) for n in (5, 2048, 3 << 20, 5 << 40)] == [
        "5 B",
        "2.0 KiB",
        "3.0 MiB",
        "5.0 TiB",
    ]


def test_status_line_says_what_matters() -> None:
    plain = line(Status(1200, 0, 5, 2048, 2), 300, 10)
    assert plain == "recording: 1,200 events, 300/s, 2.0 KiB sealed"
    assert line(Status(0, 0, 0, 0, 0, 4), 0, 10) == "flight recorder: 4 rings, the latest is kept"
    full = line(Status(1200, 3, 5, 1 << 20, 2, 0, 1000, 780, 390, "disk full"), 300, 864)
    assert full == (
        "recording: 1,200 events, 300/s, 3 dropped, 1.0 MiB sealed, 100.0 MiB/day, "
        "matched 78 %, resumed 39 %, disk full"
    )


def test_interrupted_while_the_trace_is_made(
    tmp_path: Path, hkvtool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hkvtool.store.ingesting.ingest", interrupted)
        outcome = hkvtool("record", "-o", str(tmp_path / "t.duckdb"), "--", *engine(3))
    assert outcome.code == 130 and "interrupted" in outcome.err
    said = outcome.err.partition("hint: hkvtool ")[2].partition("\n")[0]
    assert hkvtool(*shlex.split(said)).code == 0
    assert (tmp_path / "t.duckdb").is_file()
