"""TensorRT-LLM's KV cache events, as `get_kv_cache_events` gives them: JSON, a list or lines.

The only published stream that names a window with each event and, at the beginning, the blocks of
each level: so pools and groups are declared from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hkvtool.importers.foreign import Importer
from hkvtool.importers.json_values import Unread, json_lines, json_values
from hkvtool.importers.kv_events import KvEvent, Reject, count_of, events_of
from hkvtool.importers.lines import Line, Names, WireLines, declaration
from hkvtool.model.errors import TraceError
from hkvtool.store.lines import open_lines

_MAX_LIST_BYTES = 128 << 20
"""A list is held as text while it is read; lines are not."""

_MEDIA = ("gpu", "cpu", "disk")


def sniff(path: Path, head: bytes) -> bool:
    """The first event has a number, a window or a type of its data."""
    start = head.lstrip()[:1]
    return start in (b"[", b"{") and b'"event_id"' in head and b'"data"' in head and (
        b'"window_size"' in head or b'"num_blocks_per_cache_level"' in head
    )  # fmt: skip


def read(path: Path, names: Names) -> Iterator[Line]:
    """A `wire` line for each event, as published, and what the events say of the pools."""
    yield declaration(["wire"], "KV cache events of TensorRT-LLM", "tensorrt-llm")
    lines = WireLines(names, lane="pub")
    pools = _Pools()
    for offset, value in _values(path):
        try:
            if isinstance(value, Unread):
                raise Reject(value.problem)
            yield from pools.declare(value)
            rank = count_of(value.get("attention_dp_rank")) if isinstance(value, dict) else None
            actor = f"engine.{rank}" if rank else "engine"
            for event in events_of(value):
                yield from pools.of_stored(event)
                yield lines.line(actor, event, event.number)
        except Reject as e:
            yield lines.unread_line("engine", offset, str(e))


def _values(path: Path) -> Iterator[tuple[int, Any]]:
    with open_lines(path) as stream:
        start = stream.read(1)
    if start != b"[":
        with open_lines(path) as stream:
            for offset, value in json_lines(stream):
                # A line may be what one call gave: a list.
                for each in value if isinstance(value, list) else [value]:
                    yield offset, each
        return
    with open_lines(path) as stream:
        data = stream.read(_MAX_LIST_BYTES + 1)
    if len(data) > _MAX_LIST_BYTES:
        raise TraceError(
            f"{path}: a list of more than {_MAX_LIST_BYTES:,} bytes",
            where=f"offset {_MAX_LIST_BYTES:,}",
            hint="`jq -c '.[]'` makes lines of it, which are read one at a time",
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        yield e.start, Unread("not UTF-8")
        text = data[: e.start].decode("utf-8")
    for offset, value in json_values(text):
        for each in value if isinstance(value, list) else [value]:
            yield offset, each


class _Pools:
    """Declares the pools and groups of each window as they become known."""

    def __init__(self) -> None:
        self._windows: dict[int, dict[str, int]] = {}
        self._groups: set[str] = set()

    def declare(self, value: Any) -> Iterator[Line]:
        """The pools that a `created` event speaks of."""
        if not isinstance(value, dict) or not isinstance(value.get("data"), dict):
            return
        levels = value["data"].get("num_blocks_per_cache_level")
        window = count_of(value.get("window_size"))
        if value["data"].get("type") != "created" or window is None or window in self._windows:
            return
        if not isinstance(levels, list):
            raise Reject("`num_blocks_per_cache_level` is no list")
        counts = {m: count_of(n) or 0 for m, n in zip(_MEDIA, levels, strict=False)}
        self._windows[window] = counts
        for medium, blocks in counts.items():
            if blocks:
                pool = f"{medium}/window{window}"
                yield {"ev": "pool", "pool": pool, "medium": medium, "blocks": blocks}

    def of_stored(self, event: KvEvent) -> Iterator[Line]:
        """The groups of a window, once a block has told how many tokens it holds. The widest window
        is taken for full attention: it is as long as a sequence may become."""
        window, tokens = event.facts.get("window"), event.facts.get("block_tokens")
        if event.kind != "stored" or event.group is None or event.group in self._groups:
            return
        if not isinstance(window, int) or not isinstance(tokens, int):
            return
        self._groups.add(event.group)
        slides = {} if window >= max(self._windows, default=0) else {"window": window}
        form = "swa" if slides else "compressed"
        for medium, blocks in self._windows.get(window, {}).items():
            if not blocks:
                continue
            tier = {} if medium == "gpu" else {"participates": False}
            name = event.group if medium == "gpu" else f"{event.group}@{medium}"
            yield {
                "ev": "group", "group": name, "form": form, "pool": f"{medium}/window{window}",
                "block_tokens": tokens, **slides, **tier,
            }  # fmt: skip


IMPORTER = Importer("trtllm", "TensorRT-LLM KV cache events, JSON", sniff, read)
