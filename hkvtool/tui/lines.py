"""Text as presenters make it: lines of spans, each with the role it plays, not the way it looks.

Presenters know nothing of terminals; `palette` says what a role looks like.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Span = tuple[str, str]
"""Text and its role."""


class Line(NamedTuple):
    """One line; `key` is what choosing it means, None where it cannot be chosen."""

    spans: tuple[Span, ...]
    key: Any = None

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.spans)


def line(*spans: Span | str, key: Any = None) -> Line:
    """A line of spans; bare text plays no role."""
    return Line(tuple((s, "") if isinstance(s, str) else s for s in spans), key)


def heading(text: str) -> Line:
    """A line that names what is below it."""
    return line((text, "title"))


def labelled(
    label: str, text: str, width: int, role: str = "", column: int = 10, head: str = "label"
) -> Iterator[Line]:
    """Text beside its label, wrapped below itself."""
    room = max(10, width - column)
    parts = textwrap.wrap(text, room, break_long_words=True, break_on_hyphens=False) or [""]
    for number, part in enumerate(parts):
        beside = label if number == 0 else ""
        yield line((f"{beside:<{column}}", head), (part, role))


def wrapped(text: str, width: int, role: str = "", indent: int = 0) -> Iterator[Line]:
    """Text in lines of at most `width`."""
    for part in textwrap.wrap(text, max(10, width - indent), break_on_hyphens=False) or [""]:
        yield line((" " * indent + part, role))


def fitted(text: str, width: int) -> str:
    """Text cut to `width`, with a sign that it was."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def named(text: str, width: int) -> str:
    """A name cut to `width` in its middle: requests are told apart by both ends of theirs."""
    if len(text) <= width:
        return text
    front = max(0, width - 1) * 3 // 5
    back = max(0, width - 1) - front
    return f"{text[:front]}…{text[len(text) - back :] if back else ''}"


def plain(lines: Iterable[Line]) -> str:
    """Lines as text: for tests, for the clipboard."""
    return "\n".join(one.text.rstrip() for one in lines)
