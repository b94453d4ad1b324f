"""In a real terminal, as a user has it: keys are sent, the screen is captured."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


class Terminal:
    """One tmux server with one window."""

    def __init__(self, socket: Path, command: list[str], env: dict[str, str]) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]
        words = ["env", *(f"{k}={v}" for k, v in env.items()), *command]
        line = " ".join(f"'{w}'" for w in words) + "; echo EXIT=$?; sleep 60"
        self._run("new-session", "-d", "-x", "100", "-y", "30", line)

    def _run(self, *args: str) -> str:
        done = subprocess.run([*self._tmux, *args], capture_output=True, text=True, check=True)
        return done.stdout

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def text(self) -> str:
        return self._run("capture-pane", "-p")

    def until(self, part: str, seconds: float = 60) -> str:
        """Wait until the screen says something."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if part in self.text():
                return self.text()
            time.sleep(0.05)
        raise AssertionError(f"{part!r} never came:\n{self.text()}")

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def run(*args: str, **env: str) -> Terminal:
        inherited = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "TERM": "screen-256color"}
        command = [sys.executable, "-m", "hkvtool", "tui", *args]
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
