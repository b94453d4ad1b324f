"""The cursor in time: where it is wanted, where it is, and the way between.

The state of a moment is worked out in a thread; keys are taken meanwhile, and only the latest
wish is looked up. A wish that nobody waits for any more is never begun.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.findings import Finding
from hkvtool.model.text import shown
from hkvtool.store.history import Moment
from hkvtool.store.timeline import Timeline
from hkvtool.tui import words
from hkvtool.tui.checking import AT_ONCE, BY_ITSELF, Checking
from hkvtool.tui.filters import BlockFilter, parsed
from hkvtool.tui.finding_lines import ids, use_of
from hkvtool.tui.prompt import Prompt
from hkvtool.tui.session import Look, Session, roots_of
from hkvtool.tui.tables import AROUND, REQUEST_KINDS, TRANSFER_KINDS, RequestRow

if TYPE_CHECKING:
    from textual.app import App

    Base = App[None]
else:
    Base = object

VERSION_KINDS = frozenset(
    {"alloc", "write", "seal", "index", "zero", "copy", "load_begin", "load_end", "rollback", "free"}
)
"""Events that change what a block holds, or whose it is."""

EVENTS_AROUND = 120
"""Events shown on each side of the cursor."""

TICK = 0.125
"""Seconds between two moves while it plays."""

BEFORE, BEHIND = 60, 8
"""Events before and behind a finding's own that may have to do with it."""

MOST_STRETCH = 4000
"""Events of a finding's stretch that are read for its picture."""


