"""Going through time: by event, step, version, finding and hit, playing, and jumping."""

from __future__ import annotations

from typing import Any

from hkvtool.tui.following import Following

VERSION_KINDS = frozenset(
    [
        "alloc",
        "write",
        "seal",
        "index",
        "zero",
        "copy",
        "load_begin",
        "load_end",
        "rollback",
        "free",
    ]
)
"""Events that change what a block holds, or whose it is."""

TICK = 0.125
"""Seconds between two moves while it plays."""


class Travelling(Following):
    """What moves the cursor."""

    _playing: Any = None

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
        session, pos = self.session, self.wanted_pos
        if kinds is None and not session.sparse:
            self.go(pos + (1 if forward else -1))
        else:
            self.away(lambda: session.beside(pos, forward, kinds), self.go)

    def action_next_event(self) -> None:
        self._step(True, None)

    def action_last_event(self) -> None:
        self._step(False, None)

    def action_next_step(self) -> None:
        self._step(True, frozenset({"dispatch"}))

    def action_last_step(self) -> None:
        self._step(False, frozenset({"dispatch"}))

    def action_next_hit(self) -> None:
        self.req = None
        self._step(True, frozenset({"lookup", "resume"}))

    def action_last_hit(self) -> None:
        self.req = None
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
        live = self.session.live
        if live is not None and not live.over:
            self.tailing = not self.tailing
            if self.tailing:
                self.go(self.session.last)
            self.show_bars()
            return
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
