"""The terminal application: one trace, one moment, several ways to look at it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal
from textual.screen import Screen
from textual.theme import Theme

from hkvtool.model.errors import HkvError
from hkvtool.model.findings import Finding
from hkvtool.model.text import shown
from hkvtool.store.exporting import writing
from hkvtool.tui import words
from hkvtool.tui.actions import ACTIONS, VIEWS
from hkvtool.tui.asking import Asking
from hkvtool.tui.axis_lines import Axis
from hkvtool.tui.axis_view import AxisView
from hkvtool.tui.beside import Beside
from hkvtool.tui.block_lines import block_lines
from hkvtool.tui.finding_lines import (
    finding_lines,
    headline,
    ids,
    list_lines,
    summary_lines,
)
from hkvtool.tui.hit_lines import hit_lines
from hkvtool.tui.lines import Line, fitted, line
from hkvtool.tui.map_view import MapView
from hkvtool.tui.mosaic import MOST_ZOOM, Mosaic, View, fitting_zoom, layout
from hkvtool.tui.palette import DARK, LIGHT, Palette
from hkvtool.tui.prompt import Page
from hkvtool.tui.session import Session
from hkvtool.tui.tables import (
    event_lines,
    ratio_lines,
    request_lines,
    request_rows,
    transfer_lines,
    why_lines,
)
from hkvtool.tui.unused import unused
from hkvtool.tui.widgets import LineList, Lines

FEW = 2
"""So many findings are listed above the one that is open, more beside it."""

WIDE, TALL, LOW = 112, 30, 20
"""From so many columns there is a side panel, from so many lines the axis has all its rows; below
so many there is as little as can be around a view."""


def _theme(palette: Palette, name: str) -> Theme:
    return Theme(
        name, primary=palette.accent, foreground=palette.foreground,
        background=palette.background, surface=palette.raised, panel=palette.edge,
        accent=palette.accent, dark=palette.dark,
    )  # fmt: skip


class Tui(Asking):
    """Looks at one trace."""

    CSS_PATH = "app.tcss"
    TITLE = "hkvtool"
    ENABLE_COMMAND_PALETTE = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(action.keys, action.name, action.text, show=False) for action in ACTIONS
        if action.name not in ("open",)
    ]  # fmt: skip

    def __init__(self, session: Session, *, name: str, start: int | None = None,
                 view: str | None = None, check: bool | None = None,
                 beside: Beside | None = None) -> None:  # fmt: skip
        super().__init__()
        self.beside = beside
        self.follow(session, name, start, check)
        self.palette = DARK
        self.current = view or "map"
        self.view_asked = view is not None
        self.zoom: int | None = None
        self._fitting: tuple[int, int, int] | None = None
        self.colouring = "form"

    # --- screen ----------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Lines(id="title", role="bar")
        yield Lines(id="headline")
        yield Lines(id="tabs", role="")
        with Horizontal(id="body"):
            with Container(id="map", classes="view"):
                yield MapView(id="mosaic")
                yield Lines(id="legend")
            with Container(id="block", classes="view"):
                yield LineList(id="block-list")
            with Container(id="hit", classes="view"):
                yield LineList(id="hit-list")
            with Container(id="findings", classes="view"):
                yield LineList(id="findings-list")
                yield LineList(id="finding-list")
            with Container(id="requests", classes="view"):
                yield LineList(id="requests-list")
                yield LineList(id="requests-why")
            with Container(id="transfers", classes="view"):
                yield LineList(id="transfers-list")
            with Container(id="ratios", classes="view"):
                yield LineList(id="ratios-list")
            with Container(id="events", classes="view"):
                yield LineList(id="events-list")
            yield LineList(id="side")
        yield AxisView(id="axis")
        yield Lines(id="keys", role="bar")

    def on_mount(self) -> None:
        self.register_theme(_theme(DARK, "hkv-dark"))
        self.register_theme(_theme(LIGHT, "hkv-light"))
        self.theme = "hkv-dark"
        self._fit()
        self.turn(self.current)
        self.begin()

    def on_resize(self) -> None:
        self._fit()
        self.call_after_refresh(self.show_all)

    def _fit(self) -> None:
        self.board.set_class(self.size.width >= WIDE, "wide")
        self.board.set_class(self.size.height < TALL, "short")
        self.board.set_class(self.size.height < LOW, "low")

    def turn(self, view: str) -> None:
        """Show one of the views."""
        self.current = view
        # While one stays on the map its zoom does not change by itself, but to show more.
        self._fitting = None
        if not self.drawable:
            return
        for name in VIEWS:
            self.query_one(f"#{name}").set_class(name == view, "-shown")
        side = self.query_one("#side")
        side.styles.display = "block" if self.size.width >= WIDE and view == "map" else "none"
        self.focus_of(view).focus()

    def focus_of(self, view: str) -> Any:
        """What has the focus in a view."""
        return self.query_one("#mosaic" if view == "map" else f"#{view}-list")

    # --- showing ---------------------------------------------------------------------------

    def show_all(self) -> None:
        """Draw everything anew from what is known."""
        self.show_bars()
        self.show_view()
        self.show_axis()

    @property
    def board(self) -> Screen[Any]:
        """The screen that everything is on; help, questions and jobs lie over it."""
        return self.screen_stack[0]

    @property
    def drawable(self) -> bool:
        """Whether the board is there: what comes in may be later than it is taken down."""
        there = bool(self.is_running and self.screen_stack)
        return there and bool(self.board.query("#title")) and bool(self.board.query("#axis"))

    def query_one(self, *selector: Any, **named: Any) -> Any:
        """A widget of the board, also while something lies over it."""
        return self.board.query_one(*selector, **named)

    def show_bars(self) -> None:
        """The lines above and below."""
        if not self.drawable:
            return
        width, look = self.size.width, self.look
        event = look.event if look else None
        meta = self.session.trace.meta
        ts = event.get("ts") if event is not None else None
        moment = words.moment_text(
            ts if isinstance(ts, int) else None, meta.get("first_ts"),
            event.step if event is not None else None,
        )  # fmt: skip
        pos = min(look.pos if look else self.wanted_pos, self.session.last)
        self.query_one("#title", Lines).put([
            words.title_spans(
                self.trace_name, str(meta.get("engine", "")), self.session.trace.count, pos,
                self.session.last, moment, self.state_text(), width,
            )
        ])  # fmt: skip
        self.query_one("#headline", Lines).put([self._headline(width)])
        roots = None if self.session.report is None else len(self.roots)
        self.query_one("#tabs", Lines).put([words.tab_spans(self.current, roots, width)])
        self.query_one("#keys", Lines).put([words.key_spans(self.current, width)])

    def _headline(self, width: int) -> Line:
        """What one is looking at."""
        if self.error:
            return line((f" {shown(self.error)}", "bad"))
        if self.session.last < self.session.first:
            return self._waiting()
        if self.filter:
            return line((" only ", "warn"), (shown(self.filter.text), "bold"),
                        ("   esc lets everything through", "dim"))  # fmt: skip
        if self.finding is not None:
            return line(" ", *headline(self.finding, width - 2))
        return line((fitted(f" {words.about(self.current)}", width), "dim"))

    def _waiting(self) -> Line:
        """A recording in which nothing has happened yet."""
        live, printed = self.session.live, self.beside.printed() if self.beside else []
        what = "nothing was recorded" if live is None or live.over else "waiting for an event"
        said = f"   it prints: {shown(printed[-1])}   o shows more" if printed else ""
        return line((f" {what}", "warn"), (said, "dim"))

    def show_view(self) -> None:
        """The view that is open, and the panel beside it."""
        look = self.look
        if look is None or not self.drawable:
            return
        show = getattr(self, f"_show_{self.current}")
        show()
        side = self.query_one("#side", LineList)
        if side.display:
            side.put(list(self._block_lines(side.width)))

    def show_map(self) -> None:
        """Draw the map alone, where nothing else changes: what it looks like."""
        if self.current == "map" and self.look is not None and self.drawable:
            self._show_map()

    def _show_map(self) -> None:
        look, widget = self.look, self.query_one("#mosaic", MapView)
        assert look is not None
        view = self.map_view(widget)
        widget.put(Mosaic(look.pools, look.pos, view, self.marked()), self.block)
        legend = self.query_one("#legend", Lines)
        legend.put(list(words.legend_lines(view, widget.size.width)))

    def map_view(self, widget: MapView) -> View:
        """How the map is looked at; the closest that shows everything, until one chooses."""
        assert self.look is not None
        width = max(20, widget.size.width - 1)
        zoom, height = self.zoom, max(4, widget.size.height)
        if zoom is None:
            fits = self._fitting is not None and self._fitting[:2] == (width, height)
            if fits and self._fitting is not None:
                zoom = self._fitting[2]
                fits = len(layout(self.look.pools, View(width, zoom))) <= height
            if not fits or zoom is None:
                zoom = fitting_zoom(self.look.pools, width, height)
                self._fitting = width, height, zoom
        return View(width, zoom, self.colouring)

    def marked(self) -> list[Finding]:
        """The findings whose blocks stand out: the one chosen, else those under way now."""
        if self.finding is not None:
            return [self.finding]
        pos = self.look.pos if self.look else 0
        return [f for f in self.roots if f.events and f.events[0] <= pos <= f.events[-1]]

    def _block_lines(self, width: int) -> Iterable[Line]:
        look = self.look
        assert look is not None
        pool = next((p for p in look.pools if self.block and p.name == self.block[0]), None)
        return block_lines(
            look.block, look.states, width, facts=look.facts, life=self.life_now(), now=look.pos,
            findings=self.session.report.findings if self.session.report else (),
            reserved=bool(pool and self.block and self.block[1] in pool.reserved),
        )  # fmt: skip

    def _show_block(self) -> None:
        widget = self.query_one("#block-list", LineList)
        widget.put(list(self._block_lines(widget.width)))

    def _show_hit(self) -> None:
        widget, look = self.query_one("#hit-list", LineList), self.look
        assert look is not None
        report = self.session.report
        widget.put(
            list(hit_lines(look.hit, widget.width, report=report, now=look.pos, req=self.req))
        )

    def _show_findings(self) -> None:
        listed, detail = (
            self.query_one("#findings-list", LineList),
            self.query_one("#finding-list", LineList),
        )
        report, look = self.session.report, self.look
        assert look is not None
        if report is None:
            listed.put([line((self.state_of_check(), "dim"))])
            detail.put([])
            return
        chosen = self.finding or (self.roots[0] if self.roots else None)
        rows = list(list_lines(self.roots, listed.width, chosen))
        self.board.set_class(len(rows) <= FEW, "few")
        if not rows:
            rows = [line(("no finding, as far as the evidence goes", "good"))]
        listed.put(rows, ("finding", chosen.id) if chosen else None)
        if chosen is None:
            detail.put(list(summary_lines(report, detail.width)))
            return
        found = list(
            finding_lines(
                chosen,
                ids(report.findings),
                self.stretch_of(chosen),
                detail.width,
                look.pos,
                report.ratios.lookups,
            )
        )
        found += [line(""), *summary_lines(report, detail.width)]
        detail.put(found)

    def _show_requests(self) -> None:
        listed, why = (self.query_one(f"#{name}", LineList)
                       for name in ("requests-list", "requests-why"))  # fmt: skip
        look = self.look
        assert look is not None
        self.requests = request_rows(self.around("requests"), look.pos, self.session.report)
        listed.put(list(request_lines(self.requests, look.pos, listed.width)),
                   ("request", self.req) if self.req else None)  # fmt: skip
        row = next((r for r in self.requests if r.req == self.req), None)
        if row is None:
            row = next((r for r in self.requests if r.findings), None)
        why.put(list(why_lines(row, why.width)))

    def _show_transfers(self) -> None:
        widget, look = self.query_one("#transfers-list", LineList), self.look
        assert look is not None
        widget.put(list(transfer_lines(self.around("transfers"), look.pos, widget.width)))

    def _show_ratios(self) -> None:
        widget = self.query_one("#ratios-list", LineList)
        widget.put(list(ratio_lines(self.session.report, widget.width)))

    def _show_events(self) -> None:
        widget, look = self.query_one("#events-list", LineList), self.look
        assert look is not None
        named = {p: f for f in reversed(self.roots) for p in f.events}
        rows = list(
            event_lines(self.around("events"), look.pos, widget.width, named,
                        self.session.trace.meta.get("first_ts"))
        )  # fmt: skip
        here = next((r.key for r in rows if r.key == ("pos", look.pos)), None)
        widget.put(rows, here)

    def show_axis(self) -> None:
        """The time axis."""
        if not self.drawable:
            return
        axis = Axis(
            self.session.first, self.session.last, self.timeline, self.session.report, self.roots,
            self.session.trace.meta.get("first_ts"),
        )  # fmt: skip
        pos = self.look.pos if self.look else self.wanted_pos
        self.query_one("#axis", AxisView).put(axis, pos, self.wanted_pos)

    # --- what was clicked or chosen --------------------------------------------------------

    def on_map_view_moved(self, message: MapView.Moved) -> None:
        self.choose_block(message.block)

    def on_map_view_resized(self) -> None:
        self.show_map()

    def on_axis_view_scrubbed(self, message: AxisView.Scrubbed) -> None:
        self.go(message.pos)

    def on_line_list_chosen(self, message: LineList.Chosen) -> None:
        self.open_key(message.key)

    def on_line_list_moved(self, message: LineList.Moved) -> None:
        if message.control.id == "findings-list":
            self.choose_finding(message.key[1], move=False)
        elif message.control.id == "requests-list":
            self.req = message.key[1]
            self._show_requests()

    def on_click(self, event: Any) -> None:
        widget = event.widget
        if isinstance(widget, Lines) and widget.id == "tabs":
            tabs = words.tab_spans(
                self.current, len(self.roots) if self.session.report else None, self.size.width
            )
            view = words.tab_at(tabs, event.x)
            if view:
                self.action_view(view)
        elif isinstance(widget, Lines) and widget.id == "keys":
            name = words.action_at(self.current, self.size.width, event.x)
            if name:
                self.run_worker(self.run_action(name))

    def open_key(self, key: Any) -> None:
        """Open what a line stands for."""
        kind = key[0]
        if kind == "finding":
            self.choose_finding(key[1], move=True)
            self.action_view("findings")
        elif kind == "pos":
            self.go(key[1])
        elif kind == "block":
            self.choose_block((str(key[1]), int(key[2])))
            self.action_view("map")
        elif kind == "request":
            self.req = key[1]
            row = next((r for r in self.requests if r.req == key[1]), None)
            if row is not None and row.check is not None:
                self.go(row.check)
                self.action_view("hit")
        elif kind == "check":
            self.go(key[1])
            self.action_view("hit")
        elif kind == "group" and self.look is not None and self.look.hit is not None:
            block = self.look.hit.block_of(key[1])
            if block is not None:
                self.choose_block(block)
                self.action_view("map")
        elif kind == "loss":
            match = next((f for f in self.roots if f.code == key[1] and f.group == key[2]), None)
            if match is not None:
                self.open_key(("finding", match.id))

    # --- actions ---------------------------------------------------------------------------

    def action_view(self, view: str) -> None:
        """Go to a view."""
        self.turn(view)
        self.call_after_refresh(self.show_all)
        self.ask()

    def action_zoom_in(self) -> None:
        """Zoom in."""
        self._zoom(-1)

    def action_zoom_out(self) -> None:
        """Zoom out."""
        self._zoom(1)

    def _zoom(self, by: int) -> None:
        if self.look is not None:
            now = self.map_view(self.query_one("#mosaic", MapView)).zoom
            self.zoom = max(0, min(MOST_ZOOM, now + by))
            self.show_map()

    def action_zoom_fit(self) -> None:
        """Zoom so that everything is seen."""
        self.zoom = self._fitting = None
        self.show_map()

    def action_colouring(self) -> None:
        """Colour by the next thing."""
        from hkvtool.tui.cells import COLOURINGS

        at = COLOURINGS.index(self.colouring)
        self.colouring = COLOURINGS[(at + 1) % len(COLOURINGS)]
        self.show_map()

    def action_theme(self) -> None:
        """Dark or light."""
        self.palette = LIGHT if self.palette.dark else DARK
        self.theme = "hkv-dark" if self.palette.dark else "hkv-light"
        self.refresh(layout=True)
        for widget in self.query("*"):
            widget.refresh()
        self.show_all()

    def action_help(self) -> None:
        """Help for where one is."""
        width = max(40, int(self.size.width * 0.92) - 6)
        self.push_screen(Page(list(words.help_lines(self.current, width))))

    def action_screenshot(self, filename: str | None = None, path: str | None = None) -> None:
        """Save the screen as a picture."""
        named = filename or f"hkvtool-{self.current}-{self.wanted_pos}.svg"
        target = unused(os.path.join(path or "", named))
        try:
            self.save_picture(target, force=False)
        except HkvError as e:
            self.notify(shown(e.line), severity="error", markup=False)
        else:
            self.notify(f"saved {shown(target)}", markup=False)

    def save_picture(self, target: str, *, force: bool) -> None:
        """Write the screen as an SVG picture. Raises HkvError."""
        picture = self.export_screenshot(title=f"hkvtool tui {shown(self.trace_name)}")
        with writing(target, force=force) as file:
            file.write(picture.encode())

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for action in ACTIONS:
            if action.name != "open":
                yield SystemCommand(
                    action.text.capitalize(), action.section,
                    lambda name=action.name: self._run_named(name),
                )  # fmt: skip

    async def _run_named(self, name: str) -> None:
        await self.run_action(name)
