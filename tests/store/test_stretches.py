"""Which stretches of a trace name a block: what is read through them is what is read without."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hkvtool.model.errors import TraceError
from hkvtool.store import open_trace, stretches
from hkvtool.store.duck import DuckTrace
from hkvtool.store.history import history
from hkvtool.store.places import Places
from hkvtool.store.stretches import MOST, numbers_in
from tests.store.test_hostile import altered


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches of three events, noted in the shortest trace."""
    monkeypatch.setattr(stretches, "ROWS", 3)
    monkeypatch.setattr(stretches, "FEWEST", 1)


def named(trace: DuckTrace) -> set[tuple[str, int]]:
    places = Places()
    found = {(p.pool, p.block) for event in trace.events() for p in places.of(event)}
    return {(pool, block) for pool, block in found if pool is not None}


def test_the_life_of_every_block_is_the_same_with_and_without(  # type: ignore[no-untyped-def]
    cases, duckdb_of, fine, monkeypatch
) -> None:
    looked = near = 0
    for name in ("A01", "A04", "A22", "B16", "B21"):
        with open_trace(duckdb_of(cases[name].bad)) as trace:
            assert isinstance(trace, DuckTrace)
            for pool, block in sorted(named(trace))[:40]:
                looked += 1
                spans = trace._spans(block)
                near += bool(spans)
                found = list(history(trace, pool, block))
                with monkeypatch.context() as patch:
                    patch.setattr(trace, "_spans", lambda _: None)
                    assert found == list(history(trace, pool, block)) and found
                    middle = found[len(found) // 2].event.pos
                    before = list(trace.events(until=middle, block=(pool, block)))
                assert before == list(trace.events(until=middle, block=(pool, block)))
                assert all(
                    any(first <= m.event.pos <= last for first, last in spans or ())
                    for m in found if m.event.ev not in ("store_end", "load_end", "lease")
                )  # fmt: skip
    assert near == looked > 30


def test_ends_of_many_transfers_are_found(jsonl, duckdb_of, fine, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    lines = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 64},
        {"ev": "group", "group": "fa", "form": "compressed", "pool": "gpu", "block_tokens": 16},
    ]
    for n in range(90):
        end = {"ev": "store_end", "handle": f"h{n}"}
        begin = {"ev": "store_begin", "group": "fa", "handle": f"h{n}", "blocks": [3 + n % 2],
                 "to": "cpu"}  # fmt: skip
        lines += [begin, {"ev": "admit", "req": f"r{n}"}, end, {"ev": "admit", "req": f"q{n}"}]
    path = duckdb_of(jsonl(lines))
    for one_by_one in (64, 3):
        monkeypatch.setattr("hkvtool.store.conditions._ONE_BY_ONE", one_by_one)
        with open_trace(path) as trace:
            found = [m.event.ev for m in history(trace, "gpu", 3)]
            assert trace._spans(3)
        assert found == ["store_begin", "store_end"] * 45


@given(st.lists(st.text('0123456789 ,:[]{}"abe-é', max_size=40), max_size=5))
def test_numbers_are_found_as_digits_stand(texts: list[str]) -> None:
    wanted = [int(n) for text in texts for n in re.findall(r"[0-9]+", text) if len(n) <= 8]
    assert numbers_in(texts).tolist() == wanted


def test_what_is_not_noted_is_read_without(cases, duckdb_of, fine, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    path = duckdb_of(cases["A01"].bad)
    with open_trace(path) as trace:
        assert trace._spans(MOST) is None and trace._spans(-1) is None
        assert trace._spans(MOST - 1) == []
        monkeypatch.setattr("hkvtool.store.duck._MOST_SPANS", 1)
        assert trace._spans(13) is None
    monkeypatch.setattr(stretches, "FEWEST", 100)
    short = duckdb_of(cases["A01"].bad)
    with open_trace(short) as trace:
        assert trace._spans(13) is None and list(history(trace, "gpu", 13))


def test_a_trace_of_an_older_schema_has_none(cases, duckdb_of, fine) -> None:  # type: ignore[no-untyped-def]
    path = duckdb_of(cases["A01"].bad)
    with open_trace(path) as trace:
        before = list(history(trace, "gpu", 13))
    altered(path, "DROP TABLE stretches")
    with pytest.raises(TraceError, match=r"column stretches\.first is missing"):
        open_trace(path)
    altered(path, "UPDATE meta SET value = '3' WHERE key = 'schema_version'")
    with open_trace(path) as trace:
        assert list(history(trace, "gpu", 13)) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE stretches SET data = 'x'::BLOB", "UPDATE stretches SET size = 1",
        "UPDATE stretches SET size = 2000000000", "UPDATE stretches SET ends = []",
        "UPDATE stretches SET ends = NULL", "UPDATE stretches SET data = ''::BLOB",
    ],
)  # fmt: skip
def test_an_altered_one_is_told(cases, duckdb_of, fine, statement: str) -> None:  # type: ignore[no-untyped-def]
    path = altered(duckdb_of(cases["A01"].bad), statement)
    with open_trace(path) as trace, pytest.raises(TraceError, match="cannot be unpacked"):
        list(history(trace, "gpu", 13))
