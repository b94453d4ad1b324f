"""The terminal application beside a program that is recorded: a process that has the terminal."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from hkvtool.cli.console import at_a_terminal
from hkvtool.model.errors import Exit, HkvError
from hkvtool.model.text import shown
from hkvtool.tui.beside import GOES_ON

_RESET = "\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[0m"
"""The normal screen, a cursor, no reports of the mouse or of what is pasted, no colour."""

_LOOK = 0.5
"""Seconds between looks at whether the terminal is still there."""

_PATIENCE = 5.0
"""Seconds that the application may take to give the terminal back."""


def unheard() -> None:
    """Where the terminal was closed, what is still said goes nowhere: a program that is recorded
    must not end without its trace because nobody listens."""
    for fd in (1, 2):
        try:
            termios.tcgetattr(fd)
        except termios.error as e:
            # Of a pipe or a file it says that they are no terminal.
            if e.args[0] == errno.EIO:
                with suppress(OSError), open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), fd)


def _closed() -> bool:
    """Whether the terminal that we read from has gone."""
    try:
        termios.tcgetattr(0)
    except termios.error as e:
        return bool(e.args[0] == errno.EIO)
    return False


class LiveScreen:
    """As a context: what the program prints goes to a file meanwhile. Raises HkvError where that
    cannot be, or there is no terminal."""

    def __init__(self, recording: Path, log: Path, *, force: bool) -> None:
        if not at_a_terminal():
            raise HkvError(
                "--live needs a terminal",
                hint="`hkvtool tui NAME.hkv` in another one follows a recording as well",
            )
        self._recording, self.path = recording, log
        self._process: subprocess.Popen[bytes] | None = None
        self._modes: list[Any] | None = None
        self._opened = False
        if log.exists() and not force:
            raise HkvError(f"{log} is there already", hint="--force replaces it")
        try:
            fd = os.open(
                log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        except OSError as e:
            raise HkvError(f"cannot write {log}: {e.strerror or e}") from e
        self.log: IO[bytes] = open(fd, "ab", buffering=0)  # noqa: SIM115

    def open(self) -> None:
        """Show the application."""
        print(f"hkvtool: what it prints goes to {shown(self.path)}", file=sys.stderr)
        with suppress(termios.error, OSError):
            self._modes = termios.tcgetattr(sys.stdin.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hkvtool.tui.beside", os.path.abspath(self._recording),
             os.path.abspath(self.path), os.getcwd()],
            # Python looks for modules here first: it must be nobody's.
            cwd=self._recording,
        )  # fmt: skip
        self._opened = True

    @property
    def left(self) -> bool:
        """Whether the terminal is the program's and ours again."""
        return self._process is not None and self._process.poll() is not None

    @property
    def ends(self) -> bool:
        """Whether the person who left wanted the program to end."""
        code = None if self._process is None else self._process.returncode
        if code in (Exit.OK, GOES_ON):
            return code == Exit.OK
        unheard()
        self._give_back()
        print("hkvtool: the screen failed; the program and its recording go on", file=sys.stderr)
        return False

    def _give_back(self) -> None:
        """The terminal as it was: an application that was killed leaves it as it had it."""
        with suppress(termios.error, OSError):
            if self._modes is not None:
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._modes)
            sys.stdout.write(_RESET)
            sys.stdout.flush()

    def wait(self) -> None:
        """The recording is over: wait until it was looked at for long enough."""
        while self._process is not None and not self.left:
            if _closed():
                # Only the first of its processes hears of that, which may be us.
                self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LOOK)

    def __enter__(self) -> LiveScreen:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE)
        self.log.close()
        if self._opened:
            print(f"hkvtool: what it printed is in {shown(self.path)}", file=sys.stderr)
        else:
            with suppress(OSError):
                self.path.unlink()
