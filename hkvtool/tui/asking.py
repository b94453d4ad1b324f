"""Asking for things by name: places, blocks, filters, what to do with a finding."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from hkvtool.model.errors import HkvError
from hkvtool.model.text import shown
from hkvtool.tui import words
from hkvtool.tui.filters import BlockFilter, parsed
from hkvtool.tui.lines import line
from hkvtool.tui.prompt import Choice, Page, Prompt
from hkvtool.tui.travelling import Travelling


class Asking(Travelling):
    """What is typed, and what is let go of."""

    goes_on = False
    """Whether the program that is recorded is to go on when this is left."""

    # --- asking ----------------------------------------------------------------------------

    def _prompt(
        self, words_: str, examples: str, then: Callable[[str], None], text: str = ""
    ) -> None:
        def answered(found: str | None) -> None:
            if found is None:
                return
            try:
                then(found)
            except HkvError as e:
                self.notify(shown(e.line), severity="error", markup=False)

        self.push_screen(Prompt(words_, text, examples), answered)

    def action_jump(self) -> None:
        self._prompt("go to", "1200   s504   12.5ms   50%   F2", self.jump)

    def jump(self, text: str) -> None:
        """Go where some text says. Raises HkvError."""
        wanted, session = text.replace(",", "").replace("_", ""), self.session
        try:
            if wanted.isdecimal():
                self.go(int(wanted))
            elif wanted.endswith("%"):
                share = float(wanted[:-1]) / 100
                self.go(session.first + round(share * (session.last - session.first)))
            elif wanted.endswith("ms"):
                ns = round(float(wanted[:-2]) * 1e6)
                self.away(lambda: session.at_time(ns), self.go)
            elif wanted[:1] in "sS" and wanted[1:].isdecimal():
                step = int(wanted[1:])
                self.away(lambda: session.step_at(step), self.go)
            elif wanted[:1] in "fF" and wanted[1:].isdecimal():
                self.choose_finding(f"F{int(wanted[1:])}", move=True)
            else:
                raise ValueError(text)
        except (ValueError, OverflowError):
            raise HkvError(f"{text!r} is no place in the trace",
                           hint="a position, s504, 12.5ms, 50% or F2") from None  # fmt: skip

    def action_filter(self) -> None:
        self._prompt(
            "only blocks with", "group=fa  req=r2  form=swa  layer=3  rule=303  state=free",
            self.let_through, self.filter.text,
        )  # fmt: skip

    def let_through(self, text: str) -> None:
        """Filter the map. Raises HkvError."""
        self.filter = parsed(text)
        self.ask()

    def action_find(self) -> None:
        self._prompt("find", "gpu:13   r2   F1   HKV303   a hash", self.find)

    def find(self, text: str) -> None:
        """Go to what some text names. Raises HkvError."""
        if not text:
            return
        pools = {p.name: p for p in self.look.pools} if self.look else {}
        pool, colon, number = text.rpartition(":")
        if not colon and number.isdecimal() and len(pools) == 1:
            pool = next(iter(pools))
        if pool in pools and number.isdecimal():
            self.choose_block((pool, int(number)))
            if self.current not in ("map", "block"):
                self.action_view("map")
            return
        if text[:1] in "fF" and text[1:].isdecimal():
            self.jump(text)
            self.action_view("findings")
            return
        code = "HKV" + text.upper().removeprefix("HKV")
        match = next((f for f in self.roots if f.code == code), None)
        if match is not None:
            self.choose_finding(match.id, move=True)
            self.action_view("findings")
            return
        session = self.session
        self.away(lambda: session.first_of(text), lambda pos: self._found_request(text, pos))

    def _found_request(self, text: str, pos: int | None) -> None:
        """A request's first event; what is no request may be a hash."""
        if pos is None:
            self.filter = parsed(f"hash={text}")
            self.ask()
            return
        self.req = text
        self.go(pos)
        self.action_view("requests")

    def action_let_go(self) -> None:
        if self.filter:
            self.filter = BlockFilter()
            self.ask()
        elif self.current == "hit" and self.req is not None:
            self.req = None
            self.ask()
        elif self.finding is not None and self.current != "findings":
            self.finding = None
            self.show_all()
        else:
            self.req = None
            self.ask()

    async def action_quit(self) -> None:
        live = self.session.live
        if self.beside is None or live is None or live.over:
            self.exit()
            return

        def answered(found: str | None) -> None:
            if found is not None:
                self.goes_on = found == "l"
                self.exit()

        choices = {"e": "end the program and make the trace",
                   "l": "leave the screen; the program and its recording go on"}  # fmt: skip
        self.push_screen(Choice("The program is still running", choices), answered)

    def action_printed(self) -> None:
        if self.beside is None:
            self.notify("there is none: `hkvtool record --live` runs one under this screen")
            return
        lines = [line(shown(text)) for text in self.beside.printed()]
        head = line((f"{shown(self.beside.log)}, its end", "dim"))
        self.push_screen(Page([*lines, line(""), head], at_end=True))

    def action_confirm(self) -> None:
        from hkvtool.tui.jobs import JobScreen

        if self.finding is None:
            self.notify(self.state_of_check() or "no finding is chosen")
            return
        beside = os.path.splitext(self.trace_name)[0]
        self.push_screen(
            JobScreen(self.session.path, self.finding, beside, given=self.session.given)
        )

    def action_copy_command(self) -> None:
        text = words.reproduce(
            self.session.given, self.current, self.wanted_pos, self.block,
            self.finding.id if self.finding else None, self.req,
        )  # fmt: skip
        with contextlib.suppress(Exception):
            self.copy_to_clipboard(text)
        self.notify(text, title="copied", markup=False)
