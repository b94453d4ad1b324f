"""A question on the bottom line, and a page over the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Key
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from hkvtool.tui.lines import Line, heading, line
from hkvtool.tui.widgets import LineList


class Prompt(ModalScreen["str | None"]):
    """Asks for one line of text; None where it was given up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c,ctrl+q", "give_up", "give up", priority=True)
    ]

    def __init__(self, words: str, text: str = "", examples: str = "") -> None:
        super().__init__()
        self._words, self._text, self._examples = words, text, examples

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(self._words, id="words", markup=False)
            yield Input(value=self._text, placeholder=self._examples)

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())

    def action_give_up(self) -> None:
        self.dismiss(None)


class Page(ModalScreen[None]):
    """Lines over the screen until a key is pressed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter,ctrl+c,ctrl+q", "close", "close"),
    ]

    def __init__(self, lines: Sequence[Line], *, at_end: bool = False) -> None:
        super().__init__()
        self._lines, self._at_end = lines, at_end

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield LineList(id="page")

    def on_mount(self) -> None:
        page = self.query_one(LineList)
        page.put(self._lines)
        page.focus()
        if self._at_end:
            page.call_after_refresh(page.action_edge, 1)

    def action_close(self) -> None:
        self.dismiss(None)


class Choice(ModalScreen["str | None"]):
    """Asks which of a few things is meant, each with a key of its own; None where it was given
    up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c,ctrl+q", "give_up", "give up", priority=True)
    ]

    def __init__(self, words: str, choices: Mapping[str, str]) -> None:
        super().__init__()
        self._words, self._choices = words, choices

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield LineList(id="choices")

    def on_mount(self) -> None:
        rows = [heading(self._words), line("")]
        for key, what in self._choices.items():
            rows.append(line((f"  {key}  ", "key"), what, key=("choice", key)))
        rows.append(line(("  esc  ", "key"), "stay"))
        listed = self.query_one(LineList)
        listed.put(rows, ("choice", next(iter(self._choices))))
        listed.focus()

    def on_key(self, event: Key) -> None:
        if event.key in self._choices:
            event.stop()
            self.dismiss(event.key)

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        message.stop()
        self.dismiss(message.key[1])

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        message.stop()

    def action_give_up(self) -> None:
        self.dismiss(None)
