"""The cursor in time: where it is wanted, where it is, and the way between.

The state of a moment is worked out in a thread; keys are taken meanwhile, and only the latest
wish is looked up. A wish that nobody waits for any more is never begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from textual.app import App

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding, Report
from hkvtool.model.text import shown
from hkvtool.state.fold import PLAIN_LIMIT
from hkvtool.store.history import Moment
from hkvtool.store.timeline import Timeline
from hkvtool.tui.checking import AT_ONCE, BY_ITSELF, Checking
from hkvtool.tui.filters import BlockFilter
from hkvtool.tui.finding_lines import ids, use_of
from hkvtool.tui.session import Look, Session, roots_of
from hkvtool.tui.tables import AROUND, REQUEST_KINDS, TRANSFER_KINDS, RequestRow

if TYPE_CHECKING:
    from hkvtool.tui.beside import Beside
    from hkvtool.tui.live import Live

T = TypeVar("T")

EVENTS_AROUND = 120
"""Events shown on each side of the cursor."""

_REPORTED_EVERY = 0.5
"""Seconds between two looks at what a check found that goes along with a recording."""

BEFORE, BEHIND = 60, 8
"""Events before and behind a finding's own that may have to do with it."""

MOST_STRETCH = 4000
"""Events of a finding's stretch that are read for its picture."""


