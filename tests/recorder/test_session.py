"""Every process of an engine takes part in one recording, and is asked from outside to stop."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.model.errors import HkvError
from hkvtool.model.recording import Stage, read_recording, stage_of
from hkvtool.recorder import control
from hkvtool.recorder.attaching import detach, processes
from hkvtool.recorder.control import Control, ask, family, listening, socket_folder
from hkvtool.recorder.folder import Folder
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.session import Session
from hkvtool.recorder.settings import Settings, SettingsError

HOOKS = """
import os, sys, time
from hkvtool.recorder import session
tell = lambda *values: False
def start(recording):
    global tell
    tell = recording.emitter("signal", ("event", "actor"))
    recording.emit("trace", format="hkv/1", engine="toy", evidence=["host"])
def stop(recording):
    global tell
    recording.emit("signal", event="stop", actor=sys.argv[1])
    tell = lambda *values: False
session.follow(start, stop)
"""


class Engine:
    """A program with hooks, run in processes of their own."""

    def __init__(self, folder: Path, sockets: Path) -> None:
        self.folder = folder / "t.hkv"
        self.sockets = sockets
        self.started: list[subprocess.Popen[str]] = []

    def start(self, code: str, *args: str, **env: str) -> subprocess.Popen[str]:
        program = subprocess.Popen(
            [sys.executable, "-c", HOOKS + code, *(args or ("p",))],
            env={**os.environ, "HKV_SOCKETS": str(self.sockets), **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.started.append(program)
        return program

    def run(self, code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        program = self.start(code, *args, **env)
        out, err = program.communicate(timeout=60)
        return subprocess.CompletedProcess([], program.returncode, out, err)

    def events(self) -> list[dict[str, Any]]:
        return [dict(e.data) for e in read_recording(self.folder)]

    def told(self, actor: str) -> list[Any]:
        return [
            e["event"] for e in self.events() if e["ev"] == "signal" and e.get("actor") == actor
        ]


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    sockets = tmp_path / "run"
    sockets.mkdir()
    monkeypatch.setenv("HKV_SOCKETS", str(sockets))
    made = Engine(tmp_path, sockets)
    yield made
    for program in made.started:
        program.kill()
        program.communicate()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def test_nothing_happens_unless_asked_for(engine: Engine) -> None:
    done = engine.run("""
import threading
assert session.session() is None and not tell(1, "p")
assert threading.active_count() == 1
""")  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "") and not engine.folder.exists()
    assert list(engine.sockets.iterdir()) == []


def test_first_process_makes_the_folder_and_ends_it(engine: Engine) -> None:
    done = engine.run("tell(1, 'p')", HKV_RECORD=str(engine.folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert engine.told("p") == [1, "stop"] and stage_of(engine.folder) is Stage.COMPLETE
    late = engine.run("tell(2, 'p')", HKV_RECORD=str(engine.folder), HKV_JOIN="1")
    assert late.returncode == 0 and "not recording: nobody records to" in late.stderr
    assert engine.told("p") == [1, "stop"]


def test_engine_that_is_started_anew_sets_the_last_recording_aside(engine: Engine) -> None:
    for n in range(3):
        done = engine.run(f"tell({n}, 'p')", HKV_RECORD=str(engine.folder))
        assert (done.returncode, done.stderr) == (0, "")
    engine.start(
        "tell(3, 'p'); print('ready', flush=True); time.sleep(600)", HKV_RECORD=str(engine.folder)
    )
    engine.started[-1].stdout.readline()  # type: ignore[union-attr]
    engine.started[-1].kill()
    engine.started[-1].wait()
    assert engine.run("tell(4, 'p')", HKV_RECORD=str(engine.folder)).stderr == ""
    names = ["t-1.hkv", "t-2.hkv", "t-3.hkv", "t-4.hkv", "t.hkv"]
    assert sorted(f.name for f in engine.folder.parent.glob("*.hkv")) == names
    for n, name in enumerate(names):
        engine.folder = engine.folder.with_name(name)
        assert engine.told("p")[0] == n
        assert (stage_of(engine.folder) is Stage.DIED) == (n == 3)
        assert Settings.read(str(engine.folder)).key == b"", "the key is forgotten"


def test_spawned_and_forked_processes_join(engine: Engine) -> None:
    code = """
