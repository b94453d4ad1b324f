"""The map on the screen."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hkvtool.tui import cells as c
from hkvtool.tui.mosaic import DETAIL, Mosaic, Place, Row
from hkvtool.tui.widgets import palette_of, strip_of


class MapView(ScrollView, can_focus=True):
    """The cells of every pool, and a cursor among them."""

    DEFAULT_CSS = "MapView { width: 1fr; height: 1fr; overflow-x: hidden; }"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "go(-1, 0)", show=False),
        Binding("right", "go(1, 0)", show=False),
        Binding("up,k", "go(0, -1)", show=False),
        Binding("down,j", "go(0, 1)", show=False),
        Binding("shift+left", "go(-8, 0)", show=False),
        Binding("shift+right", "go(8, 0)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    class Moved(Message):
        """The cursor is on another cell."""

        def __init__(self, block: tuple[str, int]) -> None:
            super().__init__()
            self.block = block

    class Resized(Message):
        """There is more room, or less."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mosaic: Mosaic | None = None
        self.place: Place | None = None

    def put(self, mosaic: Mosaic, block: tuple[str, int] | None) -> None:
        """Show this, the cursor on the cell of a block."""
        self.mosaic = mosaic
        self.virtual_size = Size(self.size.width, len(mosaic.rows))
        place = mosaic.place_of(*block) if block else None
        moved = place != self.place
        self.place = place
        if place is not None and moved:
            self.call_after_refresh(self._show_cursor)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        palette, width = palette_of(self), self.size.width
        base = palette.base()
        at = y + self.scroll_offset.y
        if self.mosaic is None or not 0 <= at < len(self.mosaic.rows):
            return Strip.blank(width, base)
        row = self.mosaic.rows[at]
        if row.kind == "head":
            return strip_of(self.mosaic.heading(row.pool), width, palette, base)
        if row.kind == "unused":
            here = self.place is not None and self.mosaic.row_of(self.place) == at
            return strip_of(self.mosaic.unused(row), width, palette, base, here)
        if row.kind != "cells":
            return Strip.blank(width, base)
        segments = [Segment(self.mosaic.label(row), base + palette.role("label"))]
        segments += self._segments(row, base)
        return Strip(segments).adjust_cell_length(width, base).crop(0, width)

    def _segments(self, row: Row, base: Any) -> list[Segment]:
        """Neighbouring cells of one style as one piece of text."""
        assert self.mosaic is not None
        view = self.mosaic.view
        end = min(row.first + view.across, self.mosaic.count(row.pool))
        chars, glyphs, styles = self.mosaic.cells(row.pool, row.first, end)
        if self.place is not None and self.place.pool == row.pool:
            if row.first <= self.place.cell < end:
                styles = styles.copy()
                styles[self.place.cell - row.first] = c.CURSOR
        table = palette_of(self).cells()
        if view.zoom == DETAIL:
            return _wide(chars, glyphs, styles, table, base)
        text = chars.astype("<u4").tobytes().decode("utf-32-le")
        cuts = [0, *(np.flatnonzero(np.diff(styles)) + 1).tolist(), len(styles)]
        return [Segment(text[a:b], base + table[styles[a]]) for a, b in pairwise(cuts) if b > a]

    def action_go(self, across: int, down: int) -> None:
        if self.mosaic is None or not self.mosaic.pools:
            return
        start = self.place or Place(0, 0)
        self._to(self.mosaic.moved(start, across, down) if self.place else start)

    def action_page(self, by: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + by * max(1, self.size.height - 2), animate=False)

    def on_click(self, event: events.Click) -> None:
        if self.mosaic is not None:
            place = self.mosaic.place_at(event.y + self.scroll_offset.y, event.x)
            if place is not None:
                self._to(place)

    def on_resize(self) -> None:
        self.post_message(self.Resized())

    def _to(self, place: Place) -> None:
        assert self.mosaic is not None
        self.place = place
        self._show_cursor()
        self.refresh()
        block = self.mosaic.block_at(place)
        if block is not None:
            self.post_message(self.Moved(block))

    def _show_cursor(self) -> None:
        if self.mosaic is None or self.place is None:
            return
        row, top = self.mosaic.row_of(self.place), self.scroll_offset.y
        height = max(1, self.size.height)
        if row <= top:
            self.scroll_to(y=max(0, row - 1), animate=False)
        elif row >= top + height - 1:
            self.scroll_to(y=row - height + 2, animate=False)


def _wide(chars: Any, glyphs: Any, styles: Any, table: Any, base: Any) -> list[Segment]:
    out = []
    for char, glyph, style in zip(chars.tolist(), glyphs.tolist(), styles.tolist(), strict=True):
        out.append(Segment(chr(char) + chr(glyph), base + table[style]))
        out.append(Segment(" ", base))
    return out
