"""The columnar form of an event: small integers, three lists, and whatever is left as JSON.

The store keeps rows, the fold runs over them, and both come from the one `encode` here.
`decode` gives back the event as it was written, unknown keys included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hkvtool.model.event import MALFORMED, Event
from hkvtool.model.events import BY_CODE, EVENTS, check_keys
from hkvtool.model.jsonl import parse_line, write_line

MISSING = -(1 << 62)
"""Stands for an absent integer; no legal value reaches it."""

NO_NAME = -1
"""Stands for an absent name."""

DOMAINS = ("actor", "req", "group", "pool", "handle", "hash", "part")
"""Names are numbered from 0 in each of these. Owners share `req`, since either holds blocks."""

PAD, BYPASS, FAILED = 1, 2, 4
"""Bits of `Row.flags`: padding rows, graph bypassed, a transfer that ended with ok=false."""


class Names:
    """Numbers for names, dense from 0 in each domain; remembers whether a name was an integer."""

    def __init__(self) -> None:
        self.ids: dict[str, dict[str | int, int]] = {d: {} for d in DOMAINS}
        self.values: dict[str, list[str | int]] = {d: [] for d in DOMAINS}

    def id(self, domain: str, name: str | int) -> int:
        """The number of `name`, given out on first sight."""
        ids = self.ids[domain]
        # hkv/1 lets ids be strings or integers; True == 1 in Python, but booleans never pass
        # the type check, so a plain dictionary keeps 1 and "1" apart.
        found = ids.get(name)
        if found is None:
            found = ids[name] = len(ids)
            self.values[domain].append(name)
        return found

    def find(self, domain: str, name: str | int) -> int:
        """The number of a name seen before, else `NO_NAME`."""
        return self.ids[domain].get(name, NO_NAME)

    def find_all(self, domain: str, names: Sequence[str | int]) -> list[int]:
        """`find` for many names at once."""
        return [self.find(domain, name) for name in names]

    def doubles(self, domain: str) -> dict[int, int]:
        """Integers whose text is a name too: the number of the integer to that of the text."""
        texts = {number: str(name) for name, number in self.ids[domain].items()
                 if isinstance(name, int)}  # fmt: skip
        found = {number: self.find(domain, text) for number, text in texts.items()}
        return {number: text for number, text in found.items() if text != NO_NAME}

    def name(self, domain: str, number: int) -> str | int:
        return self.values[domain][number]

    def count(self, domain: str) -> int:
        return len(self.values[domain])


class Row(NamedTuple):
    """One event as columns. `ev` 0 is an event that cannot be taken at its word.

    `group2` is the written group of a copy or the tail group of a seal; `pool2` the far pool
    of a transfer; `aux` the event's own scalar (`at`, `to`, `window_start`, the number of a copy's
    `src_group`); `blocks2` the `dst` of a copy, the `peer` of a transfer, what `failed` of it, or
    the `front` of a free.
    """

    pos: int
    ev: int
    actor: int = NO_NAME
    ts: int = MISSING
    seq: int = MISSING
    step: int = MISSING
    req: int = NO_NAME
    group: int = NO_NAME
    group2: int = NO_NAME
    pool: int = NO_NAME
    pool2: int = NO_NAME
    handle: int = NO_NAME
    part: int = NO_NAME
    t0: int = MISSING
    t1: int = MISSING
    version: int = MISSING
    kv_version: int = MISSING
    aux: int = MISSING
    flags: int = 0
    blocks: list[int] | None = None
    blocks2: list[int] | None = None
    hashes: list[int] | None = None
    rest: str | None = None
    problem: str | None = None


class _Route(NamedTuple):
    """Where the value of a key goes: a column, or a bit of `flags`; names have a domain."""

    kind: str
    column: str
    domain: str
    bit: int


_ROUTES: dict[str, dict[str, _Route]] = {}
"""By event and key. Written below as `kind:column[:domain]` or `kind:bit`."""

_EVERYWHERE = {
    "actor": "name:actor:actor",
    "ts": "int:ts",
    "seq": "int:seq",
    "step": "int:step",
    "req": "name:req:req",
    "group": "name:group:group",
    "pool": "name:pool:pool",
    "handle": "name:handle:handle",
    "part": "name:part:part",
    "tokens": "tokens:",
    "version": "int:version",
    "kv_version": "int:kv_version",
    "blocks": "list:blocks",
    "hashes": "names:hashes:hash",
    "pad": "flag:1",
    "bypass": "flag:2",
}

_OWN: dict[str, dict[str, str]] = {
    "touch": {"owner": "name:group2:req"},
    "free": {"front": "list:blocks2", "owner": "name:group2:req"},
    "pin": {"owner": "name:group2:req"},
    "unpin": {"owner": "name:group2:req"},
    "slide": {"window_start": "int:aux"},
    "seal": {"from": "name:group2:group"},
    "copy": {
        "src": "list:blocks", "dst": "list:blocks2", "src_group": "number:aux:group",
        "dst_group": "name:group2:group",
    },
    "rollback": {"to": "int:aux"},
    "resume": {"at": "int:aux", "blocks": ""},
    "lookup": {"tokens": "int:aux", "hashes": "", "blocks": ""},
    "store_begin": {"to": "name:pool2:pool", "peer": "list:blocks2"},
    "load_begin": {"from": "name:pool2:pool", "peer": "list:blocks2"},
    "store_end": {"ok": "notflag:4", "failed": "list:blocks2"},
    "load_end": {"ok": "notflag:4", "failed": "list:blocks2"},
    "pool": {"blocks": "int:aux"},
    "state": {"hashes": "", "versions": ""},
    "weights": {"version": ""},
}  # fmt: skip


def _route(text: str) -> _Route:
    kind, _, where = text.partition(":")
    column, _, domain = where.partition(":")
    return _Route(kind, column, domain, int(where) if where.isdigit() else 0)


def _routes(ev: str) -> dict[str, _Route]:
    found = _ROUTES.get(ev)
    if found is None:
        spec = EVENTS[ev]
        said = {k: v for k, v in _EVERYWHERE.items() if k in spec.keys}
        said.update(_OWN.get(ev, {}))
        found = _ROUTES[ev] = {k: _route(v) for k, v in said.items() if v}
    return found


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def encode(event: Event, names: Names) -> Row:
    """The row of an event. Names not seen before are given numbers in `names`."""
    if event.problem is not None or event.ev == MALFORMED:
        text = event.raw if event.raw is not None else write_line(event)
        return Row(event.pos, 0, rest=text, problem=event.problem or "malformed")
    routes = _routes(event.ev)
    columns: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    flags = 0
    for key, value in event.data.items():
        if key == "ev":
            continue
        route = routes.get(key)
        if route is None:
            rest[key] = value
            continue
        kind, column, domain, bit = route
        if kind in ("name", "number"):
            columns[column] = names.id(domain, value)
        elif kind in ("int", "list"):
            columns[column] = value
        elif kind == "tokens":
            columns["t0"], columns["t1"] = value
        elif kind == "names":
            columns[column] = [names.id(domain, v) for v in value]
        elif value is (kind == "flag"):
            flags |= bit
        else:
            rest[key] = value
    return Row(
        event.pos,
        EVENTS[event.ev].code,
        flags=flags,
        rest=_dumps(rest) if rest else None,
        **columns,
    )


def decode(row: Row, names: Names) -> Event:
    """The event of a row, equal to the one it was made from (key order aside)."""
    if row.ev == 0:
        event = parse_line(row.pos, row.rest or "")
        return Event(row.pos, event.ev, event.data, row.problem, event.raw)
    ev = BY_CODE[row.ev].name
    data: dict[str, Any] = {"ev": ev}
    for key, (kind, column, domain, bit) in _routes(ev).items():
        if kind == "name":
            number = getattr(row, column)
            if number != NO_NAME:
                data[key] = names.name(domain, number)
        elif kind == "number":
            if row.aux != MISSING:
                data[key] = names.name(domain, row.aux)
        elif kind == "int":
            value = getattr(row, column)
            if value != MISSING:
                data[key] = value
        elif kind == "list":
            value = getattr(row, column)
            if value is not None:
                data[key] = value
        elif kind == "tokens":
            if row.t0 != MISSING:
                data[key] = [row.t0, row.t1]
        elif kind == "names":
            if row.hashes is not None:
                data[key] = [names.name("hash", h) for h in row.hashes]
        elif row.flags & bit:
            data[key] = kind == "flag"
    if row.rest:
        data.update(json.loads(row.rest))
    return Event(row.pos, ev, data)


_REQUIRED = {name: frozenset(spec.required) for name, spec in EVENTS.items()}


def decode_checked(row: Row, names: Names) -> Event:
    """The same of a row that anybody may have altered. Raises ValueError, LookupError or TypeError
    where a reader of lines would not have taken the event at its word."""
    event = decode(row, names)
    if row.ev and row.rest:
        # What is no column of its own may be anything.
        problem = check_keys(dict(event.data))
        if problem is not None:
            raise ValueError(problem)
    elif row.ev and not _REQUIRED[event.ev] <= event.data.keys():
        missing = ", ".join(sorted(_REQUIRED[event.ev] - event.data.keys()))
        raise ValueError(f"{event.ev} without {missing}")
    return event


Encode = Callable[[Event, Names], Row]
