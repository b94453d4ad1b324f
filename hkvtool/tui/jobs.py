"""What can be done with a finding from here: confirm, explore, minimize, export, pack, explain.

Each is a command in a process of its own, told as it goes, that can be called off.
"""

from __future__ import annotations

import asyncio
import os
import shlex
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
from hkvtool.model.findings import Finding
from hkvtool.model.progress import ASKED, PREFIX
from hkvtool.model.text import shown
from hkvtool.tui.lines import Line, heading, line, wrapped
from hkvtool.tui.unused import unused
from hkvtool.tui.widgets import LineList, Lines

_TICK = 0.2
"""Seconds between two looks at what a running command said."""

_CODES: dict[int, str] = {
    Exit.OK: "done", Exit.FINDINGS: "done: it is there (1)",
    Exit.INCONCLUSIVE: "done: that cannot be told (4)",
}  # fmt: skip
"""What exit codes say; others are failures."""

MOST_LINES, MOST_BYTES = 5000, 4000
"""Lines of output that are kept, the first are dropped; and bytes of each, the last are."""

_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Job:
    """One command about a finding."""

    text: str
    command: str
    options: tuple[str, ...]
    output: str | None = None
    """The file that it writes."""
    blockless: tuple[str, ...] = ()
    """Options in place of the others where the finding names a request, but no block."""

    @property
    def there(self) -> bool:
        """Whether this installation has it."""
        return find_spec(f"hkvtool.cli.{self.command}") is not None

    def arguments(
        self, trace: str, finding: str, beside: str, request: str | None = None
    ) -> list[str]:
        """Its command line, behind `hkvtool`. `request` is that of a finding without blocks."""
        options = self.options if request is None else self.blockless or self.options
        filled = [o if o.startswith("--") else o.format(finding=finding, request=request)
                  for o in options]  # fmt: skip
        if self.output is not None:
            name = self.output.format(finding=finding, beside=beside)
            filled += ["-o", unused(name, "_" if name.endswith(".py") else "-")]
        return [self.command, trace, *filled]


JOBS = (
    Job("confirm it by replay: fault arm and control arm", "replay",
        ("--depth", "cache", "--finding", "{finding}")),
    Job("explore the orders that the edges leave open", "explore", ("--finding", "{finding}"),
        blockless=("--request", "{request}")),
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

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c,ctrl+q", "close", "cancel, close")
    ]

    def __init__(self, trace: str, finding: Finding, beside: str, given: str | None = None) -> None:
        """`given` is the path to show where the trace is read from another, which will be gone."""
        super().__init__()
        self._given = given or trace
        self._trace, self._finding, self._beside = trace, finding, beside
        self._process: asyncio.subprocess.Process | None = None
        self._said: list[Line] = []
        self.code: int | None = None
        self._progress, self._began = "", 0.0
        self._chosen, self._head = "", 0

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield LineList(id="jobs")
            yield Lines(id="state")

    def on_mount(self) -> None:
        listed = self.query_one(LineList)
        rows = [heading(f"{self._finding.id}: what to do with it"), line("")]
        for number, job in enumerate(JOBS):
            if job.there:
                told = shown(" ".join(self._arguments(job, "TRACE")))
                rows += [
                    line(f"  {job.text}", key=("job", number)),
                    line((f"    hkvtool {told}", "dim")),
                ]
        self.query_one(Lines).put([line(("enter runs it, esc goes back", "dim"))])
        listed.put(rows, ("job", next(i for i, job in enumerate(JOBS) if job.there)))
        listed.focus()

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        if message.key[0] == "job" and not self._chosen:
            job = JOBS[message.key[1]]
            # At once: whoever presses the key twice means it once.
            self._chosen = job.command
            self.run_worker(self.run_job(self._arguments(job, self._trace)))

    def _arguments(self, job: Job, trace: str) -> list[str]:
        found = self._finding
        request = None if found.blocks else found.request
        return job.arguments(trace, found.id, self._beside, request)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()

    async def run_job(self, arguments: Sequence[str]) -> None:
        """Run one command and show its output as it comes."""
        named = (self._given if a == self._trace else a for a in arguments)
        told = shown("hkvtool " + shlex.join(named))
        width = max((listed.width for listed in self.query(LineList)), default=0)
        self._said = [*wrapped(told, max(20, width), "title"), line("")]
        self._head = len(self._said)
        self._progress, self._began = "", monotonic()
        self._tick()
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hkvtool", *arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "NO_COLOR": "1", "COLUMNS": str(max(40, self.size.width - 16)),
                     ASKED: "1"},
            )  # fmt: skip
        except OSError as e:
            self.code = Exit.USAGE
            self._show(f"it cannot be started: {shown(e.strerror or e)}; esc goes back", "bad")
            return
        if not self.is_attached:
            # Called off before it began.
            self._call_off()
        ticking = self.set_interval(_TICK, self._tick)
        assert process.stdout is not None
        rest = b""
        while read := await process.stdout.read(_AT_ONCE):
            *lines, rest = (rest + read).split(b"\n")
            for raw in lines:
                self._heard(raw)
            # Nobody reads a line that goes on for ever.
            rest = rest[:MOST_BYTES]
        if rest:
            self._heard(rest)
        self.code = await process.wait()
        self._process = None
        ticking.stop()
        self._show(f"{ending(self.code)}; esc goes back", "good" if self.code == 0 else "warn")
        for listed in self.query(LineList):
            # What came of it is told first. A screen that is being left has none any more.
            listed.call_after_refresh(listed.scroll_home, animate=False)

    def _heard(self, raw: bytes) -> None:
        text = raw[:MOST_BYTES].decode("utf-8", "replace")
        if text.startswith(PREFIX):
            self._progress = shown(text.removeprefix(PREFIX))
            self._say(self._how_far(), "warn")
            return
        self._said.append(line(shown(text)))
        del self._said[self._head : -MOST_LINES]

    def _tick(self) -> None:
        self._show(self._how_far(), "warn")

    def _how_far(self) -> str:
        progress = f"{self._progress}, " if self._progress else ""
        return f"running … {progress}{monotonic() - self._began:.0f} s   esc calls it off"

    def _say(self, state: str, role: str) -> None:
        for told in self.query(Lines):
            told.put([line((state, role))])

    def _show(self, state: str, role: str) -> None:
        for listed in self.query(LineList):
            # Whoever has gone back to read is left there.
            at_end = listed.is_vertical_scroll_end
            listed.put(self._said)
            self._say(state, role)
            if at_end:
                listed.scroll_end(animate=False)

    def action_close(self) -> None:
        if self._chosen and self.code is None:
            self.notify(f"{self._chosen} was called off")
        self._call_off()
        self.dismiss(None)

    def on_unmount(self) -> None:
        self._call_off()

    def _call_off(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.terminate()


def ending(code: int) -> str:
    """What an exit code says, or what ended a process that had none."""
    if code < 0:
        return f"it was ended by signal {-code}"
    return _CODES.get(code, f"it failed ({code})")
