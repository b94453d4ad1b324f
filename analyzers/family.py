"""What a rule family is: something that looks at every event before and after it is folded."""

from __future__ import annotations

from typing import Protocol

from hkvtool.analyzers.context import Context
from hkvtool.model.event import Event


class Family(Protocol):
    """One rule family. `before` sees the state an event meets, `after` the state it leaves."""

    codes: frozenset[str]

    def before(self, event: Event) -> None: ...

    def after(self, event: Event) -> None: ...

    def forget(self, before: int) -> None: ...

    def finish(self) -> None: ...


class Silent:
    """A family that need not look at everything: the hooks do nothing unless overridden."""

    codes: frozenset[str] = frozenset()
    kinds: frozenset[str] | None = None
    """The events that it does anything about; None where that is for it to see."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def before(self, event: Event) -> None:
        """State as the event meets it."""

    def after(self, event: Event) -> None:
        """State as the event leaves it."""

    def forget(self, before: int) -> None:
        """What was over before a position need not be kept: no step names it any more."""

    def finish(self) -> None:
        """The trace has ended."""
