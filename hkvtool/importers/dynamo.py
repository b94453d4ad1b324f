"""Dynamo's recorded KV events: a line of JSON for each event that a router received.

`{"timestamp": milliseconds, "event": {"worker_id", "event": {"event_id", "data", "dp_rank"}}}`,
where `data` is `{"stored": …}`, `{"removed": …}` or `"cleared"`. Each worker and rank counts its
own events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hkvtool.importers.foreign import Importer
from hkvtool.importers.json_values import Unread, json_lines
from hkvtool.importers.kv_events import KvEvent, Reject, count_of, hash_bytes, medium_of
from hkvtool.importers.lines import Line, Names, WireLines, declaration
from hkvtool.store.lines import open_lines

_MOST_TIME = 1e13
"""Milliseconds: some three hundred years."""


def sniff(path: Path, head: bytes) -> bool:
    """A line that has both keys of the recorder and a worker."""
    first = head.split(b"\n", 1)[0]
    return first.startswith(b"{") and b'"timestamp"' in first and b'"worker_id"' in first


def read(path: Path, names: Names) -> Iterator[Line]:
    """A `wire` line for each event, as the router received it."""
    yield declaration(["wire"], "KV events that a Dynamo router received")
    lines = WireLines(names)
    with open_lines(path) as stream:
        for offset, value in json_lines(stream):
            try:
                if isinstance(value, Unread):
                    raise Reject(value.problem)
                actor, ts, event = _event(value)
            except Reject as e:
                yield lines.unread_line("router", offset, str(e))
                continue
            beside = {} if ts is None else {"ts": ts}
            yield lines.line(actor, event, event.number, **beside)


def _event(value: Any) -> tuple[str, int | None, KvEvent]:
    outer = _map(value, "a line")
    routed = _map(outer.get("event"), "`event`")
    event = _map(routed.get("event"), "`event.event`")
    worker, rank = count_of(routed.get("worker_id")), count_of(event.get("dp_rank"))
    if worker is None:
        raise Reject("no `worker_id`")
    data = event.get("data")
    number = count_of(event.get("event_id"))
    where = medium_of(routed.get("storage_tier"))
    actor = f"worker:{worker}" + (f".{rank}" if rank else "")
    if data == "cleared" or (isinstance(data, dict) and "cleared" in data):
        return actor, _time(outer), KvEvent("cleared", (), None, where, None, number)
    kinds = _map(data, "`data`")
    stored, removed = kinds.get("stored"), kinds.get("removed")
    if stored is not None:
        blocks = _map(stored, "`stored`").get("blocks")
        if not isinstance(blocks, list):
            raise Reject("`blocks` is no list")
        hashes = tuple(hash_bytes(_map(b, "a block").get("block_hash")) for b in blocks)
        parent = stored.get("parent_hash")
        before = None if parent is None else hash_bytes(parent)
        return actor, _time(outer), KvEvent("stored", hashes, None, where, before, number)
    if removed is None:
        raise Reject("`data` is neither stored, removed nor cleared")
    listed = _map(removed, "`removed`").get("block_hashes")
    if not isinstance(listed, list):
        raise Reject("`block_hashes` is no list")
    gone = tuple(map(hash_bytes, listed))
    return actor, _time(outer), KvEvent("removed", gone, None, where, None, number)


def _map(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Reject(f"{what} is no map")
    return value


def _time(outer: Mapping[str, Any]) -> int | None:
    at = outer.get("timestamp")
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < _MOST_TIME:
        return None
    return int(at * 1_000_000)


IMPORTER = Importer("dynamo", "Dynamo KvRecorder, JSON lines", sniff, read)
