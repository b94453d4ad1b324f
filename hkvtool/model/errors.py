"""The one error type that ends at a user: what happened, where, what to do next."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line.

    1 to 4 are about the trace and the command; `INTERNAL` is a fault of ours, and the last three
    are what a shell says of SIGINT, SIGPIPE and SIGTERM.
    """

    OK = 0
    FINDINGS = 1
    USAGE = 2
    UNREADABLE = 3
    INCONCLUSIVE = 4
    INTERNAL = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143


class HkvError(Exception):
    """A failure that is told, not traced.

    `what` happened in one sentence; `where` (file, line, offset, event); `hint` says what to do
    next. `exit_code` is the process's.
    """

    def __init__(
        self, what: str, *, where: str = "", hint: str = "", exit_code: Exit = Exit.USAGE
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint
        self.exit_code = exit_code

    @property
    def said(self) -> dict[str, str]:
        """What it says, by the names that JSON has for it, without what is empty."""
        said = {"error": self.what, "where": self.where, "hint": self.hint}
        return {key: text for key, text in said.items() if text}

    @property
    def line(self) -> str:
        """What happened and what to do next, where there is room for a line only."""
        return f"{self.what} ({self.hint})" if self.hint else self.what


class TraceError(HkvError):
    """A trace that cannot be read."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint, exit_code=Exit.UNREADABLE)
