"""A broken rule, with the events that led to it, as a person reads it."""

from __future__ import annotations

from dataclasses import dataclass

from hkvtool.model.event import Event
from hkvtool.model.rules import RULES
from hkvtool.model.text import event_line, shown

_WIDE = 160


@dataclass(frozen=True)
class Violation:
    """A rule that the event at `pos` (counted by the guard) broke.

    `blocks` are ids of `pool`; `events` are the last ones that name them, the breaking one
    included.
    """

    code: str
    message: str
    pos: int
    group: str | None
    pool: str | None
    blocks: tuple[int, ...]
    request: str | None
    events: tuple[Event, ...]

    @property
    def headline(self) -> str:
        """Rule and sentence."""
        return f"{self.code} {RULES[self.code].name}: {shown(self.message)}"

    @property
    def fix(self) -> str:
        """What usually mends it."""
        return RULES[self.code].fix

    def text(self) -> str:
        """All of it in lines."""
        lines = [self.headline]
        if self.events:
            lines.append("  what led to it:")
            wide = len(str(self.events[-1].pos))
            for event in self.events:
                mark = ">" if event.pos == self.pos else " "
                lines.append(f"  {mark} {event.pos:>{wide}}  {_short(event_line(event))}")
        lines.append(f"  usually mended by: {self.fix}")
        return "\n".join(lines)


def _short(line: str) -> str:
    return line if len(line) <= _WIDE else line[: _WIDE - 1] + "…"
