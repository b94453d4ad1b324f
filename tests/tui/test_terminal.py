"""In a real terminal, as a user has it: keys are sent, the screen is captured."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hkvtool.store import open_trace

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """One tmux server with one window."""

    def __init__(self, socket: Path, command: list[str], env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        words = ["env", *(f"{k}={v}" for k, v in env.items()), *command]
        line = " ".join(f"'{w}'" for w in words) + "; echo EXIT=$?; sleep 600"
        self._run("new-session", "-d", "-x", "100", "-y", "30", line)

    def _run(self, *args: str) -> str:
        done = subprocess.run([*self._tmux, *args], capture_output=True, text=True, check=True)
        return done.stdout

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, part: str) -> str:
        """Wait until the screen says something."""
        return self._until(lambda text: part in text, f"{part!r} never came")

    def gone(self, part: str) -> None:
        """Wait until it does not any more."""
        self._until(lambda text: part not in text, f"{part!r} stays")

    def _until(self, there: Callable[[str], bool], else_: str) -> str:
        end = time.monotonic() + 120
        while not there(text := self.text()):
            assert time.monotonic() < end, f"{else_}:\n{text}"
            time.sleep(0.05)
        return text

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def run(*args: str, **env: str) -> Terminal:
        inherited = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TERM": "screen-256color"}
        words = args if args[0] == "record" else ("tui", *args)
        command = [sys.executable, "-m", "hkvtool", *words]
        opened.append(Terminal(tmp_path / f"t{len(opened)}", command, inherited | env))
        return opened[-1]

    yield run
    for one in opened:
        one.close()


def test_a_minute_with_a_bug(cases, terminal) -> None:  # type: ignore[no-untyped-def]
    screen = terminal(str(cases["B10"].bad))
    screen.until("HKV702 overwrite-under-reader")
    screen.keys("1")
    screen.until("4 resumable")
    screen.keys("]")
    screen.until("event 26 of 46")
    screen.keys("q")
    screen.until("EXIT=0")


@pytest.mark.parametrize("key", ["C-c", "C-q"])
def test_it_can_be_left(cases, terminal, key: str) -> None:  # type: ignore[no-untyped-def]
    screen = terminal(str(cases["A01"].good))
    screen.until("2,048 blocks")
    screen.keys(key)
    screen.until("EXIT=0")


def test_few_colours_and_none(cases, terminal) -> None:  # type: ignore[no-untyped-def]
    screen = terminal(str(cases["B10"].bad), NO_COLOR="1", TERM="screen")
    screen.until("HKV702")
    screen.keys("1")
    screen.until("C!")


def test_what_cannot_be_read_leaves_the_terminal_as_it_was(tmp_path: Path, terminal) -> None:  # type: ignore[no-untyped-def]
    broken = tmp_path / "broken.duckdb"
    broken.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 5000)
    screen = terminal(str(broken))
    text = screen.until("EXIT=3")
    assert "error:" in text and "Traceback" not in text


ENGINE = """
import os, sys, time
from hkvtool.recorder.session import follow
tell = None
def start(recording):
    global tell
    recording.emit("trace", format="hkv/1", engine="toy", evidence=["host"])
    recording.emit("pool", pool="gpu", medium="gpu", blocks=64)
    recording.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=16)
    tell = recording.emitter("alloc", ("req", "group", "blocks"))
print("\\x1b[31mloading\\x1b[0m \\x07", flush=True)
sys.stdin.read()
time.sleep(0.3)
follow(start, lambda recording: None)
try:
    for n in range(times := int(sys.argv[1])):
        while n == times // 2 and not os.path.exists(sys.argv[2]):
            time.sleep(0.01)
        tell(f"r{n}", "kv", [1 + n % 60])
        time.sleep(0.002)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(3)
