"""Reading and writing `hkv/1` JSON lines.

A line that cannot be read becomes an event with a `problem` and its own text, so that a
damaged trace is still a trace, and writing it back loses nothing but the end of such a line
that is longer than any event.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any

from hkvtool.model.event import MALFORMED, Event

MAX_LINE_BYTES = 16 << 20
"""Longer lines are cut and reported; no event of a real engine comes near."""

_KEPT_OF_LONG_LINE = 4096

MAX_DEPTH = 64
"""Deeper nesting is refused: how deep the interpreter itself can follow depends on who asks, so
that a line it could read might be one that it can no longer write."""


class _Reject(ValueError):
    """A line that JSON allows and a trace does not."""


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Reject(f"key {key!r} appears twice")
            seen.add(key)
    return data


def _no_constant(name: str) -> Any:
    raise _Reject(f"{name} is not a JSON value")


def _integer(text: str) -> int:
    if len(text) > 40:
        raise _Reject(f"a number of {len(text)} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Reject(f"a number beyond any double: {text[:20]}")
    return value


_DECODER = json.JSONDecoder(
    object_pairs_hook=_no_duplicates,
    parse_constant=_no_constant,
    parse_int=_integer,
    parse_float=_float,
)


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON writes half of a character beyond the first 65,536; most lines have none."""


def _half_a_character(data: dict[str, Any]) -> bool:
    try:
        json.dumps(data, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _too_deep(text: str, data: dict[str, Any]) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level: list[Any] = [data]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def parse_line(pos: int, text: str) -> Event:
    """The event on one line. Never raises: what is wrong is `Event.problem`."""
    try:
        data = _DECODER.decode(text)
    except RecursionError:
        return Event(pos, MALFORMED, {}, "nested too deeply", text)
    except _Reject as e:
        return Event(pos, MALFORMED, {}, str(e), text)
    except json.JSONDecodeError as e:
        return Event(pos, MALFORMED, {}, f"not JSON: {e.msg} at column {e.colno}", text)
    if not isinstance(data, dict):
        return Event(pos, MALFORMED, {}, "not an object", text)
    if _too_deep(text, data):
        return Event(pos, MALFORMED, {}, "nested too deeply", text)
    if _SURROGATE.search(text) and _half_a_character(data):
        return Event(pos, MALFORMED, {}, "half a surrogate pair, which no encoding can hold", text)
    event = Event.of(pos, data)
    if event.ev == MALFORMED:
        return Event(pos, MALFORMED, {}, event.problem, text)
    return event


def read_jsonl(stream: IO[bytes]) -> Iterator[Event]:
    """The events of a binary stream, one a line, `pos` counting lines from 1.

    Blank lines are skipped (they keep their number). Memory stays bounded whatever the lines.
    """
    pos = 0
    while True:
        line = stream.readline(MAX_LINE_BYTES + 1)
        if not line:
            return
        pos += 1
        if len(line) > MAX_LINE_BYTES:
            kept = line[:_KEPT_OF_LONG_LINE]
            size = len(line)
            while not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
                if not line:
                    break
                size += len(line)
            # The ellipsis also keeps what is left from ever being read as a whole event.
            text = kept.decode("utf-8", "replace") + "…"
            problem = f"a line of {size:,} bytes, cut after {_KEPT_OF_LONG_LINE:,}"
            yield Event(pos, MALFORMED, {}, problem, text)
            continue
        line = line.rstrip(b"\r\n")
        if pos == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as e:
            raw = line.decode("utf-8", "backslashreplace")
            yield Event(pos, MALFORMED, {}, f"not UTF-8 at byte {e.start}", raw)
            continue
        yield parse_line(pos, text)


def write_line(event: Event) -> str:
    """The line that `event` came from or would be written as, without the newline."""
    if event.ev == MALFORMED and event.raw is not None:
        return event.raw.replace("\n", "\\n")
    return json.dumps(dict(event.data), ensure_ascii=False, separators=(",", ":"))


def write_jsonl(events: Iterable[Event], stream: IO[bytes]) -> int:
    """Write events as JSON lines; returns how many."""
    n = 0
    for event in events:
        stream.write(write_line(event).encode() + b"\n")
        n += 1
    return n