class Following(App[None]):
    """What an application knows of its trace and the cursor in it."""

    def follow(self, session: Session, name: str, start: int | None, check: bool | None) -> None:
        """Start from here."""
        self.session, self.trace_name = session, name
        self.look: Look | None = None
        self.wanted_pos = session.last if start is None else start
        running = session.live is not None and not session.live.over
        self._start_given = start is not None or running
        self._check_asked = check
        self.block: tuple[str, int] | None = None
        self.finding: Finding | None = None
        self.roots: list[Finding] = []
        self.filter = BlockFilter()
        self.req: str | None = None
        self.requests: list[RequestRow] = []
        self.timeline: Timeline | None = None
        self._counted, self.loaded = False, False
        self._growing = False
        self.error = ""
        self.speed = 1
        self.tailing = True
        self._checked_to = 0
        self._away = 0
        self._playing: Any = None
        self._checking: Checking | None = None
        self._wake = asyncio.Event()
        self._asked = self._answered = 0
        self._life: dict[tuple[str, int], list[Moment] | None] = {}
        self._around: dict[str, tuple[int, list[Event]]] = {}
        self._stretches: dict[str, list[Event]] = {}

    # --- what the application itself does --------------------------------------------------

    current: str
    view_asked: bool
    beside: Beside | None = None

    def show_all(self) -> None:
        """Draw everything anew."""
        raise NotImplementedError

    def show_view(self) -> None:
        """Draw the open view."""
        raise NotImplementedError

    def show_bars(self) -> None:
        """Draw the lines above and below."""
        raise NotImplementedError

    def show_axis(self) -> None:
        """Draw the time axis."""
        raise NotImplementedError

    def turn(self, view: str) -> None:
        """Show one of the views."""
        raise NotImplementedError

    def action_view(self, view: str) -> None:
        """Go to a view."""
        raise NotImplementedError

    # --- looking ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Everything that goes on beside the screen."""
        self.run_worker(self._follow(), group="follow", exit_on_error=True)
        self.run_worker(self._count(), group="count", exit_on_error=True)
        self.loaded = self.session.live is not None or self.session.trace.count < PLAIN_LIMIT
        if not self.loaded:
            self.run_worker(self._load(), group="load", exit_on_error=True)
        if self.session.live is not None and not self.session.live.over:
            self.run_worker(self._live(self.session.live), group="live", exit_on_error=True)
        count = self.session.trace.count
        wanted = self._check_asked
        if wanted is None:
            wanted = count <= BY_ITSELF
        live = self.session.live
        if live is not None and not live.over:
            self._found(live.report())
        elif wanted and count <= AT_ONCE:
            self._check_here()
        elif wanted:
            self.start_check()
        self.ask()

    def ask(self) -> None:
        """Look again: something that is looked at has changed."""
        self._asked += 1
        self._wake.set()

    @property
    def settled(self) -> bool:
        """Whether what is shown is what was asked for."""
        return self._asked == self._answered

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way that would change the screen by itself."""
        looked = self.look is not None or bool(self.error)
        reading = self.look is not None and self.block is not None and self.life_now() is None
        return (self.settled and self._checking is None and looked and not reading
                and self._counted and not self._away and not self._growing)  # fmt: skip

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked = self._asked
            try:
                look, view, around = await asyncio.to_thread(self._looked)
                self.error = ""
            except HkvError as e:
                self.error = e.what
                self._answered = asked
                self.show_all()
                continue
            self.look, self._answered = look, asked
            self.block = self.block or look.block
            if around is not None:
                self._around[view] = around
            self._read_life()
            self.show_all()

    def _looked(self) -> tuple[Look, str, tuple[int, list[Event]] | None]:
        """In a thread: the moment, and what the open view lists around it."""
        session, view = self.session, self.current
        look = session.look(
            self.wanted_pos, self.block, self.filter, self.req if view == "hit" else None,
            hit=view == "hit",
        )  # fmt: skip
        return look, view, self._read_around(session, view, look.pos)

    def _read_around(self, session: Session, view: str, pos: int) -> tuple[int, list[Event]] | None:
        spans = {
            "events": (EVENTS_AROUND, None), "requests": (AROUND, REQUEST_KINDS),
            "transfers": (AROUND, TRANSFER_KINDS),
        }  # fmt: skip
        if view not in spans:
            return None
        around, kinds = spans[view]
        held = self._around.get(view)
        if held is not None and held[0] == pos:
            return held
        since, until = pos - around, pos + around
        if kinds is None:
            return pos, list(session.moments.span(since, until))
        if session.last - session.first <= 2 * around:
            if held is not None:
                return pos, held[1]
            since, until = session.first, session.last
        return pos, list(session.trace.events(since, until, kinds=kinds))

    def around(self, view: str) -> Iterable[Event]:
        """The events that a view lists."""
        return self._around.get(view, (0, []))[1]

    async def _load(self) -> None:
        """Have the compiled fold at hand before somebody goes somewhere: loading it takes longer
        than going. The first picture does not wait for it."""
        from hkvtool.state import jit
        from hkvtool.state.untouched import give_back_code

        while self.look is None and not self.error:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(jit.ready)
        for library in ("llvmlite", "libarrow", "_duckdb"):
            give_back_code(library)
        self.loaded = True

    async def _count(self) -> None:
        # The state first: both at once take longer, and more memory than DuckDB is given.
        while self.look is None and not self.error:
            await asyncio.sleep(0.02)
        try:
            self.timeline = await asyncio.to_thread(self.session.axis)
        except HkvError as e:
            self.error = e.what
        self._counted = True
        self.show_axis()

    async def _live(self, live: Live) -> None:
        """Take in what a running recording has become. The cursor goes along while it is at the
        end; what was left behind is not lost."""
        reported, unreported = 0.0, False
        while not live.over:
            await asyncio.sleep(live.wait)
            before = self.session.last
            self._growing = True
            try:
                grown = await asyncio.to_thread(live.advance)
            except HkvError as e:
                self._growing, self.error = False, e.what
                self.show_bars()
                return
            unreported = unreported or grown
            if live.over or (unreported and monotonic() - reported > _REPORTED_EVERY):
                self._found(await asyncio.to_thread(live.report))
                reported, unreported, grown = monotonic(), False, True
            if grown:
                self._grown(before)
            self._growing = False
            self.show_bars()
        if not live.checked and self.session.trace.count <= BY_ITSELF:
            if self._check_asked is not False:
                self.start_check()

    def _grown(self, before: int) -> None:
        """Show more of the same recording; it ended there before. Keys were taken meanwhile."""
        live = self.session.live
        assert live is not None
        self.timeline = live.axis()
        if self.block is not None and self.block in self._life:
            self._read_life(more=True)
        if self.wanted_pos >= before and self.tailing:
            self._around, self._stretches = {}, {}
            self.wanted_pos = self.session.last
            self.ask()
        else:
            # Whoever looks at something is not disturbed.
            self.show_axis()

    def _found(self, report: Report | None) -> None:
        """What a check found that goes along with a recording."""
        if report is not None:
            self._moved = True
            self._checked(report)

    def away(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Ask the trace something that may take long, in a thread, and go on with the answer."""
        self._away += 1
        self.run_worker(self._answered_to(work, then), exit_on_error=True)

    async def _answered_to(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        try:
            then(await asyncio.to_thread(work))
        except HkvError as e:
            self.notify(shown(e.line), severity="error", markup=False)
        finally:
            self._away -= 1

    # --- one block -------------------------------------------------------------------------

    def choose_block(self, block: tuple[str, int]) -> None:
        """Look at a block."""
        if block != self.block:
            self.block = block
            self.ask()

    def life_now(self) -> list[Moment] | None:
        """The life of the block, None while it is read."""
        return self._life.get(self.block) if self.block else []

    def _read_life(self, *, more: bool = False) -> None:
        """Read the block's life, or what has come of it since."""
        block = self.block
        known = None if block is None else self._life.get(block)
        if block is None or (block in self._life and not (more and known is not None)):
            return
        if known is None:
            self._life = {block: None}
        self.run_worker(self._living(block, known or []), group="life", exclusive=True)

    async def _living(self, block: tuple[str, int], known: list[Moment]) -> None:
        try:
            life = await asyncio.to_thread(self.session.life, *block, known)
        except HkvError as e:
            self.error, life = e.what, known
        if block in self._life:
            self._life[block] = life
            self.show_view()

    # --- checking --------------------------------------------------------------------------

    def _check_here(self) -> None:
        from hkvtool.analyzers import check

        try:
            self._checked(check(self.session.trace.events()))
        except HkvError as e:
            self.error = e.what

    def start_check(self) -> None:
        """Check the trace in another process."""
        if self._checking is None:
            self._checking = Checking(self.session.path)
            self._poll = self.set_interval(0.25, self._poll_check)

    def _poll_check(self) -> None:
        checking = self._checking
        if checking is None:
            return
        if checking.over:
            self._poll.stop()
            self._checking = None
            if checking.report is not None:
                self._checked(checking.report)
                self.ask()
            elif checking.error:
                self.error = checking.error
        self.show_bars()

    def _checked(self, report: Any) -> None:
        self.session.report = report
        self._checked_to = int(report.trace["events"])
        self.roots = roots_of(report)
        if self.roots and not self._start_given and not self._moved:
            self.choose_finding(self.roots[0].id, move=True)
            self.turn(self.current if self.view_asked else "findings")

    _moved = False

    def state_of_check(self) -> str:
        """How far the check is."""
        if self._checking is not None:
            share = 100 * self._checking.done / max(1, self.session.trace.count)
            return f"checking … {share:.0f} %   r cancels"
        if self.session.report is None:
            return "not checked yet: r runs every rule over the trace"
        return ""

    def state_text(self) -> str:
        """What goes on, for the title."""
        words_ = []
        live = self.session.live
        if live is not None:
            done = "recorded, q makes the trace" if self.beside else "recorded"
            words_.append(done if live.over else "● live" if self.tailing else "❚❚ live")
            if live.behind:
                words_.append("catching up")
            if live.dropped:
                words_.append(f"{live.dropped:,} dropped")
            behind = not live.checked and 0 < self._checked_to < self.session.trace.count
            if behind and self._checking is None:
                words_.append(f"checked to {self._checked_to:,}")
        if self._checking is not None:
            words_.append(
                f"checking {100 * self._checking.done // max(1, self.session.trace.count)} %"
            )
        if self._playing is not None:
            words_.append(f"▶ {self.speed}×")
        along = live is not None and self.tailing and self.wanted_pos >= self.session.last
        away = self.look is not None and self.look.pos != self.wanted_pos
        if not self.settled and away and not along:
            words_.append(f"→ {self.wanted_pos:,}")
        return " · ".join(words_) + ("  " if words_ else "")

    def action_check(self) -> None:
        live = self.session.live
        if live is not None and live.checked:
            self.notify("it is checked as it comes")
        elif self._checking is not None:
            self._checking.cancel()
            self._checking = None
            self._poll.stop()
            self.show_all()
        elif self.session.trace.count <= AT_ONCE:
            self._check_here()
            self.ask()
        else:
            self.start_check()
            self.show_bars()

    def on_unmount(self) -> None:
        if self._checking is not None:
            self._checking.cancel()

    # --- findings --------------------------------------------------------------------------

    def choose_finding(self, number: str, *, move: bool) -> None:
        """Look at a finding: its blocks stand out, its moment is the cursor's."""
        report = self.session.report
        found = ids(report.findings).get(number) if report else None
        if found is None:
            return
        self.finding = found
        if found.pool is not None and found.blocks:
            self.block = found.pool, found.blocks[0]
        else:
            self.block = self._block_of(found) or self.block
        if found.request is not None:
            self.req = found.request
        target = found.use or found.check or (found.events[-1] if found.events else None)
        if target is not None:
            self.wanted_pos = target
        self.ask()
        if not move:
            self.show_view()

    def _block_of(self, finding: Finding) -> tuple[str, int] | None:
        """A block to look at for a finding that names none: one that its check lists."""
        event = None if finding.check is None else self.session.moments.event(finding.check)
        if event is None or event.pos != finding.check or finding.group is None:
            return None
        listed = event.get("blocks")
        ids_ = listed.get(finding.group) if isinstance(listed, dict) else listed
        declared = next(
            (e for e in self.session.trace.control
             if e.ev == "group" and str(e["group"]) == finding.group), None,
        )  # fmt: skip
        return (str(declared["pool"]), ids_[-1]) if ids_ and declared is not None else None

    def stretch_of(self, finding: Finding) -> list[Event]:
        """The events of a finding's stretch."""
        if finding.id not in self._stretches:
            report = self.session.report
            use = use_of(finding, ids(report.findings)) if report else finding.use
            named = sorted({*finding.events, *(p for p in (finding.check, use) if p)})
            found: list[Event] = []
            if named:
                span = self.session.moments.span(named[0] - BEFORE, named[-1] + BEHIND)
                for count, event in enumerate(span):
                    if count >= MOST_STRETCH and event.pos not in named:
                        continue
                    found.append(event)
            self._stretches[finding.id] = found
        return self._stretches[finding.id]
