"""PyTorch's memory snapshots: where the storage of the KV cache is, and when it moved.

A snapshot is a pickle of plain containers and is read as such. An allocation is the KV cache's
where its stack says so; each becomes a group with its base and its region, and where the snapshot
has a history, each time that it is given back and taken again elsewhere is a `rebase`. How blocks
lie inside a storage is not in a snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hkvtool.importers.foreign import Importer
from hkvtool.importers.lines import Line, Names, declaration, unread
from hkvtool.importers.plain_pickle import MAX_BYTES, NotPlain, read_plain
from hkvtool.model.errors import TraceError

_KV = re.compile(r"kv_?cache|paged_?attention_?cache|kv_?pool|memory_pool|cache_engine", re.I)
_MOST = 5_000_000
"""Blocks and history entries that are looked at: a pickle may name one list any number of times."""

_MOST_STORAGES = 100_000


@dataclass(frozen=True, slots=True)
class _Storage:
    """One allocation of the KV cache."""

    device: int
    address: int
    size: int
    requested: int
    site: str


_Entry = tuple["int | None", "_Storage | None", "tuple[int, int]"]


def sniff(path: Path, head: bytes) -> bool:
    """A pickle with one of the snapshot's keys at its beginning, or a pickle by its name."""
    pickled = head[:1] == b"\x80" and len(head) > 2 and head[1] <= 5
    return pickled and (b"segments" in head or b"device_traces" in head or path.suffix == ".pickle")


def read(path: Path, names: Names) -> Iterator[Line]:
    """Groups with the addresses of their storage, and `rebase` lines where these changed."""
    snapshot = _snapshot(path)
    budget = _Budget()
    history = list(_history(snapshot, budget))
    now = list(_allocated(snapshot, budget))
    if not now and not any(taken for _, taken, _ in history):
        raise TraceError(
            f"{path}: no allocation in it says that it is a KV cache's",
            where=f"offset 0 to {path.stat().st_size:,}",
            hint="a snapshot has stacks after torch.cuda.memory._record_memory_history()",
        )
    yield declaration(
        ["layout"], "KV cache storage in a PyTorch memory snapshot; block geometry is not in it"
    )
    if budget.spent:
        yield unread(0, f"only the first {_MOST:,} allocations were looked at")
    yield from _told(history, now)


def _snapshot(path: Path) -> dict[Any, Any]:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise TraceError(
            f"{path}: a snapshot of {size:,} bytes",
            where=f"offset {MAX_BYTES:,}",
            hint=f"up to {MAX_BYTES:,} bytes can be read",
        )
    with path.open("rb") as stream:
        try:
            found = read_plain(stream)
        except NotPlain as e:
            raise TraceError(
                f"{path} is no snapshot of PyTorch's memory: {e}", where=f"offset {e.offset:,}"
            ) from None
    if isinstance(found, list):
        # What `torch.cuda.memory_snapshot()` gives: the segments alone.
        found = {"segments": found}
    if not isinstance(found, dict) or not isinstance(found.get("segments", []), list):
        raise TraceError(f"{path} is no snapshot of PyTorch's memory", where="offset 0")
    return found


class _Budget:
    """How much is still looked at."""

    def __init__(self) -> None:
        self.left = _MOST

    @property
    def spent(self) -> bool:
        return self.left <= 0

    def take(self, values: Any) -> Iterator[dict[Any, Any]]:
        """The maps of a list, as far as they may be looked at."""
        for value in values if isinstance(values, (list, tuple)) else ():
            self.left -= 1
            if self.left < 0:
                return
            if isinstance(value, dict):
                yield value


