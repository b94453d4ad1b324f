"""What recording one event costs: the ring beside a line of JSON and a plain call, in one run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from hkvtool.model.codec import encode
from hkvtool.model.ring_format import RECORD_BYTES, Policy
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.ring import Ring

_LOOP = 100
_ROUNDS = 400

SCATTERED = [1017, 1018, 3401, 8801, 99, 12, 77, 40123, 51, 4, 8, 3000, 12000, 999, 1, 2]

EVENTS: dict[str, dict[str, Any]] = {
    "signal": {"ev": "signal", "event": "t7"},
    "write, 1 block": {
        "ev": "write", "req": "r12", "group": "kv", "blocks": [912], "tokens": [255, 256],
        "step": 1234,
    },
    "alloc, 16 in a row": {
        "ev": "alloc", "req": "r12", "group": "kv", "blocks": list(range(900, 916)), "step": 1234,
    },
    "alloc, 64 scattered": {
        "ev": "alloc", "req": "r12", "group": "kv",
        "blocks": [n * 7919 % 65536 for n in range(64)], "step": 1234,
    },
    "alloc, 16 scattered": {
        "ev": "alloc", "req": "r12", "group": "kv", "blocks": SCATTERED, "step": 1234,
    },
}  # fmt: skip
"""Events of the sizes that engines have."""


@dataclass(frozen=True)
class Cost:
    """Nanoseconds of one event, the median and the least of many short rounds."""

    median: float
    least: float


@dataclass(frozen=True)
class RingCost:
    """What one kind of event costs by each way, and how many bytes it takes."""

    event: str
    ways: dict[str, Cost]
    payload_bytes: int
    record_bytes: int
    json_bytes: int


def _nothing(data: dict[str, Any]) -> bool:
    return True


def measure(event: dict[str, Any], ways: dict[str, Callable[..., Any]]) -> dict[str, Cost]:
    """Cost of each way to take one event. The ways take turns, so that what else the machine
    does meanwhile falls on all of them."""
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, way in ways.items():
            start = perf_counter_ns()
            for _ in range(_LOOP):
                way(event)
            rounds[name].append((perf_counter_ns() - start) / _LOOP)
    return {name: Cost(sorted(r)[len(r) // 2], min(r)) for name, r in rounds.items()}


def _prepared(recording: Recording, event: dict[str, Any]) -> Callable[..., Any]:
    """What a hook does: a prepared emitter, given the values."""
    keys = tuple(key for key in event if key != "ev")
    emit, values = recording.emitter(event["ev"], keys), tuple(event[key] for key in keys)
    names = ", ".join(f"v{n}" for n in range(len(values)))
    # The call that a hook has written out; unpacking a tuple of values would cost on top.
    scope: dict[str, Any] = {"emit": emit, **{f"v{n}": value for n, value in enumerate(values)}}
    made: Callable[..., Any] = eval(f"lambda event: emit({names})", scope)
    return made


@contextmanager
def _ways(folder: Path, event: dict[str, Any]) -> Iterator[dict[str, Callable[..., Any]]]:
    ring = Ring.create(folder / "a.ring", capacity=1 << 22, policy=Policy.OVERWRITE)
    recording = Recording.start(folder / "a.hkv", policy=Policy.DROP, ring_bytes=1 << 25)
    latest = Recording.start(folder / "b.hkv", policy=Policy.OVERWRITE, ring_bytes=1 << 22)
    assert isinstance(ring, Ring) and isinstance(recording, Recording)
    assert isinstance(latest, Recording)
    text = json.JSONEncoder(separators=(",", ":")).encode
    with recording, latest, (folder / "a.jsonl").open("w") as lines:
        yield {
            "plain call": _nothing,
            "encode": encode,
            "ring": ring.emit,
            "recording": recording.emit_dict,
            "prepared": _prepared(latest, event),
            "JSON line": lambda data: lines.write(text(data) + "\n"),
        }
    ring.close()


def costs(folder: Path | None = None) -> list[RingCost]:
    """Measure every event. `folder` is where the files go for the time being."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="hkvtool-") as place:
        found = []
        for number, (name, event) in enumerate(EVENTS.items()):
            inside = Path(place, str(number))
            inside.mkdir()
            with _ways(inside, event) as ways:
                payload = len(encode(event))
                record = payload + RECORD_BYTES + 7 & -8
                text = len(json.dumps(event, separators=(",", ":"))) + 1
                found.append(RingCost(name, measure(event, ways), payload, record, text))
        return found


def main() -> None:
    """Print the costs."""
    for cost in costs():
        ways = ", ".join(f"{n} {c.median:,.0f} ({c.least:,.0f})" for n, c in cost.ways.items())
        print(f"{cost.event}: ns, median (least): {ways}")
        sizes = cost.payload_bytes, cost.record_bytes, cost.json_bytes
        print("  bytes: payload {}, in the ring {}, JSON line {}".format(*sizes))


if __name__ == "__main__":
    main()
