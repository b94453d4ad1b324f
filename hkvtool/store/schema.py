"""What a DuckDB trace holds, defined once: its tables, their columns, and the facts in `meta`.

The writer creates from it, the reader checks against it, `docs/reference/store.md` is made
from it. `SCHEMA_VERSION` rises when an older hkvtool would misread a newer file, or a newer one
finds something missing in an older file.
"""

from __future__ import annotations

from dataclasses import dataclass

from hkvtool.model.rows import DOMAINS

SCHEMA_VERSION = 4

SEEN_SINCE = 3
"""The first version whose keyframes say what every block was, and not only how it stood."""

STORAGE_VERSION = "v1.4.0"
"""Oldest DuckDB that can open a trace: the lower end of the range hkvtool itself runs with."""


@dataclass(frozen=True)
class Column:
    """One column; what `type` is to DuckDB."""

    name: str
    type: str
    doc: str


_STORED = {"BLOB": " USING COMPRESSION uncompressed"}
"""How columns of a type are stored. What is packed already is not packed again: to read one, all of
a few thousand would have to be unpacked."""


@dataclass(frozen=True)
class Table:
    """One table."""

    name: str
    doc: str
    columns: tuple[Column, ...]
    since: int = 1
    """The first version that has it; what an older trace lacks of it is read in another way."""

    @property
    def ddl(self) -> str:
        columns = ", ".join(f'"{c.name}" {c.type}{_STORED.get(c.type, "")}' for c in self.columns)
        return f"CREATE TABLE {self.name} ({columns})"


def _columns(text: str) -> tuple[Column, ...]:
    """Columns from lines of ``name TYPE what it is``; an indented line goes on with the last."""
    rows = (line.split(None, 2) for line in text.strip().replace("\n ", " ").splitlines())
    return tuple(Column(name, kind, doc) for name, kind, doc in rows)


EVENTS_TABLE = Table(
    "events",
    "Every event, one a row, in physical order of `pos`. Absent values are NULL. Names are "
    "numbers of `names`; `event_log` is the same with the names put back.",
    _columns("""
pos BIGINT position: line number of the recording, row order
ev UTINYINT kind of event (`kinds`); 0: one that cannot be taken at its word, see `problem`
actor INTEGER lane that did it (names `actor`); NULL: the default lane of its kind
ts BIGINT nanoseconds on the trace's clock
seq BIGINT the recorder's own count on that lane
step BIGINT engine step
req INTEGER request (names `req`)
group INTEGER cache group (names `group`)
group2 INTEGER written group of a `copy`, tail group of a `seal` (names `group`);
 holder of a `touch`, `free`, `pin`, `unpin` that is no request (names `req`)
pool INTEGER pool as stated (names `pool`); where NULL, the group's
pool2 INTEGER far pool of a transfer (names `pool`)
handle INTEGER transfer (names `handle`)
part INTEGER layer or shard (names `part`)
t0 BIGINT first token of `tokens`
t1 BIGINT end of `tokens`
version BIGINT content version as stated
kv_version BIGINT KV version that indexer rows belong to
aux BIGINT the event's own number: `at` of a resume, `tokens` of a lookup, `to` of a rollback,
 `window_start` of a slide, `blocks` of a pool, `src_group` of a copy (names `group`)
flags UTINYINT bits: 1 padding rows (`pad`), 2 graph bypassed (`bypass`),
 4 transfer failed (`ok` false)
blocks BIGINT[] block ids, in token order; `src` of a copy
blocks2 BIGINT[] `dst` of a copy, `peer` of a transfer and what `failed` of it, `front` of a free
hashes INTEGER[] content hashes beside `blocks` (names `hash`)
rest VARCHAR every other key, as a JSON object; the line itself where `ev` is 0
problem VARCHAR why the event cannot be taken at its word (HKV905)
"""),
)

NAMES_TABLE = Table(
    "names",
    "Numbers for names, dense from 0 in each domain.",
    _columns(f"""
domain VARCHAR one of {", ".join(f"`{d}`" for d in DOMAINS)};
 holders that are no request stand under `req`
id INTEGER the number
name VARCHAR the name
is_int BOOLEAN it was written as an integer, not as a string
escaped BOOLEAN it is no well-formed Unicode; `name` is its JSON escape
"""),
)