pid = os.fork()
for n in range(200):
    tell(n, sys.argv[1] + ("" if pid else "-child"))
pid and os.waitpid(pid, 0)
"""
    owner = Folder.make(engine.folder, Settings(ring_bytes=1 << 16))
    assert isinstance(owner, Folder)
    programs = [engine.start(code, f"p{n}", HKV_RECORD=str(engine.folder)) for n in range(3)]
    for program in programs:
        assert program.wait(60) == 0
    assert stage_of(engine.folder) is Stage.RECORDING, "only its owner ends it"
    owner.end()
    for n in range(3):
        for actor in (f"p{n}", f"p{n}-child"):
            assert [e for e in engine.told(actor) if e != "stop"] == list(range(200))
    assert "key" in json.loads((engine.folder / "settings.json").read_text())
    assert Settings.read(str(engine.folder)).key != owner.settings.key, "the key is forgotten"


def test_processes_that_race_for_the_folder_share_it(engine: Engine) -> None:
    code = "tell(1, sys.argv[1]); sys.stdin.read()"
    programs = [engine.start(code, f"p{n}", HKV_RECORD=str(engine.folder)) for n in range(5)]
    until(lambda: engine.folder.exists() and len(list(engine.folder.glob("*-0000-*.ring"))) == 5)
    for program in programs:
        assert program.communicate(timeout=60)[1] == ""
    assert sorted(e["actor"] for e in engine.events() if e.get("event") == 1) == [
        f"p{n}" for n in range(5)
    ]


def test_settings_of_the_environment(engine: Engine, tmp_path: Path) -> None:
    env = {"HKV_RECORD": str(engine.folder), "HKV_POLICY": "overwrite", "HKV_RING_BYTES": "16384",
           "HKV_RINGS": str(tmp_path / "elsewhere"), "HKV_KEEP_TOKENS": "1"}  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    done = engine.run(
        "r = session.session(); assert r.rolling and r.keep_tokens\n"
        "for n in range(2000): tell(n, 'p')",
        **env,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(engine.folder.glob("*.ring"))
    assert len(list((tmp_path / "elsewhere").glob("*/*.ring"))) == 2
    assert engine.told("p")[-2:] == [1999, "stop"] and len(engine.told("p")) < 1000
    for name, value in (("HKV_POLICY", "no"), ("HKV_RING_BYTES", "x"), ("HKV_HASH_KEY", "/none")):
        off = engine.run("tell(1, 'p')", HKV_RECORD=str(tmp_path / "u.hkv"), **{name: value})
        assert off.returncode == 0 and "not recording" in off.stderr
    assert not (tmp_path / "u.hkv").exists()


def test_hook_that_fails_is_said_and_the_others_go_on(engine: Engine) -> None:
    done = engine.run("""
def broken(recording): raise RuntimeError("no such function")
session.follow(broken, broken)
session.follow(start, stop)
tell(1, "p")
""", HKV_RECORD=str(engine.folder))  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.count("a hook failed and is off: RuntimeError: no such function") == 2
    assert engine.told("p") == [1, "stop"]


LOOP = """
print("ready", flush=True)
n = 0
while not os.path.exists(sys.argv[2]):
    n += tell(n, "p")
    time.sleep(0.001)