"""


@pytest.fixture
def on(tmp_path: Path) -> Path:
    """Where this is, the program does the second half too."""
    return tmp_path / "on"


@pytest.fixture
def live(tmp_path: Path, on: Path, terminal) -> Callable[[int], tuple[Terminal, Path]]:  # type: ignore[no-untyped-def]
    """`record --live` over a program that does so many things."""

    def run(times: int) -> tuple[Terminal, Path]:
        program = tmp_path / "engine.py"
        program.write_text(ENGINE)
        trace = tmp_path / "t.duckdb"
        words = [sys.executable, str(program), str(times), str(on)]
        return terminal("record", "-o", str(trace), "--live", "--", *words), trace

    return run


def test_a_program_under_the_screen_is_ended_from_it(live) -> None:  # type: ignore[no-untyped-def]
    screen, trace = live(1_000_000)
    screen.until("● live")
    screen.until("60 held")
    screen.keys("o")
    screen.until("│ loading \\x07")
    # Right behind one another the two would be one key.
    screen.keys("Escape")
    screen.gone("│ loading \\x07")
    screen.keys("C-c")
    screen.until("still running")
    screen.keys("Escape")
    screen.gone("still running")
    screen.keys("q")
    screen.until("still running")
    screen.keys("e")
    text = screen.until("EXIT=3")
    assert "interrupted" not in text and "events" in text
    assert "interrupted" in trace.with_suffix(".log").read_text()
    with open_trace(trace) as made:
        assert made.kinds["alloc"] > 60
    assert not trace.with_suffix(".hkv").exists()


def test_only_the_screen_is_left(live, on: Path) -> None:  # type: ignore[no-untyped-def]
    screen, trace = live(400)
    screen.until("● live")
    screen.keys("q")
    screen.until("still running")
    screen.keys("l")
    screen.gone("still running")
    on.touch()
    screen.until("EXIT=0")
    with open_trace(trace) as made:
        assert made.kinds["alloc"] == 400


def test_a_program_that_ends_leaves_the_screen(live, on: Path) -> None:  # type: ignore[no-untyped-def]
    screen, trace = live(400)
    screen.until("● live")
    on.touch()
    screen.until("recorded, q makes the trace")
    screen.until("event 403 of 403")
    screen.keys("q")
    screen.until("EXIT=0")
    with open_trace(trace) as made:
        assert made.kinds["alloc"] == 400


def test_a_screen_that_dies_leaves_program_and_terminal(live) -> None:  # type: ignore[no-untyped-def]
    screen, trace = live(1_000_000)
    screen.until("60 held")
    words = {}
    for process in Path("/proc").iterdir():
        # Others end meanwhile.
        with suppress(OSError):
            words[process.name] = (process / "cmdline").read_bytes()
    named = os.fsencode(trace.with_suffix(".hkv"))
    (dead,) = [
        pid for pid, line in words.items() if b"hkvtool.tui.beside" in line and named in line
    ]
    os.kill(int(dead), signal.SIGKILL)
    screen.until("the screen failed; the program and its recording go on")
    screen.keys("C-c")
    screen.until("EXIT=3")
    with open_trace(trace) as made:
        assert made.kinds["alloc"] > 1


def test_a_terminal_that_is_closed_leaves_a_trace(live) -> None:  # type: ignore[no-untyped-def]
    screen, trace = live(1_000_000)
    screen.until("60 held")
    screen.close()
    end = time.monotonic() + 120
    while not trace.exists():
        assert time.monotonic() < end, "no trace is made"
        time.sleep(0.1)
    with open_trace(trace) as made:
        assert made.kinds["alloc"] > 1


def test_live_without_a_terminal_is_refused(tmp_path: Path, hkvtool) -> None:  # type: ignore[no-untyped-def]
    found = hkvtool("record", "--live", "-o", str(tmp_path / "t.duckdb"), "--", "true")
    assert found.code == 2 and "--live needs a terminal" in found.err
    assert not list(tmp_path.iterdir())
