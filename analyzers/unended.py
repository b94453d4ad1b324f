"""Transfers that a screen has found never to end: the rule is only asked to tell of them."""

from __future__ import annotations

from collections.abc import Iterable

from hkvtool.analyzers.context import Context
from hkvtool.analyzers.transfers import Transfers
from hkvtool.model.event import Event


class Unended(Transfers):
    """Looks at transfers as the rule does, and takes it from a screen which of them never end:
    that hangs on the requests of all of a trace."""

    def __init__(self, ctx: Context, names: list[str] | None = None) -> None:
        super().__init__(ctx)
        self.names = names or []

    def tell_of(self, begins: Iterable[Event]) -> None:
        """These are what never ends."""
        self.begun = {str(begin["handle"]): begin for begin in begins}
        self.names = list(self.begun)

    def never_ending(self) -> list[str]:
        return self.names

    def _never_released(self) -> None:
        """A screen leaves it to the rules where anything is still held."""
