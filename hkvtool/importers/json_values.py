"""JSON out of other people's files, a value at a time, with the place of each.

What cannot be read is a value of its own, `Unread`, with the offset where reading failed: the
reader decides whether to go on. Memory is bounded by the longest line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

MAX_LINE_BYTES = 16 << 20

_DEEPEST = 32
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


def json_lines(stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """The values of a file that has one a line, with their offsets in bytes."""
    offset = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        start, offset = offset, offset + len(line)
        if len(line) > MAX_LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
                offset += len(line)
            yield start, Unread(f"a line of {offset - start:,} bytes")
        elif line.strip():
            yield _of_line(start, line)


def _of_line(start: int, line: bytes) -> tuple[int, Any]:
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except UnicodeDecodeError as e:
        return start + e.start, Unread("not UTF-8")
    except json.JSONDecodeError as e:
        return start + len(e.doc[: e.pos].encode()), Unread(f"not JSON: {e.msg}")
    except (ValueError, RecursionError) as e:
        return start, Unread(f"not JSON: {str(e)[:80]}")
    return start, Unread("nested too deeply") if _too_deep(value) else value


@dataclass(frozen=True, slots=True)
class Unread:
    """In place of a JSON value that cannot be read; nothing comes behind it."""

    problem: str


def json_values(text: str, start: int = 0) -> Iterator[tuple[int, Any]]:
    """The items of a JSON array, or the values that stand one after the other, with their offsets
    in characters. Only one is in memory at a time."""
    position = _blank(text, start)
    inside = text.startswith("[", position)
    if inside:
        position = _blank(text, position + 1)
    while position < len(text):
        if inside and text[position] == "]":
            position = _blank(text, position + 1)
            if position < len(text):
                yield position, Unread("something behind the list")
            return
        if len(text) - position > MAX_LINE_BYTES and not _ends(text, position):
            yield position, Unread(f"a value of more than {MAX_LINE_BYTES:,} characters")
            return
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as e:
            yield e.pos, Unread(f"not JSON: {e.msg}")
            return
        except (ValueError, RecursionError) as e:
            yield position, Unread(f"not JSON: {str(e)[:80]}")
            return
        if _too_deep(value):
            value = Unread("nested too deeply")
        yield position, value
        position = _blank(text, end)
        if inside and position < len(text) and text[position] == ",":
            position = _blank(text, position + 1)
    if inside:
        yield len(text), Unread("the list has no end")


_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


def _ends(text: str, position: int) -> bool:
    """Whether a value comes to its end before it is too long to be decoded."""
    depth = 0
    for found in _BRACKETS.finditer(text, position, position + MAX_LINE_BYTES):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth <= 0:
            return True
    return False


def _blank(text: str, position: int) -> int:
    while position < len(text) and text[position] in _SPACE:
        position += 1
    return position


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True
