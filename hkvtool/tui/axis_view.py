"""The time axis on the screen: drawn, clicked and dragged."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from hkvtool.tui.axis_lines import LABEL, Axis, axis_lines
from hkvtool.tui.lines import Line, line
from hkvtool.tui.widgets import palette_of, strip_of


class AxisView(Widget, can_focus=True):
    """What happens where, and the cursor in time."""

    DEFAULT_CSS = "AxisView { height: 6; width: 1fr; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "scrub(-1)", show=False),
        Binding("right", "scrub(1)", show=False),
        Binding("shift+left,pageup", "scrub(-10)", show=False),
        Binding("shift+right,pagedown", "scrub(10)", show=False),
    ]

    class Scrubbed(Message):
        """The cursor was moved to a position."""

        def __init__(self, pos: int) -> None:
            super().__init__()
            self.pos = pos

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.axis: Axis | None = None
        self.pos = self.wanted = 0
        self._drawn: list[Line] = []
        self._dragging = False

    def put(self, axis: Axis, pos: int, wanted: int) -> None:
        """Show this."""
        self.axis, self.pos, self.wanted = axis, pos, wanted
        self._drawn = []
        self.refresh()

    def render_line(self, y: int) -> Strip:
        palette = palette_of(self)
        if self.axis is None:
            return Strip.blank(self.size.width, palette.base())
        if not self._drawn:
            size = self.size
            self._drawn = list(
                axis_lines(self.axis, self.pos, size.width, size.height, self.wanted)
            )
        row = self._drawn[y] if y < len(self._drawn) else line("")
        if y == 0 and self.has_focus:
            row = Line((("▸" + row.spans[0][0][1:], "key"), *row.spans[1:]))
        return strip_of(row, self.size.width, palette, palette.base())

    def on_resize(self) -> None:
        self._drawn = []

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def action_scrub(self, by: int) -> None:
        """So many columns on, one event at least."""
        if self.axis is None:
            return
        room = max(8, self.size.width - LABEL)
        column = self.axis.column(self.wanted, room)
        target = self.axis.position(max(0, min(room - 1, column + by)), room)
        if by > 0 and target <= self.wanted:
            target = self.wanted + 1
        if by < 0 and target >= self.wanted:
            target = self.wanted - 1
        self.post_message(self.Scrubbed(max(self.axis.first, min(self.axis.last, target))))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragging = True
        self.capture_mouse()
        self._scrub_to(event.x)

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self._dragging:
            self._scrub_to(event.x)

    def on_mouse_up(self, event: events.MouseUp) -> None:
        self._dragging = False
        self.release_mouse()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_scrub(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_scrub(-1)

    def _scrub_to(self, x: int) -> None:
        if self.axis is not None and x >= LABEL:
            room = max(8, self.size.width - LABEL)
            self.post_message(self.Scrubbed(self.axis.position(min(room - 1, x - LABEL), room)))
