"""Every event of the trace format `hkv/1`, defined once.

The reader, the writer, the byte codec, the JSON Schema and the reference pages are all made
from the table `EVENTS`. A line of it names the keys in order; `+` marks the required ones,
`key:Type` narrows the type a key has elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hkvtool.model import keys as k

FORMAT = "hkv/1"
DEFAULT_ACTOR = "sched"
DEVICE_ACTOR = "device"
"""The lane of an access that carries a `step` and names no `actor`."""

EVIDENCE = (
    "host", "step", "stream", "layout", "map", "bytes", "wire", "graph", "key", "lease",
)  # fmt: skip
"""Evidence classes a recorder can declare; rules that need an absent one are not evaluable."""


@dataclass(frozen=True)
class Key:
    """One key of one event."""

    name: str
    type: k.KeyType
    required: bool
    doc: str


@dataclass(frozen=True)
class EventSpec:
    """One kind of event: `code` is its stable number in binary forms."""

    name: str
    code: int
    doc: str
    keys: dict[str, Key]

    @cached_property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, key in self.keys.items() if key.required)


_KEYS: dict[str, tuple[k.KeyType, str]] = {
    "actor": (k.NAME, "lane that did it; default `sched`, for a step's accesses `device`"),
    "ts": (k.INT, "nanoseconds on the trace's clock"),
    "seq": (k.INT, "the recorder's own count on that lane; a jump is that many lost events"),
    "step": (k.INT, "engine step number"),
    "req": (k.NAME, "request id"),
    "pool": (k.NAME, "one block-id space on one medium"),
    "group": (k.NAME, "one cache group"),
    "blocks": (k.INTS, "physical block ids, in token order"),
    "tokens": (k.TOKENS, "[start, end) in the request's token positions"),
    "handle": (k.NAME, "one transfer"),
    "part": (k.SCALAR, "a layer or shard; different parts of a block do not conflict"),
    "version": (k.INT, "count of the block's content inside one generation"),
    "kv_version": (k.INT, "version of the KV that the indexer rows belong to"),
    "codec": (k.STR, "compression codec and its version"),
    "hashes": (k.NAMES, "content hashes beside `blocks`"),
    "gens": (k.INTS, "generations beside `blocks`, as the actor believed them"),
    "key": (k.NAMES, "named inputs that the content truly depends on"),
    "owner": (k.NAME, "holder that is no request (deferred free, connector pin)"),
    "reason": (k.STR, "why, in the engine's words"),
    "index": (k.INTS, "pool indices actually addressed"),
    "pad": (k.BOOL, "padding rows of a batch"),
    "pointers": (k.OBJECT, "name to address, constant or generation"),
    "layout": (k.OBJECT, "how the producer lays the bytes out"),
    "bytes": (k.NATURAL, "bytes moved"),
    "event": (k.NAME, "name of an ordering edge"),
    "evidence": (k.NAMES, "evidence classes that hold"),
    "engine": (k.NAME, "engine that owns it, where a trace holds several"),
    "note": (k.STR, "free text"),
    "count": (k.NATURAL, "how many"),
    "medium": (k.MEDIUM, "where the bytes are"),
    "needs": (k.NATURAL, "blocks needed"),
    "free": (k.NATURAL, "blocks available, evictable ones included"),
    "external": (k.NAME, "the request id a client knows"),
    "tenant": (k.NAME, "tenant"),
    "graph": (k.NAME, "one captured graph"),
    "reqs": (k.NAMES, "requests of the step"),
    "peer": (k.INTS, "blocks on the far side, beside `blocks`"),
    "peer_tokens": (k.TOKENS, "token range as the far side believes it"),
}

_COMMON = ("actor", "ts", "seq", "step", "req")
"""Keys any event may carry."""

_TABLE: tuple[tuple[int, str, str, str], ...] = (
    (1, "trace", "+format:STR engine evidence note", "First line: what was recorded and what the recorder could see."),
    (2, "evidence", "+evidence", "From here on these evidence classes hold, for this lane or all."),
    (3, "state", "+pool +blocks refs:INTS gens hashes:SCALARS versions:INTS written:INTS owners:SCALARS groups:SCALARS free_order:INTS", "What held when recording began or went on; lists are aligned with `blocks`."),
    (4, "pool", "+pool +medium +blocks:NATURAL reserved:INTS engine zeroed:BOOL", "A pool exists: one block-id space on one medium."),
    (5, "group", "+group +form:FORM +pool +block_tokens:NATURAL ratio:NATURAL window:NATURAL window_kind sink:NATURAL replayed:BOOL overlap:NATURAL slack:NATURAL serves:NAME participates:BOOL table:NAME layers:ANY layout", "A cache group and what its producer writes."),
    (6, "kernel", "+kernel:NAME +group +expects:OBJECT", "A consumer's ABI."),
    (7, "limits", "group recovering_blocks:NATURAL recovering_bytes:NATURAL stall_steps:NATURAL stall_ns:NATURAL thrash_trips:NATURAL", "Admission caps and the patience of the progress rule."),
    (8, "alloc", "+blocks group req pool tokens", "Blocks taken from the free list: reference count 1, next generation."),
    (9, "touch", "+blocks pool group req owner", "Reference count +1."),
    (10, "free", "+blocks pool group req owner front:INTS", "Reference count -1; at 0 the block is free and keeps its content until the next `alloc`."),
    (11, "publish", "+group +blocks +hashes tokens req key version codec", "These hashes can now be hit and lead to these blocks."),
    (12, "unpublish", "group blocks hashes reason", "These hashes can no longer be hit."),
    (13, "slide", "+group +req +blocks window_start:NATURAL", "The window left these blocks: they drop out of the request's table."),
    (14, "remap", "+pool +map:PLACES version", "Logical block ids moved to other pool indices."),
    (15, "reset", "pool", "Every hash is gone."),
    (16, "pin", "+blocks pool group owner", "Must not be evicted or reused meanwhile."),
    (17, "unpin", "+blocks pool group owner", "May be evicted again."),
    (18, "write", "+group +blocks +tokens req version index pad part", "A kernel writes KV of these token positions."),
    (19, "seal", "+group +blocks +version from:NAME tokens req part", "Compressed entries completed from the tail."),
    (20, "index", "+group +blocks +version +kv_version tokens req part", "Indexer rows brought up to this KV version."),
    (21, "zero", "+blocks pool group", "Bytes cleared."),
    (22, "copy", "+src:INTS +dst:INTS group pool src_group:NAME dst_group:NAME", "Blocks copied (copy-on-write, relocation)."),
    (23, "rollback", "+req +to:NATURAL", "Tokens from `to` on were rejected; their content is void."),
    (24, "buffer", "+name:NAME +op:op:buffer version valid:NATURAL extent:NATURAL", "A metadata or staging buffer is written or read."),
    (25, "dispatch", "+step reqs starts:INTS counts:INTS tables:INTS zeroed:INTS copies:INTS", "The step is handed to the device. A recorder may say what the worker is told instead of every access: they are worked out from it at ingest."),
    (26, "retire", "+step reqs", "The step is known to be done."),
    (27, "lookup", "+req +hit:INT_BY_GROUP blocks:INTS_BY_GROUP tokens:NATURAL hashes:NAMES_BY_GROUP key", "The prefix match, group by group."),
    (28, "resume", "+req +at:NATURAL blocks:INTS_BY_GROUP route:ROUTE_BY_GROUP", "The decision to continue from `at`: the check of check-then-use."),
    (29, "use", "+group +blocks req part tokens gens index pad", "A kernel reads these blocks: the use of check-then-use."),
    (30, "select", "+group +req +entries:INTS", "Historical entries that sparse routing chose."),
    (31, "store_begin", "+handle +group +blocks to:NAME peer bytes tokens version kv_version codec index part hashes key peer_tokens", "A transfer out starts: it reads `blocks` and writes `peer`."),
    (32, "load_begin", "+handle +group +blocks from:NAME peer bytes tokens version kv_version codec index part hashes key peer_tokens", "A transfer in starts: it reads `peer` and writes `blocks`, which are unreadable until it ends."),
    (33, "store_end", "+handle ok:BOOL failed:INTS", "A transfer out ended."),
    (34, "load_end", "+handle ok:BOOL failed:INTS", "A transfer in ended."),
    (35, "lease", "+op:op:lease +handle blocks pool", "The far side promises the bytes until then."),
    (36, "signal", "+event", "Ordering edge: everything before it on this lane ..."),
    (37, "wait", "+event", "... comes before everything after this on that lane."),
    (38, "admit", "+req reason external tenant needs free pool engine trace_id:STR", "A request is admitted."),
    (39, "refuse", "+req reason external tenant needs free pool", "A request must wait."),
    (40, "preempt", "+req reason external tenant needs free pool", "A running request gives its blocks back."),
    (41, "abort", "+req reason external tenant needs free pool", "A request ends without finishing."),
    (42, "finish", "+req reason external tenant needs free pool", "A request ends."),
    (43, "capture", "+graph pointers", "A graph is captured with what it has baked in."),
    (44, "launch", "+graph pointers bypass:BOOL", "A captured graph is replayed; `pointers` is what is live now."),
    (45, "rebase", "pool group reason pointers layout", "Addresses or geometry changed."),
    (46, "weights", "+version:SCALAR", "Model weights changed."),
    (47, "dropped", "+count pool reason", "The recorder lost this many events of this lane here."),
    (48, "wire", "+kind:kind:wire wseq:INT group hashes medium lane:STR tokens key", "A KV event as published, or as a consumer applied it."),
    (49, "fingerprint", "+group +blocks +values:SCALARS +at:at:fingerprint part beside:NAME", "Checksum of the blocks' bytes, or of one part of them."),
)  # fmt: skip

_KEY_DOCS: dict[str, str] = {
    "format": "always `hkv/1`",
    "refs": "reference counts",
    "versions": "content versions",
    "written": "token slots written, a count",
    "owners": "who holds them",
    "groups": "group each block belongs to",
    "free_order": "the free list, next to be reused first",
    "reserved": "ids never allocated, e.g. `[0]`",
    "zeroed": "true: born zeroed; of a step, the blocks cleared before it",
    "form": "home form",
    "block_tokens": "tokens a block holds",
    "ratio": "tokens per stored entry (1)",
    "window": "tokens of the window, the current one included",
    "window_kind": "`sliding`, or `chunked`: only the current chunk",
    "sink": "first tokens needed too",
    "replayed": "true: nothing needed, the window is recomputed on a hit",
    "overlap": "tokens before the open unit that a tail needs",
    "slack": "extra tokens a resume must find, e.g. speculative",
    "serves": "group that this component belongs to",
    "participates": "true: a resume needs it",
    "table": "name of the block table it shares; default its own name",
    "layers": "layers of the group",
    "table_index": "which of a request's block tables it is, where `dispatch` counts them",
    "states": "which recurrent states are kept: `none`, `align` (the running one and those at block ends) or `all`",
    "kernel": "name of the consumer",
    "expects": "layout keys the consumer relies on",
    "recovering_blocks": "blocks that may be recovering at once",
    "recovering_bytes": "transfer bytes that may be in flight",
    "stall_steps": "steps without progress that are tolerated",
    "stall_ns": "nanoseconds without progress that are tolerated",
    "thrash_trips": "trips out and in without a use between (2)",
    "front": "those of `blocks` put at the head of the free list",
    "window_start": "first token still in the window",
    "map": "logical id to pool index",
    "src": "blocks read",
    "dst": "blocks written, beside `src`",
    "src_group": "group read, over `group`",
    "dst_group": "group written, over `group`",
    "to": "first rejected token, or the pool a store goes to",
    "from": "tail group of a seal, or the pool a load comes from",
    "name": "buffer name",
    "op": "what is done",
    "starts": "beside `reqs`, the first token that each runs",
    "counts": "beside `reqs`, how many tokens each runs",
    "tables": "changes of block tables: place in `reqs`, 0 append or 1 replace, first table, how many, then for each its count and ids",
    "copies": "blocks copied before it, source and destination in turn",
    "valid": "entries valid after a write",
    "extent": "entries consumed by a read",
    "trace_id": "the trace context that came with the request",
    "hit": "tokens found, by group",
    "at": "tokens to continue from, or the moment of a fingerprint",
    "route": "recovery route by group",
    "entries": "entry i stands for tokens [i*ratio, (i+1)*ratio) of the served group",
    "ok": "false: it failed (default true)",
    "failed": "blocks that did not arrive",
    "bypass": "true: run without the graph because the topology was changing",
    "kind": "what the KV event says",
    "wseq": "sequence number on the wire",
    "lane": "`pub` or `recv`",
    "values": "checksums beside `blocks`",
    "beside": "lane that fingerprints the same blocks in the same step, and whose moment this one is of, whenever it comes",
}


def _key(text: str) -> Key:
    required = text.startswith("+")
    name, _, type_name = text.removeprefix("+").partition(":")
    if name in k.ENUMS:
        kind, doc = k.ENUMS[name], _KEY_DOCS[name]
    elif type_name:
        kind = k.ENUMS[type_name] if type_name in k.ENUMS else getattr(k, type_name)
        doc = _KEY_DOCS.get(name) or _KEYS[name][1]
    else:
        kind, doc = _KEYS[name]
    return Key(name, kind, required, doc)


def _spec(code: int, name: str, keys: str, doc: str) -> EventSpec:
    own = {key.name: key for key in map(_key, keys.split())}
    for common in _COMMON:
        own.setdefault(common, _key(common))
    return EventSpec(name, code, doc, own)


EVENTS: dict[str, EventSpec] = {row[1]: _spec(row[0], row[1], row[2], row[3]) for row in _TABLE}
"""Every event kind by name."""

BY_CODE: dict[int, EventSpec] = {spec.code: spec for spec in EVENTS.values()}
"""Every event kind by its stable number."""

ACCESSES = frozenset({"write", "seal", "index", "zero", "copy", "use", "buffer", "select"})
"""Events that touch bytes; all others are book-keeping."""

DECLARATIONS = frozenset({"trace", "evidence", "pool", "group", "kernel", "limits"})
"""Events that say what exists rather than what happens."""


_BESIDE_IN_ORDER = ("hashes", "gens", "values", "dst", "peer")
_BESIDE = frozenset(_BESIDE_IN_ORDER)
"""Lists that have as many entries as another of the event."""


def check_keys(data: dict[str, Any]) -> str | None:
    """Say what is wrong with an event object as written, or None.

    Unknown keys are fine (kept and ignored); an unknown `ev`, a missing required key or a
    value of another type is not (HKV905).
    """
    name = data.get("ev")
    if not isinstance(name, str):
        return "has no `ev`"
    spec = EVENTS.get(name)
    if spec is None:
        return f"unknown event {name!r}"
    for key in spec.required:
        if key not in data:
            return f"{name}: key `{key}` is missing"
    for key, value in data.items():
        known = spec.keys.get(key)
        if known is None:
            continue
        problem = known.type.check(value)
        if problem:
            return f"{name}: `{key}` {problem}"
    if _BESIDE.isdisjoint(data):
        return None
    for beside in _BESIDE_IN_ORDER:
        against = "src" if beside == "dst" else "blocks"
        mate, other = data.get(beside), data.get(against)
        if isinstance(mate, list) and isinstance(other, list) and len(mate) != len(other):
            if name != "unpublish" and name != "wire":
                return f"{name}: {len(mate)} {beside} for {len(other)} {against}"
    return None
