"""The compiled fold is the plain fold, over whatever a trace may hold."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Data, events

from hkvtool.state.codes import CONTROL
from hkvtool.state.compiled import CompiledFold
from hkvtool.state.jit import compiled, ready
from hkvtool.state.soundness import unsound
from hkvtool.store import open_trace
from hkvtool.store.moments import fold_at
from tests.state.fold_facts import facts
from tests.state.hostile import DECLARED, hostile
from tests.state.traces import FOLDED_KINDS, Plain, fewest, imported, parted, valid, written

SEEDS = st.integers(0, 1 << 30)


def difference(path: Path, stops: Iterable[int]) -> str | None:
    """Where the compiled fold parts from the plain one, at any of `stops` or at the end."""
    with open_trace(path) as trace:
        plain, fold = Plain(list(trace.events())), CompiledFold(trace)
        if not fold.fits:
            return None
        since = 0
        for stop in sorted({*stops, trace.meta["last_pos"]}):
            fold.advance(since=since, until=stop)
            found = parted(facts(fold, plain.blocks), plain.until(stop))
            if found:
                return f"after {stop}, compiled and plain: {found}"
            since = stop + 1
        if fold.refused != plain.refused:
            return f"refused: compiled {fold.refused} plain {plain.refused}"
    return None


def alike(lines: list[Data], stops: list[int], put: Callable[[Iterable[Data]], Path]) -> None:
    def parts(some: list[Data]) -> str | None:
        return difference(put(some), stops)

    if lines and parts(lines):
        small = fewest(lines, parts)
        pytest.fail("\n".join([str(parts(small)), *map(json.dumps, small)]))


@pytest.fixture(scope="module", autouse=True)
def forgetful() -> Iterator[None]:
    """What is dead is forgotten soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hkvtool.state.fold.FEW", 3)
        patch.setattr("hkvtool.state.compiled.FEW", 3)
        # Pools of any size may be declared; these tests are not about them.
        patch.setattr("hkvtool.state.compiled.MAX_BYTES", 1 << 24)
        yield


@pytest.fixture(scope="module")
def jsonl(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Iterable[Data]], Path]:
    folder = tmp_path_factory.mktemp("jsonl")
    return lambda lines: written(folder, lines)


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Iterable[Data]], Path]:
    folder = tmp_path_factory.mktemp("duckdb")
    return lambda lines: imported(folder, lines)


def stops_of(seed: int, length: int) -> list[int]:
    return [Random(seed).randrange(length + 1) for _ in range(3)]


@given(SEEDS)
def test_a_hostile_stream(jsonl, seed: int) -> None:
    lines = hostile(seed)
    alike(lines, stops_of(seed, len(lines)), jsonl)


@pytest.mark.soak
@settings(max_examples=20_000)
@given(SEEDS)
def test_many_hostile_streams(jsonl, seed: int) -> None:
    lines = hostile(seed, 200)
    alike(lines, stops_of(seed, len(lines)), jsonl)


@settings(max_examples=5)
@given(SEEDS)
def test_a_hostile_stream_from_duckdb(duckdb, seed: int) -> None:
    lines = hostile(seed, 200)
    alike(lines, stops_of(seed, len(lines)), duckdb)


@settings(max_examples=25)
@given(st.lists(events(), max_size=20))
def test_events_as_the_format_allows_them(jsonl, lines: list[Data]) -> None:
    alike([*DECLARED, *lines], [], jsonl)


@settings(max_examples=12)
@given(SEEDS)
def test_what_a_correct_engine_records(jsonl, seed: int) -> None:
    lines = valid(seed)
    alike(lines, stops_of(seed, len(lines)), jsonl)


@pytest.mark.soak
@settings(max_examples=1000)
@given(SEEDS)
def test_what_many_correct_engines_record(jsonl, seed: int) -> None:
    lines = valid(seed)
    alike(lines, stops_of(seed, len(lines)), jsonl)