"""


def test_kill_switch_takes_the_hooks_out_and_puts_them_back(engine: Engine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    program = engine.start(LOOP, "p", str(end), HKV_RECORD=str(engine.folder))
    until(lambda: engine.folder.exists() and len(engine.told("p")) > 5)
    (engine.folder / "off").touch()
    until(lambda: "stop" in engine.told("p"))
    held = len(engine.told("p"))
    time.sleep(0.1)
    assert len(engine.told("p")) == held
    assert [e for e in engine.events() if e["ev"] == "evidence"][-1]["evidence"] == []
    (engine.folder / "off").unlink()
    until(lambda: len(engine.told("p")) > held + 5)
    end.touch()
    assert program.wait(60) == 0
    numbers = [e for e in engine.told("p") if e != "stop"]
    assert numbers == list(range(len(numbers)))
    assert [e["ev"] for e in engine.events()].count("trace") == 2


def test_attach_and_detach(engine: Engine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    program = engine.start(LOOP, "p", str(end), HKV_ATTACH="1")
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    until(lambda: list(engine.sockets.glob("*/*.sock")))
    (place,) = engine.sockets.glob("*/*.sock")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert program.pid in processes(os.getpid()) and processes(program.pid) == [program.pid]
    assert ask(program.pid, {"op": "status"}) == {"ok": True, "folder": None, "followers": 1}
    owner = Folder.make(engine.folder, Settings())
    assert isinstance(owner, Folder)
    request = {"op": "record", "folder": str(engine.folder)}
    assert ask(program.pid, request)["folder"] == str(engine.folder)
    assert "is being recorded already" in ask(program.pid, request)["what"]
    until(lambda: len(engine.told("p")) > 5)
    assert ask(program.pid, {"op": "snapshot", "reason": "test"})["folder"].endswith("-test.hkv")
    assert detach(program.pid) and not detach(program.pid)
    assert engine.told("p")[-1] == "stop" and program.poll() is None
    end.touch()
    assert program.wait(60) == 0
    owner.end()


def test_processes_started_after_an_attach_take_part(engine: Engine, tmp_path: Path) -> None:
    child = HOOKS + "tell(7, sys.argv[1])"
    program = engine.start(
        f"""
import subprocess
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", {child!r}, line.strip()])
    print("done", flush=True)
