"""Whole runs of the engine on small workloads."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from hkvtool.analyzers import check
from hkvtool.engine.config import Config, unlimited
from hkvtool.engine.cuda_graph import GatherGraph
from hkvtool.engine.geometry import Preset
from hkvtool.engine.presets import PRESETS as REAL
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event

from .tiny import (
    CHUNKED,
    COMPRESSING,
    PLAIN,
    PRESETS,
    RECURRENT,
    WINDOWED,
    conversations,
    request,
    run,
)

TIERS = {"cpu_blocks": 80, "disk_blocks": 200}


def codes(events: list[Event]) -> Counter[str]:
    return Counter(f.code for f in check(iter(events)).findings if f.code != "HKV308")


def kinds(events: list[Event]) -> Counter[str]:
    return Counter(event.ev for event in events)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)
def test_a_tight_run_uses_every_path_and_is_clean(preset: Preset) -> None:
    """Eviction, preemption, offload, spilling and loads, and nothing to find in it."""
    blocks = {"compressing": 75, "windowed": 85, "recurrent": 45, "chunked": 60}.get(
        preset.name, 40
    )
    engine, events = run(
        preset, conversations(3, 60), blocks=blocks, abort_rate=0.1, cap=64, **TIERS
    )
    assert engine.memory.bad_reads == 0 < engine.memory.reads
    assert not codes(events)
    scheduler, tiers = engine.scheduler, engine.tiers
    assert scheduler.resumed > 0 and scheduler.vetoed == 0
    assert engine.allocator.gpu.evictions and tiers.stored and tiers.loaded and tiers.spilled
    assert scheduler.preemptions, "the pool was meant to run out"
    seen = kinds(events)
    for ev in ("rollback", "slide", "seal", "index", "select", "copy"):
        expected = {
            "rollback": preset.draft > 0, "slide": preset.name in ("windowed", "chunked",
            "compressing"), "seal": preset is COMPRESSING, "index": any(
                g.form.value == "indexer" for g in preset.groups),
            "copy": preset is PLAIN, "select": any(
                g.form.value == "indexer" for g in preset.groups),
        }[ev]  # fmt: skip
        assert (seen[ev] > 0) == expected, ev
    assert {e["medium"] for e in events if e.ev == "pool"} == {"gpu", "cpu", "disk"}


@pytest.mark.parametrize("preset", REAL.values(), ids=lambda p: p.name)
def test_real_geometries_run_clean(preset: Preset, shipped_requests: Any) -> None:
    requests = shipped_requests(14)
    longest = max(r.total for r in requests)
    blocks = preset.blocks_for(longest) * 2 + 3000
    engine, events = run(
        preset, requests, blocks=blocks, cpu_blocks=blocks, budget=8192, stride=64,
        token_ns=20_000,
    )  # fmt: skip
    assert engine.memory.bad_reads == 0 < engine.memory.reads
    assert not codes(events)


def test_the_same_seed_gives_the_same_trace() -> None:
    def trace(seed: int) -> list[Any]:
        requests = conversations(5, 20)
        _, events = run(COMPRESSING, requests, abort_rate=0.3, seed=seed, **TIERS)
        addresses = ("capture", "launch")
        return [dict(event.data) for event in events if event.ev not in addresses]

    assert trace(1) == trace(1)
    assert trace(1) != trace(2)


def test_two_steps_are_in_flight_only_where_asked() -> None:
    def most(events: list[Event]) -> int:
        depth = deepest = 0
        for event in events:
            depth += (event.ev == "dispatch") - (event.ev == "retire")
            deepest = max(deepest, depth)
        return deepest

    requests = conversations(4, 12)
    assert most(run(WINDOWED, requests)[1]) == 2
    assert most(run(WINDOWED, requests, asynchronous=False)[1]) == 1


def test_every_request_ends_and_what_it_computed_adds_up() -> None:
    requests = conversations(6, 25)
    _, events = run(RECURRENT, requests, blocks=90, abort_rate=0.2)
    ends = Counter(e.req for e in events if e.ev in ("finish", "abort"))
    assert ends == Counter(r.id for r in requests)
    last = {e.req: e["tokens"][1] for e in events if e.ev == "write" and e["group"] == "full"}
    finished = {e.req for e in events if e.ev == "finish"}
    assert finished and all(last[r.id] == r.total for r in requests if r.id in finished)


def test_the_cap_on_recovering_blocks_holds() -> None:
    requests = conversations(3, 40, gap=0)
    _, events = run(PLAIN, requests, blocks=40, cap=3, **TIERS)
    assert events[[e.ev for e in events].index("limits")]["recovering_blocks"] == 3
    recovering: dict[str, int] = {}
    most = 0
    for event in events:
        if event.ev == "load_begin":
            recovering[event["handle"]] = len(event["blocks"])
            most = max(most, sum(recovering.values()))
        elif event.ev == "load_end":
            del recovering[event["handle"]]
    assert 0 < most <= 3
    assert not codes(events)


def test_trusting_a_hash_reads_wrong_bytes_and_the_checker_says_why() -> None:
    requests = conversations(3, 30)
    engine, events = run(WINDOWED, requests, blocks=300, trust_hash=True)
    assert engine.memory.bad_reads
    assert {"HKV303"} <= set(codes(events)) <= {"HKV303", "HKV103", "HKV101"}
    careful, events = run(WINDOWED, requests, blocks=300)
    assert careful.memory.bad_reads == 0 and not codes(events)
    assert careful.scheduler.resumed < engine.scheduler.resumed, "what trust seems to gain"


def test_a_stale_hash_is_vetoed_before_it_is_relied_on() -> None:
    """A hash that outlived its content, which only a bug leaves, ends at the validation."""
    first, again = request(0, [0, 1, 2, 3], output=4), request(1, [0, 1, 2, 3], output=4)
    from hkvtool.engine.engine import Engine

    events: list[dict[str, Any]] = []
    with Engine(Config(CHUNKED, 100, budget=64, abort_rate=0.0), events.append) as engine:
        engine.run([first])
        gpu = engine.allocator.gpu
        gpu.filled[gpu.hashes["full"][first.key(16)]] = 3
        engine.run([again])
    assert engine.scheduler.vetoed == 1
    (veto,) = [e for e in events if e["ev"] == "unpublish"]
    assert veto["reason"] == "invalidate"
    hit = [e for e in events if e["ev"] == "lookup"][-1]["hit"]
    assert hit["full"] == 8
    assert engine.memory.bad_reads == 0


def test_an_aborted_load_keeps_its_blocks_until_it_ends() -> None:
    requests = conversations(3, 80, gap=0)
    slow = {"token_ns": 20_000_000, "abort_rate": 0.7}
    _, events = run(WINDOWED, requests, blocks=120, seed=3, **slow, **TIERS)
    loading: dict[str, set[str]] = {}
    held = 0
    for event in events:
        if event.ev == "load_begin":
            loading.setdefault(str(event.req), set()).add(event["handle"])
        elif event.ev == "load_end":
            for handles in loading.values():
                handles.discard(event["handle"])
        elif event.ev == "abort":
            held += bool(loading.get(str(event.req)))
        elif event.ev == "free" and event.req and "@" not in event["group"]:
            assert not loading.get(event.req)
    assert held, "no abort met a load"
    assert not codes(events)


def test_graphs_are_captured_once_and_bypassed_while_blocks_move() -> None:
    engine, events = run(WINDOWED, conversations(3, 40), blocks=160, **TIERS)
    captured = [e["graph"] for e in events if e.ev == "capture"]
    assert len(captured) == len(set(captured)) > 0
    launches = [e for e in events if e.ev == "launch"]
    assert {e["graph"] for e in launches} == set(captured)
    assert engine.tables.launches and engine.tables.bypasses >= len(captured)
    assert len(launches) == engine.tables.launches + engine.tables.bypasses
    moving = 0
    for event in events:
        moving += event.ev.endswith("_begin")
        moving -= event.ev in ("store_end", "load_end")
        if event.ev == "launch" and not event.get("bypass"):
            assert moving == 0


def test_a_pool_too_small_for_a_request_is_told() -> None:
    with pytest.raises(HkvError, match="needs 20 blocks of 9") as error:
        run(WINDOWED, [request(0, list(range(4)))], blocks=10)
    assert "--blocks 21" in error.value.hint


def test_steps_shrink_to_a_pool_that_has_just_room() -> None:
    config = Config(COMPRESSING, 40, budget=512)
    assert config.fitted(80).budget < 512
    assert config.fitted(80).budget % COMPRESSING.grain == 0


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda p: p.name)
def test_an_unlimited_pool_evicts_nothing(preset: Preset) -> None:
    requests = conversations(8, 40)
    blocks = unlimited(preset, requests, 64)
    engine, _ = run(preset, requests, blocks=blocks)
    assert engine.allocator.gpu.evictions == engine.scheduler.preemptions == 0


@pytest.mark.gpu
def test_real_graphs_read_the_pages_where_they_are() -> None:
    pages = torch.arange(10 * 4 * 2, device="cuda").view(10, 4, 2)
    table = torch.tensor([3, 9], device="cuda")
    graph = GatherGraph(pages, table)
    table.copy_(torch.tensor([5, 1], device="cuda"))
    assert not graph.replay(pages), "the table's contents are read at replay"
    assert graph.replay(pages + 1), "its pages' address was baked in"