@pytest.mark.parametrize("blocks", [1 << 31, 1 << 61])
def test_pools_that_are_too_large_are_left_to_the_plain_fold(
    jsonl, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hkvtool.store.moments.PLAIN_LIMIT", 0)
    lines = [{**DECLARED[0], "blocks": blocks}, *DECLARED[1:]]
    lines.append({"ev": "alloc", "group": "kv", "blocks": [blocks - 1], "req": "a"})
    with open_trace(jsonl(lines)) as trace:
        assert not CompiledFold(trace).fits
        fold = fold_at(trace)
    assert fold.find(fold.declared.pools["gpu"], blocks - 1) is not None


def test_what_is_compiled_ahead_is_what_folds_call(jsonl, duckdb) -> None:
    ready()
    # Other callers of this process may have had another signature compiled before.
    ahead = [list(compiled(name).signatures) for name in ("run", "forget_dead")]
    assert all(ahead)
    for put in (jsonl, duckdb):
        with open_trace(put(hostile(3, 200))) as trace:
            CompiledFold(trace).advance()
    assert [list(compiled(name).signatures) for name in ("run", "forget_dead")] == ahead


def test_folded_batches_are_the_events_that_change_blocks(jsonl, duckdb) -> None:
    lines = [line for seed in range(20) for line in hostile(seed, 120)]
    for put in (jsonl, duckdb):
        with open_trace(put(lines)) as trace:
            wanted = [e.pos for e in trace.events() if e.ev in FOLDED_KINDS and not e.problem]
            found = [int(p) for batch in trace.batches(50, folded=True) for p in batch.pos]
            part = [int(p) for b in trace.batches(since=30, until=90, folded=True) for p in b.pos]
        assert found == wanted
        assert part == [p for p in wanted if 30 <= p <= 90]


def test_hashes_of_a_snapshot_take_no_room_from_those_behind(jsonl) -> None:
    told = [[f"s{i}-{j}" for j in range(40)] for i in range(4)]
    lines = [
        {"ev": "publish", "group": "kv", "blocks": [1, 2], "hashes": ["a", "b"]},
        {"ev": "state", "pool": "gpu", "blocks": [1, 2, 3, 4], "refs": [1] * 4, "hashes": told},
        *[
            {"ev": "publish", "group": "kv", "blocks": [3, 4], "hashes": [f"c{i}", f"d{i}"]}
            for i in range(40)
        ],
    ]
    alike([*DECLARED, *lines], [9, 20], jsonl)


@pytest.mark.parametrize(
    "column", ["req", "group", "group2", "pool", "pool2", "handle", "aux", "t0", "t1", "step"]
)
@pytest.mark.parametrize("value", [2**31 - 1, -7])
def test_an_altered_file_leads_nowhere(duckdb, column: str, value: int) -> None:
    import duckdb as database

    path = duckdb(hostile(17, 200))
    with database.connect(str(path)) as con:
        declared = f"ev IN ({', '.join(map(str, CONTROL))})"
        con.execute(
            f'UPDATE events SET "{column}" = {value} WHERE "{column}" >= 0 AND NOT {declared}'
        )
    with open_trace(path) as trace:
        fold = CompiledFold(trace)
        fold.advance()
    assert unsound(fold.st) is None
    if column in ("req", "group", "pool", "handle") and value > 0:
        assert fold.refused > 0


def test_an_altered_hash_leads_nowhere(duckdb) -> None:
    import duckdb as database

    path = duckdb(hostile(17, 200))
    with database.connect(str(path)) as con:
        con.execute(
            "CREATE TABLE altered AS "
            "SELECT * REPLACE ([2147483647 FOR h IN hashes] AS hashes) FROM events ORDER BY pos"
        )
        con.execute("DROP TABLE events; ALTER TABLE altered RENAME TO events")
    with open_trace(path) as trace:
        fold = CompiledFold(trace)
        fold.advance()
    assert fold.refused > 0 and unsound(fold.st) is None
