"""LMCache's traces (`.lct`): frames of four bytes of length and a msgpack map.

At level `events` a record holds a batch of cache events, of one tier of one instance, which counts
its batches and its restarts. At level `storage` a record is a call to the storage manager, its
arguments and nothing of what it gave back: what was hit is not in it, so the calls are told as
writes and reads of staging buffers, named by their keys, and no rule judges them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hkvtool.importers.foreign import Importer
from hkvtool.importers.kv_batch import unpack_errors, unpack_problem, unpacker
from hkvtool.importers.kv_events import KvEvent, Reject, count_of, hash_bytes, medium_of
from hkvtool.importers.lines import Line, Names, WireLines, declaration
from hkvtool.model.errors import TraceError

_LENGTH = struct.Struct(">I")
_MAGIC = (b"LMCT", "LMCT")
_MOST_FRAME = 16 << 20
_MOST_KEYS = 1 << 20
_GROUP = re.compile("(?:0x)?([0-9a-fA-F]{1,8})")

_BACKENDS = {
    "dram": "cpu", "cxl": "cpu", "fs": "disk", "nixl": "disk", "valkey": "remote",
    "redis": "remote", "s3": "remote", "mooncake": "remote",
}  # fmt: skip


def sniff(path: Path, head: bytes) -> bool:
    """The magic word in the first frame."""
    return len(head) > 16 and head[0] == 0 and b"LMCT" in head[:200] and b"magic" in head[:200]


def read(path: Path, names: Names) -> Iterator[Line]:
    """`wire` lines of cache events, or `buffer` lines of calls."""
    with path.open("rb") as stream:
        frames = _frames(stream)
        offset, header = next(frames, (0, Reject("it is empty")))
        if not isinstance(header, dict) or header.get("magic") not in _MAGIC:
            said = str(header) if isinstance(header, Reject) else "no header"
            raise TraceError(f"{path} is no LMCache trace: {said}", where=f"offset {offset}")
        version, level = header.get("format_version"), header.get("level")
        if version != 1:
            raise TraceError(
                f"{path}: LMCache traces of version {str(version)[:20]} cannot be read",
                where="offset 4",
                hint="version 1 can, as LMCache 0.5 writes it",
            )
        lines = WireLines(names)
        if level == "events":
            yield declaration(["wire"], "cache events of LMCache", "lmcache")
            yield from _events(frames, lines)
        else:
            what = "calls to LMCache's storage manager, without what they gave back"
            yield declaration([], what, "lmcache")
            yield from _calls(frames, lines, names)


def _frames(stream: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """Each frame with its offset; what cannot be read is a Reject, after which the next follows
    where the length still says where that is."""
    offset = 0
    while prefix := stream.read(_LENGTH.size):
        if len(prefix) < _LENGTH.size:
            yield offset, Reject("it ends in the length of a frame")
            return
        (size,) = _LENGTH.unpack(prefix)
        if size > _MOST_FRAME:
            yield offset, Reject(f"a frame of {size:,} bytes")
            return
        data = stream.read(size)
        if len(data) < size:
            yield offset, Reject(f"it ends {size - len(data):,} bytes before its last frame does")
            return
        yield offset, _unpacked(data)
        offset += _LENGTH.size + size


def _unpacked(data: bytes) -> Any:
    reader = unpacker(data)
    try:
        value = reader.unpack()
    except unpack_errors() as e:
        return Reject(unpack_problem(e))
    return value if isinstance(value, dict) else Reject("a frame that is no map")


def _records(
    frames: Iterator[tuple[int, Any]], lines: WireLines
) -> Iterator[tuple[int, Any, dict[str, Any]] | Line]:
    """Each record: its offset, its time and itself; or the line in place of it."""
    for offset, value in frames:
        if isinstance(value, Reject):
            yield lines.unread_line("lmcache", offset, str(value))
        elif value.get("type") == "record" and isinstance(value.get("args"), dict):
            yield offset, _time(value.get("t_mono")), value
        elif value.get("type") != "header":
            yield lines.unread_line("lmcache", offset, "a frame that is no record")


def _events(frames: Iterator[tuple[int, Any]], lines: WireLines) -> Iterator[Line]:
    incarnations: dict[str, int] = {}
    for record in _records(frames, lines):
        if isinstance(record, dict):
            yield record
            continue
        offset, ts, value = record
        try:
            for batch in _batches(value["args"]):
                yield from _batch(batch, ts, lines, incarnations)
        except Reject as e:
            yield lines.unread_line("lmcache", offset, str(e))


def _batches(args: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    """The batch that a record is, or those among its arguments."""
    plain = _plain(args)
    candidates = [plain, *(plain.values() if isinstance(plain, dict) else ())]
    for candidate in candidates:
        for each in candidate if isinstance(candidate, list) else [candidate]:
            if isinstance(each, dict) and "event_type" in each:
                yield each
                if each is plain:
                    return


def _batch(
    batch: dict[Any, Any], ts: int | None, lines: WireLines, incarnations: dict[str, int]
) -> Iterator[Line]:
    kind = {"store": "stored", "delete": "removed"}.get(str(batch.get("event_type")))
    instance = str(batch.get("instance_id", ""))[:64] or "lmcache"
    incarnation, number = count_of(batch.get("incarnation")) or 0, count_of(batch.get("seq"))
    beside: dict[str, Any] = {} if ts is None else {"ts": ts}
    known = incarnations.setdefault(instance, incarnation)
    if incarnation > known:
        # Its numbers begin anew, so it is another lane; what the earlier one held is gone.
        incarnations[instance] = incarnation
        yield lines.restart(_lane(instance, known), None) | beside
    actor = _lane(instance, incarnation)
    backend = str(batch.get("backend", ""))
    tier = str(batch.get("tier", ""))
    medium = _BACKENDS.get(backend) or medium_of(backend) or ("cpu" if tier == "l1" else "disk")
    if kind is None:
        # Access and config change nothing that is held, but their number counts.
        yield lines.line(actor, KvEvent("removed", (), None, medium), number, **beside)
        return
    by_group: dict[str, list[bytes]] = {}
    for entry in _list(batch.get("entries"), "entries"):
        if not isinstance(entry, dict):
            raise Reject("an entry that is no map")
        group, name = _key(entry.get("key"))
        by_group.setdefault(group, []).append(name)
    facts = {"tier": tier, "backend": backend}
    for group, hashes in by_group.items():
        event = KvEvent(kind, tuple(hashes), group, medium, None, number, facts)
        yield lines.line(actor, event, number, **beside)


def _lane(instance: str, incarnation: int) -> str:
    return f"{instance}#{incarnation}" if incarnation else instance


def _calls(frames: Iterator[tuple[int, Any]], lines: WireLines, names: Names) -> Iterator[Line]:
    for record in _records(frames, lines):
        if isinstance(record, dict):
            yield record
            continue
        offset, ts, value = record
        beside: dict[str, Any] = {} if ts is None else {"ts": ts}
        call = str(value.get("qualname", "")).rpartition(".")[2]
        args = _plain(value["args"])
        try:
            request = next(_named(args, "external_request_id"), None)
            if call == "submit_prefetch_task" and isinstance(request, str):
                yield {"ev": "admit", "actor": "lmcache", "req": request[:200], **beside}
            op = {"reserve_write": "write", "finish_write": "write"}.get(call, "read")
            for key in _list(next(_named(args, "keys"), []), "keys"):
                group, name = _key(key)
                yield {
                    "ev": "buffer", "actor": "lmcache", "name": f"{group}:{names.hash(name):x}",
                    "op": op, "reason": call[:64], **beside,
                }  # fmt: skip
        except Reject as e:
            yield lines.unread_line("lmcache", offset, str(e))


def _plain(value: Any, depth: int = 8) -> Any:
    """A value without the wrappers that name its type."""
    if depth == 0:
        return None
    if isinstance(value, dict):
        if "__t__" in value:
            return _plain(value.get("v"), depth - 1)
        return {k: _plain(v, depth - 1) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v, depth - 1) for v in value[:_MOST_KEYS]]
    return value


def _named(value: Any, name: str) -> Iterator[Any]:
    """Every argument of a name, at the top or one level below."""
    if isinstance(value, dict):
        if name in value:
            yield value[name]
        for inner in value.values():
            if isinstance(inner, dict) and name in inner:
                yield inner[name]


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Reject(f"{what} that are no list")
    return value


def _key(value: Any) -> tuple[str, bytes]:
    """The object group and the hash of a key, as a map or in its text form."""
    if isinstance(value, dict):
        group = count_of(value.get("object_group_id")) or 0
        return f"object{group}", hash_bytes(value.get("chunk_hash"))
    if isinstance(value, str):
        parts = value.split("@")
        if len(parts) >= 4:
            digits = _GROUP.fullmatch(parts[2])
            return f"object{int(digits[1], 16) if digits else 0}", hash_bytes(parts[3])
        return "object0", hash_bytes(value)
    raise Reject("a key that is neither a map nor text")


def _time(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        return None
    return int(value * 1e9)


IMPORTER = Importer("lmcache", "LMCache trace, .lct", sniff, read)