class Following(Base):
    """What an application knows of its trace and the cursor in it."""

    def follow(self, session: Session, name: str, start: int | None, check: bool | None) -> None:
        """Start from here."""
        self.session, self.trace_name = session, name
        self.look: Look | None = None
        self.wanted_pos = session.last if start is None else start
        self._start_given = start is not None
        self._check_asked = check
        self.block: tuple[str, int] | None = None
        self.finding: Finding | None = None
        self.roots: list[Finding] = []
        self.filter = BlockFilter()
        self.req: str | None = None
        self.requests: list[RequestRow] = []
        self.timeline: Timeline | None = None
        self.error = ""
        self.speed = 1
        self._playing: Any = None
        self._checking: Checking | None = None
        self._wake = asyncio.Event()
        self._asked = self._answered = 0
        self._life: dict[tuple[str, int], list[Moment] | None] = {}
        self._around: dict[str, tuple[int, list[Event]]] = {}
        self._stretches: dict[str, list[Event]] = {}

    # --- looking ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Everything that goes on beside the screen."""
        self.run_worker(self._follow(), group="follow", exit_on_error=True)
        self.run_worker(self._count(), group="count", exit_on_error=True)
        count = self.session.trace.count
        wanted = self._check_asked
        if wanted is None:
            wanted = count <= BY_ITSELF
        if wanted and count <= AT_ONCE:
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
        reading = self.block is not None and self.life_now() is None and not self.error
        counting = self.timeline is None and not self.error
        return (self.settled and self._checking is None and self.look is not None
                and not reading and not counting)  # fmt: skip

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            asked = self._asked
            try:
                look, around = await asyncio.to_thread(self._looked)
                self.error = ""
            except HkvError as e:
                self.error = e.what
                self._answered = asked
                self.show_all()
                continue
            self.look, self._answered = look, asked
            if around is not None:
                self._around[self.current] = around
            self._read_life()
            self.show_all()

    def _looked(self) -> tuple[Look, tuple[int, list[Event]] | None]:
        """In a thread: the moment, and what the open view lists around it."""
        look = self.session.look(self.wanted_pos, self.block, self.filter,
                                 self.req if self.current == "hit" else None,
                                 hit=self.current == "hit")  # fmt: skip
        return look, self._read_around(look.pos)

    def _read_around(self, pos: int) -> tuple[int, list[Event]] | None:
        spans = {
            "events": (EVENTS_AROUND, None), "requests": (AROUND, REQUEST_KINDS),
            "transfers": (AROUND, TRANSFER_KINDS),
        }  # fmt: skip
        if self.current not in spans:
            return None
        around, kinds = spans[self.current]
        held = self._around.get(self.current)
        if held is not None and held[0] == pos:
            return held
        trace, since, until = self.session.trace, pos - around, pos + around
        if kinds is not None and self.session.last - self.session.first <= 2 * around:
            if held is not None:
                return pos, held[1]
            since, until = self.session.first, self.session.last
        if kinds is None:
            return pos, list(self.session.moments.span(since, until))
        return pos, list(trace.events(since, until, kinds=kinds))

    def around(self, view: str) -> Iterable[Event]:
        """The events that a view lists."""
        return self._around.get(view, (0, []))[1]

    async def _count(self) -> None:
        try:
            self.timeline = await asyncio.to_thread(self.session.axis)
        except HkvError as e:
            self.error = e.what
        self.show_axis()

    # --- one block -------------------------------------------------------------------------

    def choose_block(self, block: tuple[str, int]) -> None:
        """Look at a block."""
        if block != self.block:
            self.block = block
            self.ask()

    def life_now(self) -> list[Moment] | None:
        """The life of the block, None while it is read."""
        return self._life.get(self.block) if self.block else []

    def _read_life(self) -> None:
        block = self.block
        if block is None or block in self._life:
            return
        self._life = {block: None}
        self.run_worker(self._living(block), group="life", exclusive=True)

    async def _living(self, block: tuple[str, int]) -> None:
        try:
            life = await asyncio.to_thread(self.session.life, *block)
        except HkvError as e:
            self.error = e.what
            return
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
        self.roots = roots_of(report)
        if self.roots and not self._start_given and not self._moved:
            self.choose_finding(self.roots[0].id, move=True)
            if not self._view_asked:
                self._turn("findings")

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
        if self._checking is not None:
            words_.append(f"checking {100 * self._checking.done // max(1, self.session.trace.count)} %")
        if self._playing is not None:
            words_.append(f"▶ {self.speed}×")
        if not self.settled and self.look is not None and self.look.pos != self.wanted_pos:
            words_.append(f"→ {self.wanted_pos:,}")
        return " · ".join(words_) + ("  " if words_ else "")

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

    # --- moving ----------------------------------------------------------------------------

    def go(self, pos: int | None) -> None:
        """Put the cursor at a position."""
        if pos is None:
            self.bell()
            return
        self._moved = True
        pos = max(self.session.first, min(self.session.last, pos))
        if pos != self.wanted_pos:
            self.wanted_pos = pos
            self.ask()
            self.show_axis()
            self.show_bars()

    def _step(self, forward: bool, kinds: frozenset[str] | None) -> None:
        self.run_worker(self._stepped(forward, kinds), group="step", exclusive=True)

    async def _stepped(self, forward: bool, kinds: frozenset[str] | None) -> None:
        pos = self.wanted_pos
        if kinds is None and not self.session.sparse:
            self.go(pos + (1 if forward else -1))
            return
        self.go(await asyncio.to_thread(self.session.beside, pos, forward, kinds))

    def action_next_event(self) -> None:
        self._step(True, None)

    def action_last_event(self) -> None:
        self._step(False, None)

    def action_next_step(self) -> None:
        self._step(True, frozenset({"dispatch"}))

    def action_last_step(self) -> None:
        self._step(False, frozenset({"dispatch"}))

    def action_next_hit(self) -> None:
        self._step(True, frozenset({"lookup", "resume"}))

    def action_last_hit(self) -> None:
        self._step(False, frozenset({"lookup", "resume"}))

    def action_next_version(self) -> None:
        self._version(True)

    def action_last_version(self) -> None:
        self._version(False)

    def _version(self, forward: bool) -> None:
        life = self.life_now()
        if not life:
            self.notify("no block is chosen, or its life is still being read")
            return
        places = [m.event.pos for m in life if m.event.ev in VERSION_KINDS]
        beyond = [p for p in places if (p > self.wanted_pos if forward else p < self.wanted_pos)]
        self.go((min if forward else max)(beyond, default=None))

    def action_next_finding(self) -> None:
        self._finding(1)

    def action_last_finding(self) -> None:
        self._finding(-1)

    def _finding(self, by: int) -> None:
        if not self.roots:
            self.notify(self.state_of_check() or "there is no finding")
            return
        at = next((i for i, f in enumerate(self.roots) if f is self.finding), -1 if by > 0 else 0)
        self.choose_finding(self.roots[(at + by) % len(self.roots)].id, move=True)

    def action_first(self) -> None:
        self.go(self.session.first)

    def action_last(self) -> None:
        self.go(self.session.last)

    def action_play(self) -> None:
        if self._playing is not None:
            self._playing.stop()
            self._playing = None
        else:
            self._playing = self.set_interval(TICK, self._tick)
        self.show_bars()

    def _tick(self) -> None:
        if not self.settled:
            return
        if self.wanted_pos >= self.session.last:
            self.action_play()
            return
        self.go(self.wanted_pos + self.speed)

    def action_faster(self) -> None:
        self.speed = min(self.speed * 2, max(1, self.session.last // 16))
        self.show_bars()

    def action_slower(self) -> None:
        self.speed = max(1, self.speed // 2)
        self.show_bars()

    # --- asking ----------------------------------------------------------------------------

    def _prompt(self, words_: str, examples: str, then: Callable[[str], None], text: str = "") -> None:
        def answered(found: str | None) -> None:
            if found is None:
                return
            try:
                then(found)
            except HkvError as e:
                hint = f" ({e.hint})" if e.hint else ""
                self.notify(shown(e.what + hint), severity="error", markup=False)

        self.push_screen(Prompt(words_, text, examples), answered)

    def action_jump(self) -> None:
        self._prompt("go to", "1200   s504   12.5ms   50%   F2", self.jump)

    def jump(self, text: str) -> None:
        """Go where some text says. Raises HkvError."""
        wanted = text.replace(",", "").replace("_", "")
        try:
            if wanted.isdecimal():
                self.go(int(wanted))
            elif wanted.endswith("%"):
                share = float(wanted[:-1]) / 100
                self.go(self.session.first + round(share * (self.session.last - self.session.first)))
            elif wanted.endswith("ms"):
                self.go(self.session.at_time(round(float(wanted[:-2]) * 1e6)))
            elif wanted[:1] in "sS" and wanted[1:].isdecimal():
                self.go(self.session.step_at(int(wanted[1:])))
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
        first = next(iter(self.session.trace.events(req=text)), None)
        if first is not None:
            self.req = text
            self.go(first.pos)
            self.action_view("requests")
            return
        self.filter = parsed(f"hash={text}")
        self.ask()

    # --- more ------------------------------------------------------------------------------

    def action_back(self) -> None:
        if self.filter:
            self.filter = BlockFilter()
            self.ask()
        elif self.finding is not None and self.current != "findings":
            self.finding = None
            self.show_all()
        else:
            self.req = None
            self.show_all()

    def action_check(self) -> None:
        if self._checking is not None:
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

    def action_copy_command(self) -> None:
        text = words.reproduce(
            self.session.path, self.current, self.wanted_pos, self.block,
            self.finding.id if self.finding else None, self.req,
        )  # fmt: skip
        with contextlib.suppress(Exception):
            self.copy_to_clipboard(text)
        self.notify(text, title="copied", markup=False)

    def on_unmount(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
