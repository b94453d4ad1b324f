"""A trace as every reader sees it, whatever the file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any

from hkvtool.model.event import Event
from hkvtool.model.events import BY_CODE, check_keys
from hkvtool.model.rows import Names
from hkvtool.state.batch import Batch
from hkvtool.state.codes import CONTROL, KERNEL

if TYPE_CHECKING:
    from hkvtool.state.keyframes import Chunk
    from hkvtool.state.standing import Standing

CONTROL_KINDS = frozenset(BY_CODE[code].name for code in (*CONTROL, KERNEL))

CHUNK_ROWS = 1 << 16
"""Rows that are read or written at once."""


class Trace(ABC):
    """An opened trace: the same events as values or as columns, in order of `pos`.

    A context; closing it releases the file. Reading it raises TraceError where the file turns
    out damaged on the way.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    @abstractmethod
    def meta(self) -> dict[str, Any]:
        """Facts about the trace as a whole; keys as in `hkvtool.store.schema.META`."""

    @property
    @abstractmethod
    def names(self) -> Names:
        """The names behind the numbers in batches."""

    @property
    @abstractmethod
    def kinds(self) -> dict[str, int]:
        """Number of events by kind; `?` are those that cannot be taken at their word."""

    @cached_property
    def control(self) -> list[Event]:
        """The rare events that declare or rearrange, without those that have a problem. An altered
        file may hold others than a reader of lines would have let through."""
        found = self.events(kinds=CONTROL_KINDS)
        return [e for e in found if e.problem is None and check_keys(dict(e.data)) is None]

    @property
    def remarks(self) -> list[str]:
        """What a person should know of how it was recorded, where it was not ingested yet."""
        return []

    @property
    def count(self) -> int:
        """Number of events."""
        return int(self.meta["events"])

    @abstractmethod
    def events(
        self,
        since: int | None = None,
        until: int | None = None,
        req: str | int | None = None,
        kinds: Collection[str] | None = None,
        block: tuple[str | int, int] | None = None,
    ) -> Iterator[Event]:
        """The events that fit every condition given.

        `since` and `until` are positions, both included. `req` also finds the steps that carry
        the request. `kinds` are event names; `?` stands for every event with a problem. `block`
        is (pool, block id) and finds what names it, also through a group or a transfer.
        """

    @abstractmethod
    def batches(
        self,
        size: int = CHUNK_ROWS,
        since: int | None = None,
        until: int | None = None,
        folded: bool = False,
    ) -> Iterator[Batch]:
        """The events as columns, about `size` rows at a time. The arrays are read-only.

        With `folded` there is just what the fold of block states takes: the events of
        `hkvtool.state.codes.FOLDED`, without `actor`, `part` and `rest`.
        """

    @abstractmethod
    def arrow(self, size: int = CHUNK_ROWS) -> Iterator[Any]:
        """The events as Arrow record batches in the columns of the table `events`."""

    def keyframe(self, pos: int) -> tuple[int, Iterator[Chunk]] | None:
        """The last keyframe at or before `pos` and what stood in every chunk then, if any; the
        header is the first."""
        return None

    def standing(self, pos: int) -> Standing | None:
        """The last keyframe at or before `pos`, to be read piece by piece; the beginning of the
        trace where there is none; None where those that there are cannot be read so."""
        from hkvtool.state.standing import Standing

        return Standing(self.path, int(self.meta.get("first_pos", 1)) - 1)

    def close(self) -> None:  # noqa: B027 (a plain file has nothing to release)
        """Release the file. The trace cannot be read any more."""

    def __enter__(self) -> Trace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
