"""Batches of published KV events, as somebody's subscriber wrote them down.

A line of JSON a message: `{"batch": number, "payload": hex digits, "topic": text}`, in the order in
which they came; the topic may be left out. They are taken as they came, so what a subscriber
missed, doubled or confused shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hkvtool.importers.foreign import Importer
from hkvtool.importers.json_values import Unread, json_lines
from hkvtool.importers.kv_events import Reject, count_of
from hkvtool.importers.lines import Line, Names, declaration
from hkvtool.importers.listening import KvStream
from hkvtool.store.lines import open_lines


def sniff(path: Path, head: bytes) -> bool:
    """A line that has a number and a payload."""
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"{") and b'"batch"' in first and b'"payload"' in first


def read(path: Path, names: Names) -> Iterator[Line]:
    """The lines of each batch."""
    yield declaration(["wire"], "KV events as a subscriber wrote them down, as they came")
    stream = KvStream(names, as_received=True)
    with open_lines(path) as file:
        for offset, value in json_lines(file):
            try:
                topic, number, payload = _message(value)
            except Reject as e:
                yield stream.lines.unread_line("publisher", offset, str(e))
                continue
            yield from stream.batch(topic or "publisher", number, payload)


def _message(value: Any) -> tuple[str, int, bytes]:
    if isinstance(value, Unread):
        raise Reject(value.problem)
    if not isinstance(value, dict):
        raise Reject("a line that is no map")
    number, payload, topic = count_of(value.get("batch")), value.get("payload"), value.get("topic")
    if number is None or not isinstance(payload, str):
        raise Reject("no `batch` or no `payload`")
    try:
        data = bytes.fromhex(payload)
    except ValueError:
        raise Reject("`payload` is not in hex digits") from None
    return topic[:200] if isinstance(topic, str) else "", number, data


IMPORTER = Importer("kv-events", "captured KV events, JSON lines", sniff, read)
