"""Geometries and workloads small enough to see through: every form, a few tokens a block."""

from __future__ import annotations

from random import Random
from typing import Any

from hkvtool.engine.config import Config
from hkvtool.engine.engine import Engine
from hkvtool.engine.geometry import Group, Preset
from hkvtool.engine.workload import OWN, Request
from hkvtool.model.event import Event
from hkvtool.model.forms import Form

UNIT = 8
"""Tokens of a prefix node in these workloads."""


def group(name: str, form: Form, block: int, **more: Any) -> Group:
    return Group(
        name, form, block, 1, more.pop("dtype", "uint8"), more.pop("page", 64), row_bytes=1, **more
    )


def make(name: str, *groups: Group, **more: Any) -> Preset:
    return Preset(name, "tiny", groups, stride=256, align=1, blocks=64, **more)


PLAIN = make("plain", group("kv", Form.COMPRESSED, 8), partial=True)
INDEXED = make(
    "indexed",
    group("mla", Form.COMPRESSED, 8, table="history"),
    group("idx", Form.INDEXER, 8, serves="mla", table="history", dtype="int8", offset=64),
    draft=2,
)
WINDOWED = make(
    "windowed",
    group("full", Form.COMPRESSED, 8),
    group("swa", Form.SWA, 8, window=12),
    group("sparse", Form.SWA, 4, window=9, sparse=True),
    draft=1,
)
CHUNKED = make(
    "chunked",
    group("full", Form.COMPRESSED, 8),
    group("chunk", Form.SWA, 8, window=32, chunked=True),
)
RECURRENT = make(
    "recurrent",
    group("full", Form.COMPRESSED, 8),
    Group("gdn0", Form.RECURRENT, 8, 1, "float32", 64),
    Group("gdn1", Form.RECURRENT, 8, 1, "float32", 64),
)
COMPRESSING = make(
    "compressing",
    group("c4.state", Form.TAIL, 4, unit=4, overlap=4, serves="c4", sparse=True, dtype="float32"),
    group("c16.state", Form.TAIL, 8, unit=16, serves="c16", sparse=True, dtype="float32"),
    group("c4", Form.COMPRESSED, 16, ratio=4, table="history"),
    group("c16", Form.COMPRESSED, 16, ratio=16, table="history", offset=64),
    group("idx", Form.INDEXER, 16, ratio=4, serves="c4", table="history", offset=128),
    group("swa", Form.SWA, 8, window=12, sparse=True),
    draft=2,
)
PRESETS = {p.name: p for p in (PLAIN, INDEXED, WINDOWED, CHUNKED, RECURRENT, COMPRESSING)}


def request(number: int, nodes: list[int], tail: int = 0, output: int = 8, at: int = 0) -> Request:
    """A prompt of whole nodes, the last cut to `tail` tokens where that is given."""
    prompt = len(nodes) * UNIT - (UNIT - tail if tail else 0)
    return Request(f"r{number}", at, prompt, output, tuple(nodes), UNIT, OWN + number)


def conversations(seed: int, count: int, gap: int = 4_000_000) -> list[Request]:
    """Requests that share prefixes as turns of conversations do, in order of arrival."""
    random = Random(seed)
    chains: list[list[int]] = [[0]]
    fresh = 1
    out: list[Request] = []
    arrival = 0
    for number in range(count):
        chain = list(random.choice(chains))
        chain = chain[: random.randint(1, len(chain))]
        more = random.randint(0 if len(chain) > 1 else 1, 6)
        chain += range(fresh, fresh + more)
        fresh += more
        tail = random.randint(1, UNIT)
        if tail != UNIT:
            # A cut last block is content of its own: no other prompt goes on from it.
            chain[-1] = fresh
            fresh += 1
        else:
            chains.append(chain)
        out.append(request(number, chain, tail % UNIT, random.randint(1, 40), arrival))
        arrival += random.randint(0, gap)
    return out


def run(
    preset: Preset, requests: list[Request], blocks: int = 200, **more: Any
) -> tuple[Engine, list[Event]]:
    """Run requests through an engine; the engine and its trace."""
    defaults: dict[str, Any] = {"budget": 64, "stride": 4, "abort_rate": 0.0, "token_ns": 50_000}
    config = Config(preset, blocks, **(defaults | more))
    events: list[Event] = []

    def keep(data: dict[str, Any]) -> None:
        events.append(Event.of(len(events) + 1, data))

    with Engine(config.fitted(max(r.total for r in requests)), keep) as engine:
        engine.run(requests)
    return engine, events
