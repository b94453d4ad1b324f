"""Starting a program that records, with a sealer beside it, and seeing both to their end.

The program keeps its terminal, its environment and its signals; all it gets is HKV_RECORD
and HKV_JOIN.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic
from types import FrameType
from typing import IO, Protocol

from hkvtool.model.errors import HkvError
from hkvtool.recorder.environment import JOIN, RECORD
from hkvtool.recorder.folder import Folder
from hkvtool.recorder.sealing import OVER, Bounds, Status, switch_off

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)

_LOOK = 0.1
"""Seconds between two looks at the program and at what the sealer tells."""

_OUT_WITHIN = 5.0
"""Seconds within which every process has seen that it is switched off."""

_SEALED_WITHIN = 600.0
"""Seconds that a sealer may take for what is left in the rings."""


class Screen(Protocol):
    """What may have the terminal while the program runs. It can be left with the wish that the
    program ends, or that it goes on."""

    def open(self) -> None: ...

    @property
    def left(self) -> bool: ...

    @property
    def ends(self) -> bool: ...


@dataclass(frozen=True)
class Ended:
    """How a recording ended: the program's exit code, if it ended too; what went wrong with the
    sealer, if anything did (the events are in the rings then); and what was recorded."""

    code: int | None
    sealer: str
    status: Status | None

    @property
    def died(self) -> bool:
        """Whether the program was killed, rather than asked to end."""
        return self.code is not None and self.code > 128 and self.code - 128 not in _FORWARDED


class SealerProcess:
    """The sealer of a folder as a process of its own."""

    def __init__(self, folder: str, bounds: Bounds, keeps: Sequence[int] = ()) -> None:
        self.status: Status | None = None
        args = [str(bounds.max_bytes or ""), str(bounds.keep or "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hkvtool.recorder.sealing", folder, *args],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, pass_fds=keeps,
            # Python looks for modules here first: it must be nobody's.
            cwd=folder,
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest = b""

    def look(self) -> Status | None:
        """What it told last."""
        assert self._process.stdout is not None
        with suppress(BlockingIOError):
            while part := os.read(self._process.stdout.fileno(), 1 << 16):
                self._rest += part
        *lines, self._rest = self._rest.split(b"\n")
        with suppress(ValueError, TypeError):
            if lines:
                self.status = Status.of_line(lines[-1].decode())
        return self.status

    def end(self) -> str:
        """Have it seal what is left; says what went wrong, if anything did."""
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError), process.stdin:
            process.stdin.write(OVER)
        until = monotonic() + _SEALED_WITHIN
        while process.poll() is None and monotonic() < until:
            select.select([process.stdout], [], [], _LOOK)
            self.look()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK)
        self.look()
        if process.poll() is None:
            process.kill()
            process.wait()
            return "the sealer did not come to an end"
        process.stdout.close()
        if process.returncode:
            return f"the sealer ended with {_shell_code(process.returncode)}"
        return ""


def launch(
    command: Sequence[str],
    folder: Folder,
    *,
    bounds: Bounds,
    duration: float | None,
    told: Callable[[Status | None], None],
    asked: Callable[[], None],
    ended: Callable[[Ended], None],
    output: IO[bytes] | None = None,
    screen: Screen | None = None,
) -> int:
    """Run a program that records to `folder`; returns its exit code, as a shell has it.

    `told` gets the status every so often; `asked` is called after a SIGUSR1; `ended` once, when
    everything is sealed: at the end of the program, or after `duration` seconds, when the program
    goes on without being recorded. Where a `screen` has the terminal, the program gets no input
    and writes to `output`. Raises HkvError where it cannot be started.
    """
    first = SealerProcess(folder.path, bounds, folder.descriptors)
    sealer: SealerProcess | None = first
    signals = _Signals()
    with signals.caught():
        environment = {**os.environ, RECORD: folder.path, JOIN: "1"}
        try:
            program = subprocess.Popen(
                command, env=environment, stdout=output, stderr=output,
                stdin=None if screen is None else subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as e:
            first.end()
            raise HkvError(
                f"cannot start {command[0]}: {e.strerror or e}",
                hint="after `--` comes the program, as you would start it without hkvtool",
            ) from e
        signals.program = program
        if screen is not None:
            screen.open()
        until = None if duration is None else monotonic() + duration
        while program.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                program.wait(_LOOK)
            if screen is not None and screen.left:
                if screen.ends:
                    program.send_signal(signal.SIGINT)
                screen = None
            if sealer is None:
                continue
            told(sealer.look())
            if signals.asked:
                signals.asked = False
                asked()
            if until is not None and monotonic() > until:
                switch_off(folder.path, f"it was to last {duration:g} s")
                with suppress(subprocess.TimeoutExpired):
                    program.wait(_OUT_WITHIN)
                ended(Ended(program.poll(), sealer.end(), sealer.status))
                sealer = None
        code = _shell_code(program.returncode)
        if sealer is not None:
            ended(Ended(code, sealer.end(), sealer.status))
        return code


class _Signals:
    """What is sent to the launcher is meant for the program."""

    def __init__(self) -> None:
        self.program: subprocess.Popen[bytes] | None = None
        self.asked = False
        self._closed = False

    @contextmanager
    def caught(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, self._ask)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._closed:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        over = self.program is not None and self.program.poll() is not None
        if number == signal.SIGHUP and (over or self._closed):
            # A terminal that is closed says so again when its shell ends; the trace is wanted all
            # the same.
            self._closed = True
            return
        self._closed = self._closed or number == signal.SIGHUP
        if over:
            # What is left is ours: sealing, and making the trace.
            raise KeyboardInterrupt
        if self.program is None or (number == signal.SIGINT and _from_terminal()):
            # The program will have it too, or is not there yet.
            return
        self.program.send_signal(number)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


def _from_terminal() -> bool:
    """Whether a Ctrl-C would reach us, and with us the program."""
    try:
        fd = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(fd)


def _shell_code(code: int) -> int:
    return 128 - code if code < 0 else code