""",
        HKV_ATTACH="1",
    )
    assert program.stdin is not None and program.stdout is not None
    until(lambda: list(engine.sockets.glob("*/*.sock")))
    owner = Folder.make(engine.folder, Settings(ring_bytes=1 << 16))
    assert isinstance(owner, Folder)
    for name in ("before", "during", "after"):
        program.stdin.write(name + "\n")
        program.stdin.flush()
        assert program.stdout.readline() == "done\n"
        if name == "before":
            assert ask(program.pid, {"op": "record", "folder": str(engine.folder)})["ok"]
        elif name == "during":
            assert detach(program.pid)
    assert [engine.told(name) for name in ("before", "during", "after")] == [[], [7, "stop"], []]
    owner.end()


def test_requests_that_make_no_sense_are_answered(engine: Engine, tmp_path: Path) -> None:
    end = tmp_path / "end"
    program = engine.start(LOOP, "p", str(end), HKV_ATTACH="1")
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    until(lambda: list(engine.sockets.glob("*/*.sock")))
    assert not ask(program.pid, {"op": "explode"})["ok"]
    assert not ask(program.pid, {})["ok"]
    off = ask(program.pid, {"op": "record", "folder": "/proc/none.hkv"})
    assert not off["ok"] and "/proc/none.hkv" in off["what"]
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(next(engine.sockets.glob("*/*.sock"))))
        raw.sendall(b"\xff\x00")
        assert json.loads(raw.recv(4096))["ok"] is False
    assert ask(program.pid, {"op": "status"})["ok"], "it still answers"
    end.touch()
    assert program.wait(60) == 0


def test_process_that_cannot_be_asked(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process of that number that was killed may have left a socket in the usual place.
    (tmp_path / f"hkvtool-{os.geteuid()}").mkdir(0o700)
    monkeypatch.setenv("HKV_SOCKETS", str(tmp_path))
    with pytest.raises(HkvError, match="has not loaded hkvtool"):
        processes(os.getpid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(HkvError, match="there is no process"):
        processes(gone.pid)
    assert os.getpid() in family(os.getppid())


def test_folder_that_others_may_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / f"hkvtool-{os.geteuid()}"
    place.mkdir(0o777)
    place.chmod(0o777)
    monkeypatch.setenv("HKV_SOCKETS", str(tmp_path))
    found = socket_folder()
    assert found is None or not found.startswith(str(tmp_path))


def test_only_its_owner_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Control(Session())
    mine, theirs = socket.socketpair()
    with mine, theirs:
        theirs.sendall(b'{"op": "status"}')
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        uid = os.getuid()
        asked._answer(mine)
        mine.close()
        said = theirs.recv(4096)
    assert bool(said) == (uid == 0), "root may; another user may not"


def test_killed_owner_without_a_launcher_leaves_a_usable_recording(engine: Engine) -> None:
    program = engine.start(
        "tell(1, 'p'); print('ready', flush=True); time.sleep(600)", HKV_RECORD=str(engine.folder)
    )
    assert program.stdout is not None and program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGKILL)
    program.wait()
    assert stage_of(engine.folder) is Stage.DIED and engine.told("p") == [1]


def test_hashes_are_keyed(tmp_path: Path) -> None:
    one, same, other = (
        Recording.begin(tmp_path / f"{n}.hkv", Settings(key=key))
        for n, key in enumerate((b"k" * 32, b"k" * 32, b"o" * 32))
    )
    assert isinstance(one, Recording) and isinstance(same, Recording)
    assert isinstance(other, Recording)
    assert one.keyed(b"hash") == same.keyed(b"hash") != other.keyed(b"hash")
    assert len(one.keyed(12)) == 16 and one.keyed("12") == one.keyed(12)
    for made in (one, same, other):
        made.close()


def test_key_file(tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_bytes(b"k" * 32)
    assert Settings.of_environment({"HKV_HASH_KEY": str(place)}).key == b"k" * 32
    place.write_bytes(b"short")
    with pytest.raises(SettingsError, match="16 to 64 bytes"):
        Settings.of_environment({"HKV_HASH_KEY": str(place)})


def test_a_process_that_had_nothing_to_tell_does_not_withdraw_what_others_see(
    tmp_path: Path,
) -> None:
    # A front end and a worker are asked to stop too, while the engine core still tells.
    for told in (True, None, False):
        folder = tmp_path / f"{told}.hkv"
        asked = Session()
        assert isinstance(asked.begin(str(folder)), Recording)
        asked.follow(lambda r: None, lambda r, told=told: told)
        assert asked.answer({"op": "stop"})["ok"]
        events = [e.ev for e in read_recording(folder)]
        assert events == ([] if told is False else ["evidence"]), told


def test_the_socket_of_a_process_that_was_killed_is_nobody_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HKV_SOCKETS", str(tmp_path))
    folder = socket_folder(make=True)
    assert folder is not None
    # Its number is another process's by now, one that has loaded nothing of ours.
    left = socket.socket(socket.AF_UNIX)
    left.bind(os.path.join(folder, f"{os.getppid()}.sock"))
    left.close()
    assert listening([os.getpid(), os.getppid()]) == []
    with pytest.raises(HkvError, match="has not loaded hkvtool: nobody listens") as refused:
        processes(os.getppid())
    assert "HKV_ATTACH=1" in refused.value.hint and "record to" not in str(refused.value)
    Control(Session()).start()
    assert listening([os.getpid(), os.getppid()]) == [os.getpid()]
    assert ask(os.getpid(), {"op": "status"})["ok"]


def test_one_that_closes_or_does_not_answer_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HKV_SOCKETS", str(tmp_path))
    folder = socket_folder(make=True)
    assert folder is not None
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.join(folder, f"{os.getpid()}.sock"))
        listener.listen(4)
        with monkeypatch.context() as patch:
            patch.setattr(control, "_PATIENCE", 0.2)
            with pytest.raises(HkvError, match="does not answer") as silent:
                ask(os.getpid(), {"op": "status"})
        assert "try again" in silent.value.hint
        listener.accept()[0].close()
        closer = threading.Thread(target=lambda: listener.accept()[0].close())
        closer.start()
        with pytest.raises(HkvError, match="cannot be asked: ") as closed:
            ask(os.getpid(), {"op": "status"})
        closer.join()
        assert closed.value.hint


def test_sockets_that_killed_processes_left_are_swept_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HKV_SOCKETS", str(tmp_path))
    folder = socket_folder(make=True)
    assert folder is not None
    # Numbers that no process of this machine can have: processes of another container may.
    with socket.socket(socket.AF_UNIX) as far:
        places = [Path(folder, f"{2**22 + n}.sock") for n in range(3)]
        far.bind(str(places[0]))
        far.listen(1)
        for place in places[1:]:
            with socket.socket(socket.AF_UNIX) as killed:
                killed.bind(str(place))
        mine, other = Path(folder, f"{os.getpid()}.sock"), Path(folder, "4194999.sock")
        mine.touch()
        other.write_text("no socket")
        for place in (places[0], places[1], other):
            os.utime(place, (0, 0))
        control._sweep(folder)
    left = {place.name for place in Path(folder).iterdir()}
    # The second was made a moment ago: who made it may be about to listen.
    assert left == {places[0].name, places[2].name, mine.name, other.name}
