"""Lines on the screen: the one way in which text reaches a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from hkvtool.tui.lines import Line, line
from hkvtool.tui.palette import DARK, Palette

if TYPE_CHECKING:
    from rich.style import Style


def palette_of(widget: Widget) -> Palette:
    """The palette of the application that a widget is in."""
    found = getattr(widget.app, "palette", DARK)
    assert isinstance(found, Palette)
    return found


def strip_of(row: Line, width: int, palette: Palette, base: Style, chosen: bool = False) -> Strip:
    """A line as wide as the screen."""
    segments = []
    for text, role in row.spans:
        style = base + palette.role(role)
        if chosen:
            style = style + palette.role("chosen")
        segments.append(Segment(text, style))
    fill = base + palette.role("chosen") if chosen else base
    return Strip(segments).adjust_cell_length(width, fill).crop(0, width)


class Lines(Widget):
    """A few lines that do not scroll."""

    DEFAULT_CSS = "Lines { height: 1; width: 1fr; }"

    def __init__(self, *, id: str | None = None, role: str = "") -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._role = role

    def put(self, lines: Sequence[Line]) -> None:
        """Show these lines."""
        self._lines = lines
        self.refresh()

    def render_line(self, y: int) -> Strip:
        palette = palette_of(self)
        base = palette.base() + (palette.role(self._role) if self._role else palette.base())
        row = self._lines[y] if y < len(self._lines) else line("")
        return strip_of(row, self.size.width, palette, base)


class LineList(ScrollView, can_focus=True):
    """Lines that scroll; those with a key can be chosen."""

    DEFAULT_CSS = "LineList { width: 1fr; height: 1fr; overflow-x: hidden; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "step(-1)", show=False),
        Binding("down,j", "step(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "edge(-1)", show=False),
        Binding("end", "edge(1)", show=False),
        Binding("enter", "choose", show=False),
    ]

    class Chosen(Message):
        """The line under the cursor was chosen."""

        def __init__(self, key: Any) -> None:
            super().__init__()
            self.key = key

    class Moved(Message):
        """The cursor is on another line."""

        def __init__(self, sender: LineList, key: Any) -> None:
            super().__init__()
            self.sender, self.key = sender, key

        @property
        def control(self) -> LineList:
            return self.sender

    def __init__(self, *, id: str | None = None, choosable: bool = True) -> None:
        super().__init__(id=id)
        self._lines: Sequence[Line] = ()
        self._choosable = choosable
        self._at: int | None = None

    @property
    def width(self) -> int:
        """Columns for text."""
        return max(10, self.scrollable_content_region.width or self.size.width)

    def put(self, lines: Sequence[Line], key: Any = None, *, keep: bool = True) -> None:
        """Show these lines, the cursor on the one with `key`, or where it was."""
        was = self.key
        self._lines = list(lines)
        self.virtual_size = Size(self.size.width, len(self._lines))
        wanted = key if key is not None else was if keep else None
        self._at = next(
            (i for i, one in enumerate(self._lines) if one.key is not None and one.key == wanted),
            None,
        )
        if key is not None and self._at is not None:
            # How far one can scroll is known only then.
            self.call_after_refresh(self._show_cursor)
        elif not keep:
            self.scroll_to(y=0, animate=False)
        self.refresh()

    @property
    def key(self) -> Any:
        """The key of the line under the cursor."""
        if self._at is None or self._at >= len(self._lines):
            return None
        return self._lines[self._at].key

    def render_line(self, y: int) -> Strip:
        palette = palette_of(self)
        at = y + self.scroll_offset.y
        row = self._lines[at] if 0 <= at < len(self._lines) else line("")
        chosen = at == self._at and self.has_focus and row.key is not None
        return strip_of(row, self.size.width, palette, palette.base(), chosen)

    def action_step(self, by: int) -> None:
        """To the next line that can be chosen; without any, scroll."""
        at = -1 if self._at is None else self._at
        if self._at is None and by < 0:
            at = len(self._lines)
        elif self._at is None:
            at = self.scroll_offset.y - 1
        place = at + by
        while 0 <= place < len(self._lines):
            if self._lines[place].key is not None and self._choosable:
                self._at = place
                self._show_cursor()
                self.refresh()
                self.post_message(self.Moved(self, self.key))
                return
            place += by
        self.scroll_to(y=self.scroll_offset.y + by, animate=False)

    def action_page(self, by: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + by * max(1, self.size.height - 1), animate=False)

    def action_edge(self, by: int) -> None:
        self.scroll_to(y=0 if by < 0 else len(self._lines), animate=False)

    def action_choose(self) -> None:
        if self.key is not None:
            self.post_message(self.Chosen(self.key))

    def on_click(self, event: events.Click) -> None:
        at = event.y + self.scroll_offset.y
        if 0 <= at < len(self._lines) and self._lines[at].key is not None:
            again = at == self._at
            self._at = at
            self.refresh()
            self.post_message(self.Chosen(self.key) if again or not self._choosable
                              else self.Moved(self, self.key))  # fmt: skip

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def _show_cursor(self) -> None:
        if self._at is None:
            return
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top - height <= self._at < top + 2 * height:
            self.scroll_to(y=max(0, self._at - height // 2), animate=False)
        elif self._at < top:
            self.scroll_to(y=max(0, self._at - 1), animate=False)
        elif self._at >= top + height:
            self.scroll_to(y=self._at - height + 2, animate=False)
