"""What can be done with a finding from here: confirm, explore, minimize, export, pack, explain.

Each is a command in a process of its own, told as it goes, that can be called off.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from hkvtool.model.errors import Exit
from hkvtool.model.progress import ASKED, PREFIX
from hkvtool.model.text import shown
from hkvtool.tui.lines import Line, heading, line
from hkvtool.tui.unused import unused
from hkvtool.tui.widgets import LineList

_TICK = 0.5
"""Seconds between two looks at the clock while a command runs."""

_CODES: dict[int, str] = {
    Exit.OK: "done", Exit.FINDINGS: "done: it is there (1)",
    Exit.INCONCLUSIVE: "done: that cannot be told (4)",
}  # fmt: skip
"""What exit codes say."""

MOST_LINES = 5000
"""Lines of output that are kept; the first are dropped."""


@dataclass(frozen=True)
class Job:
    """One command about a finding."""

    text: str
    command: str
    options: tuple[str, ...]
    output: str | None = None
    """The file that it writes."""

    @property
    def there(self) -> bool:
        """Whether this installation has it."""
        return find_spec(f"hkvtool.cli.{self.command}") is not None

    def arguments(self, trace: str, finding: str, beside: str) -> list[str]:
        """Its command line, behind `hkvtool`."""
        filled = [o.format(finding=finding) for o in self.options]
        if self.output is not None:
            name = self.output.format(finding=finding, beside=beside)
            filled += ["-o", unused(name, "_" if name.endswith(".py") else "-")]
        return [self.command, trace, *filled]


JOBS = (
    Job("confirm it by replay: fault arm and control arm", "replay",
        ("--depth", "cache", "--finding", "{finding}")),
    Job("explore the orders that the edges leave open", "explore", ("--finding", "{finding}")),
    Job("minimize: the fewest events that still show it", "minimize",
        ("--finding", "{finding}"), "{beside}-{finding}.jsonl"),
    Job("export it as a test that fails as long as it is there", "export",
        ("--format", "pytest", "--finding", "{finding}"), "test_{beside}_{finding}.py"),
    Job("pack it: one file that runs elsewhere", "bundle",
        ("--finding", "{finding}"), "{beside}-{finding}.zip"),
    Job("explain it", "explain", ("{finding}",)),
)  # fmt: skip


class JobScreen(ModalScreen[None]):
    """Chooses a job, runs it, shows what it says."""

    CSS = """
    JobScreen { align: center middle; background: $background 60%; }
    JobScreen #box { width: 92%; height: 80%; border: round $primary; background: $background;
                     padding: 0 1; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "cancel, close")]

    def __init__(self, trace: str, finding: str, beside: str) -> None:
        super().__init__()
        self._trace, self._finding, self._beside = trace, finding, beside
        self._process: asyncio.subprocess.Process | None = None
        self._said: list[Line] = []
        self.code: int | None = None
        self._progress, self._began = "", 0.0

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield LineList(id="jobs")

    def on_mount(self) -> None:
        listed = self.query_one(LineList)
        rows = [heading(f"{self._finding}: what to do with it"), line("")]
        for number, job in enumerate(JOBS):
            if job.there:
                told = " ".join(job.arguments("TRACE", self._finding, self._beside))
                rows += [
                    line(f"  {job.text}", key=("job", number)),
                    line((f"    hkvtool {told}", "dim")),
                ]
        rows += [line(""), line(("enter runs it, esc goes back", "dim"))]
        listed.put(rows, ("job", next(i for i, job in enumerate(JOBS) if job.there)))
        listed.focus()

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        if message.key[0] == "job" and self._process is None:
            job = JOBS[message.key[1]]
            self.run_worker(self.run_job(job.arguments(self._trace, self._finding, self._beside)))

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()

    async def run_job(self, arguments: Sequence[str]) -> None:
        """Run one command and show its output as it comes."""
        self._said = [heading("hkvtool " + " ".join(map(shown, arguments))), line("")]
        self._progress, self._began = "", monotonic()
        self._tick()
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hkvtool", *arguments,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(max(40, self.size.width - 16)),
                 ASKED: "1"},
        )  # fmt: skip
        ticking = self.set_interval(_TICK, self._tick)
        assert process.stdout is not None
        async for raw in process.stdout:
            text = raw.decode("utf-8", "replace").rstrip("\n")
            if text.startswith(PREFIX):
                self._progress = shown(text.removeprefix(PREFIX))
                self._tick()
                continue
            self._said.append(line(shown(text)))
            del self._said[2:-MOST_LINES]
            self._tick()
        self.code = await process.wait()
        self._process = None
        ticking.stop()
        said = _CODES.get(self.code, f"ended with {self.code}")
        self._show(f"{said}; esc goes back", "good" if self.code == 0 else "warn")

    def _tick(self) -> None:
        progress = f"{self._progress}, " if self._progress else ""
        seconds = monotonic() - self._began
        self._show(f"running … {progress}{seconds:.0f} s   esc calls it off", "warn")

    def _show(self, state: str, role: str) -> None:
        if self.is_mounted:
            listed = self.query_one(LineList)
            listed.put([*self._said, line(""), line((state, role))])
            listed.scroll_end(animate=False)

    def action_close(self) -> None:
        self._call_off()
        self.dismiss(None)

    def on_unmount(self) -> None:
        self._call_off()

    def _call_off(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()