KINDS_TABLE = Table(
    "kinds",
    "The kinds of events, and how many this trace has of each.",
    _columns("""
ev UTINYINT number in `events.ev`
name VARCHAR name in `hkv/1`; `?` for number 0
access BOOLEAN it touches bytes (else it is book-keeping)
count BIGINT events of this kind in this trace
doc VARCHAR what it means
"""),
)

META_TABLE = Table(
    "meta",
    "Facts about the trace as a whole.",
    _columns("""
key VARCHAR which fact
value VARCHAR text, a decimal number, or JSON
"""),
)

KEYFRAMES_TABLE = Table(
    "keyframes",
    "The state of all blocks at some positions of a long trace, as chunks that changed since the "
    "one before, so that any moment opens at once.",
    _columns("""
pos BIGINT position after which the state stands
whole BOOLEAN every chunk is here, but for those that nobody has touched
field VARCHAR array of the fold (`hkvtool.state.arrays`); `seen_` and a column of what a block is
 (`hkvtool.state.overview`); `gaps`, the positions of losses whose end is open
chunk INTEGER which stretch of it
size INTEGER bytes before compression
data BLOB a byte that says how many bytes an integer has, 16 more where each is told as what it is
 more than the one before; the integers, little-endian, zstd
"""),
)

STRETCHES_TABLE = Table(
    "stretches",
    "Which stretches of a long trace name a block, so that its life is read without the rest of "
    "the trace; empty where it is short. A lookup, resume or remap counts with every number in its "
    "text; the end of a transfer, which names no block, does not count.",
    _columns("""
first BIGINT position from which the first of these stretches goes
ends BIGINT[] position of the last event of each; there the next one begins
chunk INTEGER which 16,384 block ids
size INTEGER bytes before compression
data BLOB ascending integers, packed as those of `keyframes`: the block id within the chunk times
 32, and the stretch
"""),
    since=4,
)

NAMES_OF = {
    "actor": "actor", "req": "req", "group": "group", "group2": "group", "pool": "pool",
    "pool2": "pool", "handle": "handle", "part": "part", "hashes": "hash",
}  # fmt: skip
"""Domain of the names behind a column of `events`; `group2` of `HOLDERS` has its own."""

HOLDERS = ("touch", "free", "pin", "unpin")
"""Events whose `group2` is a holder that is no request, under `req`."""

TABLES = (
    EVENTS_TABLE, NAMES_TABLE, KINDS_TABLE, META_TABLE, KEYFRAMES_TABLE, STRETCHES_TABLE,
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One key of `meta`; `kind` is text, integer or json."""

    key: str
    kind: str
    doc: str


META = (
    Fact("format", "text", "always `hkv/1`; what makes a DuckDB file a trace"),
    Fact("schema_version", "integer", "of these tables; a reader refuses a newer one"),
    Fact("hkvtool_version", "text", "version of hkvtool that wrote the file"),
    Fact("sources", "json", "files it was made from, in order: `file`, `first` (pos), `events`"),
    Fact("engine", "text", "engine, as the recording says"),
    Fact("note", "text", "note of the recording"),
    Fact("evidence", "json", "evidence classes that hold from the start"),
    Fact("evidence_source", "text", "`declared` by the recording, or `implied` by its events"),
    Fact("events", "integer", "number of events"),
    Fact("problems", "integer", "events that cannot be taken at their word (HKV905)"),
    Fact("dropped", "integer", "events that the recorder says it lost"),
    Fact("first_pos", "integer", "position of the first event"),
    Fact("last_pos", "integer", "position of the last event"),
    Fact("first_ts", "integer", "earliest `ts`; left out where no event has one"),
    Fact("last_ts", "integer", "latest `ts`; left out where no event has one"),
    Fact("lanes", "json", "events by lane"),
    Fact("requests", "integer", "requests named"),
    Fact("clocks", "json", "of several machines: nanoseconds added to the times of each, and why"),
)
"""A fact that is not known is left out of the table."""
