"""Hypothesis strategies made from the event table: any event that the format allows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from hkvtool.model.events import EVENTS, EventSpec
from hkvtool.model.keys import INT_LIMIT, KeyType

Data = dict[str, Any]

INTEGERS = st.one_of(st.integers(0, 9), st.integers(-INT_LIMIT + 1, INT_LIMIT - 1))
NATURALS = st.one_of(st.integers(0, 9), st.integers(0, INT_LIMIT - 1))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NAMES = st.one_of(st.sampled_from(["r1", "kv", "gpu", "h0"]), TEXT, INTEGERS)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), INTEGERS, st.floats(-1e9, 1e9), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)
"""Any JSON value."""

_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "integer": INTEGERS,
    "count": NATURALS,
    "string": TEXT,
    "name": NAMES,
    "name or number": NAMES,
    "flag": st.booleans(),
    "list of integers": st.lists(INTEGERS, max_size=4),
    "list of names": st.lists(NAMES, max_size=4),
    "list": st.lists(JSON, max_size=4),
    "token range": st.tuples(NATURALS, NATURALS).map(sorted),
    "count by group": st.dictionaries(TEXT, NATURALS, max_size=3),
    "list of integers by group": st.dictionaries(TEXT, st.lists(INTEGERS, max_size=3), max_size=3),
    "list of names by group": st.dictionaries(TEXT, st.lists(NAMES, max_size=3), max_size=3),
    "object": st.dictionaries(TEXT, JSON, max_size=3),
    "map of logical id to pool index": st.dictionaries(
        st.integers(0, 99).map(str), INTEGERS, max_size=3
    ),
    "any": JSON,
}


def values(kind: KeyType) -> st.SearchStrategy[Any]:
    """Values that the type allows."""
    if kind.name in _BY_NAME:
        return _BY_NAME[kind.name]
    if kind.name == "route by group":
        return st.dictionaries(
            TEXT, st.sampled_from(kind.schema["additionalProperties"]["enum"]), max_size=3
        )
    return st.sampled_from(kind.schema["enum"])


def _aligned(data: Data) -> Data:
    """The event with the lists beside `blocks` (or `src`) made as long as it."""
    for beside in ("hashes", "gens", "values", "dst", "peer"):
        mate = data.get("src" if beside == "dst" else "blocks")
        if isinstance(data.get(beside), list) and isinstance(mate, list):
            own = data[beside] or [0]
            data[beside] = [own[i % len(own)] for i in range(len(mate))]
    return data


@st.composite
def _event(draw: st.DrawFn, spec: EventSpec) -> Data:
    optional = [name for name, key in spec.keys.items() if not key.required]
    chosen = draw(st.sets(st.sampled_from(optional))) if optional else set()
    names = [n for n in spec.keys if n in chosen or spec.keys[n].required]
    data: Data = {"ev": spec.name, **{n: draw(values(spec.keys[n].type)) for n in names}}
    unknown = draw(st.dictionaries(TEXT.map("x-{}".format), JSON, max_size=2))
    return _aligned(data) | unknown


def events() -> st.SearchStrategy[Data]:
    """Event objects as the format allows them, unknown keys included."""
    return st.sampled_from(list(EVENTS.values())).flatmap(_event)


@st.composite
def mutated(draw: st.DrawFn) -> Data:
    """An event with one thing changed, mostly for the worse."""
    data = draw(events())
    key = draw(st.sampled_from(list(data)))
    change = draw(st.sampled_from(["drop", "replace", "nest"]))
    if change == "drop":
        del data[key]
    elif change == "replace":
        data[key] = draw(JSON)
    else:
        data[key] = [data[key]]
    return data
