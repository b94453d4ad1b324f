"""`correct_trace`: what a correct engine would have recorded. A checker must be silent on it."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from .attach import begin_late, lose_events, say_again
from .engine import Engine
from .families import build, declarations, kernels
from .options import SWITCHES, Options, random_options
from .paging import Pool
from .requests import Request
from .tape import Event, Tape, make
from .tiers import Tier


def correct_trace(seed: int | str, options: Options | None = None, **changes: Any) -> list[Event]:
    """The events of one run. `changes` are fields of `Options` over `options` or the defaults."""
    return correct_run(seed, options, **changes)[0]


def correct_run(
    seed: int | str, options: Options | None = None, **changes: Any
) -> tuple[list[Event], list[Request]]:
    """The events, and the requests as they ended: what each computed from."""
    chosen = replace(options or Options(), **changes)
    if not chosen.valid():
        raise ValueError(f"these options do not go together: {chosen}")
    rng = Random(f"{seed}/{chosen}")
    tape = Tape()
    tape.wired = chosen.wire
    pools, tables = build(tape, rng, chosen)
    tier = None
    if chosen.tier:
        size = 40 if chosen.tight else 400
        tier = Tier(tape, rng, chosen, Pool(tape, chosen.tier, chosen.tier, range(size), size))
    head = declarations(chosen, pools, tables, tier, _evidence(chosen))
    requests = _requests(rng, chosen)
    engine = Engine(tape, rng, chosen, pools, tables, requests, tier)
    head += kernels(tables)
    if chosen.graphs:
        pointers = {"kv": "0x7f00", "table": "0x7e00"}
        head.append(make("capture", graph="decode", pointers=pointers, actor=chosen.lane))
    engine.run()
    events = head + tape.events
    if chosen.attach:
        events = begin_late(rng, head, tape.events, engine.rests, chosen.attach == "state")
    if chosen.rotate:
        events = say_again(rng, head, tape.events, engine.rests)
    if chosen.dropped:
        events = lose_events(rng, events, len(head))
    return events, requests


def _requests(rng: Random, options: Options) -> list[Request]:
    """Requests that share the beginnings of a few documents."""
    documents = [[rng.randrange(1 << 20) for _ in range(200)] for _ in range(2)]
    rows = []
    for i in range(options.requests):
        shared = rng.choice((0, 16, 32, 48, 64, 70, 90, 110))
        length = rng.randint(3, 40)
        if options.cow and shared and rng.random() < 0.4:
            length = 0  # one request's end is inside what another goes on with
        own = [rng.randrange(1 << 20) for _ in range(length)]
        prompt = rng.choice(documents)[:shared] + own
        rows.append(
            Request(
                f"r{i}",
                prompt,
                len(prompt),
                len(prompt) + rng.randint(1, 24),
                salt=rng.choice(("", "", "x")) if options.keys else "",
                keyed=options.keys,
            )
        )
    return rows


def _evidence(options: Options) -> list[str]:
    seen = {
        "stream": options.streams,
        "layout": options.layout,
        "map": options.remap,
        "bytes": options.fingerprints,
        "wire": options.wire,
        "graph": options.graphs,
        "key": options.keys,
        "lease": options.lease,
    }
    return ["host", "step", *(name for name, there in seen.items() if there)]


__all__ = ["SWITCHES", "Options", "correct_trace", "random_options"]