def _allocated(snapshot: dict[Any, Any], budget: _Budget) -> Iterator[_Storage]:
    """What of the KV cache is allocated when the snapshot was taken."""
    for segment in budget.take(snapshot.get("segments")):
        address = _natural(segment.get("address"))
        device = _natural(segment.get("device")) or 0
        for block in budget.take(segment.get("blocks")):
            size = _natural(block.get("size")) or 0
            at = _natural(block.get("address"))
            at = address if at is None else at
            site = _site(block.get("frames"), budget)
            if at is not None and site and str(block.get("state", "")).startswith("active"):
                requested = _natural(block.get("requested_size")) or size
                yield _Storage(device, at, size, min(requested, size), site)
            if address is not None:
                address += size


def _history(snapshot: dict[Any, Any], budget: _Budget) -> Iterator[_Entry]:
    """Each time that storage was taken, or given back: when, what (None: given back), and where."""
    traces = snapshot.get("device_traces")
    for device, trace in enumerate(traces if isinstance(traces, (list, tuple)) else ()):
        held: set[int] = set()
        for entry in budget.take(trace):
            address, size = _natural(entry.get("addr")), _natural(entry.get("size")) or 0
            at = _natural(entry.get("time_us"))
            ts = None if at is None or at >= 1 << 51 else at * 1000
            if address is None:
                continue
            if entry.get("action") == "alloc":
                site = _site(entry.get("frames"), budget)
                if site:
                    held.add(address)
                    yield ts, _Storage(device, address, size, size, site), (device, address)
            elif entry.get("action") in ("free", "free_requested") and address in held:
                held.remove(address)
                yield ts, None, (device, address)


def _told(history: list[_Entry], now: list[_Storage]) -> Iterator[Line]:
    groups: dict[tuple[int, int], tuple[str, _Storage]] = {}
    free: dict[tuple[int, int, str], list[str]] = {}
    count = 0
    seen = {place for _, _, place in history}
    # What was allocated before the history begins.
    before: list[_Entry] = [
        (None, s, (s.device, s.address)) for s in now if (s.device, s.address) not in seen
    ]
    for ts, taken, place in before + history:
        stamp: Line = {} if ts is None else {"ts": ts}
        if taken is None:
            name, storage = groups.pop(place)
            free.setdefault((storage.device, storage.size, storage.site), []).append(name)
            continue
        same = free.get((taken.device, taken.size, taken.site))
        if same:
            name = same.pop(0)
            yield {
                "ev": "rebase", "pool": f"{name}@gpu{taken.device}", "group": name,
                "reason": "realloc", "pointers": {name: taken.address},
                "layout": _layout(taken), **stamp,
            }  # fmt: skip
        elif count < _MOST_STORAGES:
            name = f"kv{count}"
            count += 1
            yield from _declared(name, taken, stamp)
        else:
            continue
        groups[place] = name, taken


def _declared(name: str, storage: _Storage, stamp: Line) -> Iterator[Line]:
    """A storage is a pool of one block: as much as a snapshot says of its inside."""
    pool = f"{name}@gpu{storage.device}"
    yield {"ev": "pool", "pool": pool, "medium": "gpu", "blocks": 1, **stamp}
    yield {
        "ev": "group", "group": name, "form": "compressed", "pool": pool, "block_tokens": 1,
        "layers": storage.site, "layout": _layout(storage), **stamp,
    }  # fmt: skip


def _layout(storage: _Storage) -> Line:
    return {
        "base": storage.address, "region_bytes": storage.size, "page_bytes": storage.requested,
    }  # fmt: skip


def _site(frames: Any, budget: _Budget) -> str:
    """Where the KV cache was allocated; empty where it is not its storage."""
    for frame in budget.take(frames):
        text = f"{frame.get('filename', '')} {frame.get('name', '')}"[:1000]
        if _KV.search(text):
            file = str(frame.get("filename", "")).rpartition("/")[2]
            return f"{file}:{frame.get('line', 0)} {frame.get('name', '')}"[:120]
    return ""


def _natural(value: Any) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62
    return value if plain else None


IMPORTER = Importer("torch-memory", "PyTorch memory snapshot, .pickle", sniff, read)
