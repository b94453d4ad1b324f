"""Fingerprints where the worker is a process of its own, as with `vllm serve` on a CPU and with
several GPUs: the scheduler's process says what is published, the worker's reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engines.served import BROKEN
from hkvtool.analyzers.check import check
from hkvtool.model.event import Event
from hkvtool.model.recording import RecordingCount, Stage, read_recording, stage_of
from hkvtool.store.derive_reads import derive_reads

HERE = Path(__file__).parent

PROGRAM = """
import json, os, random, sys
from pathlib import Path

from engines.vllm_engine import generate, make_engine
from vllm.config import KVTransferConfig

OFFLOAD = {
    "kv_connector": "OffloadingConnector", "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "cpu_bytes_to_use": 1 << 26, "spec_name": "SlowTierSpec", "spec_module_path": "slow_tier",
    },
}
BROKEN = Path(os.environ["BROKEN_FILE"])

if __name__ == "__main__":
    llm = make_engine(
        Path(sys.argv[1]), "gemma3", kv_transfer_config=KVTransferConfig(**OFFLOAD),
        tensor_parallel_size=1 + int(os.environ["BROKEN_RANK"]),
    )
    rng = random.Random(3)

    def tokens(count):
        return [rng.randrange(5, 250) for _ in range(count)]

    def others(count):
        for _ in range(count):
            generate(llm, [tokens(200)], 4)

    def again(prompt):
        ((_, cached),) = generate(llm, [[*prompt[:192], *tokens(20)]], 4)
        assert cached == 192, cached

    def broken(fault):
        BROKEN.with_suffix(".new").write_text(fault)
        BROKEN.with_suffix(".new").rename(BROKEN)

    def met():
        assert not BROKEN.read_text(), "the fault was not met"
        return [int(n) for n in BROKEN.with_suffix(".met").read_text().split()]

    heads = [tokens(140) for _ in range(4)]
    for _ in range(int(sys.argv[2]) // 4):
        prompts = [rng.choice(heads) + tokens(rng.randrange(8, 60)) for _ in range(4)]
        generate(llm, prompts, 4)
    told = {}
    if "faults" in sys.argv:
        prompt = tokens(200)
        generate(llm, [prompt], 4)
        broken("changed bytes")
        others(1)
        told["changed bytes"] = met()
        again(prompt)

        prompt = tokens(200)
        broken("dropped page")
        generate(llm, [prompt], 4)
        told["dropped page"] = met()
        others(12)
        again(prompt)

        prompt = tokens(200)
        generate(llm, [prompt], 4)
        others(12)
        broken("load elsewhere")
        again(prompt)
        told["load elsewhere"] = met()
    print("told", json.dumps(told))
"""


@dataclass
class Recorded:
    """What one engine came to. `met`: where each fault was, as a block and a place below."""

    met: dict[str, list[int]]
    events: list[Event]
    report: dict[str, Any]

    @property
    def moments(self) -> Counter[str]:
        return Counter(e.data["at"] for e in self.events if e.data["ev"] == "fingerprint")

    def ends(self, finding: dict[str, Any]) -> list[str]:
        return [str(self.events[p - 1].data["at"]) for p in finding["events"]]


def recorded(folder: Path, *args: str, rank: int = 0) -> Recorded:
    """Drive an engine whose core and workers are processes of their own; the last can be broken."""
    program, recording = folder / "program.py", folder / "t.hkv"
    program.write_text(PROGRAM)
    broken = folder / "broken"
    broken.write_text("")
    path = os.pathsep.join([str(BROKEN), str(HERE.parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, str(program), str(folder), *args], cwd=folder, text=True, timeout=900,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={
            **os.environ, "PYTHONPATH": path, "HKV_RECORD": str(recording),
            "HKV_FINGERPRINT": "all", "VLLM_PLUGINS": "hkvtool",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1", "BROKEN_FILE": str(broken),
            "BROKEN_SPREAD": "1.5", "BROKEN_RANK": str(rank),
            # Without memory of its own for each worker vLLM does not choose cores for them.
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    told = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    count = RecordingCount(stage_of(recording))
    events = list(derive_reads(read_recording(recording, count)))
    assert count.stage is Stage.COMPLETE and not count.rings.dropped
    return Recorded(json.loads(told.removeprefix("told ")), events, check(events).as_json())


def _found(one: Recorded) -> list[dict[str, Any]]:
    assert all(n["code"] != "HKV906" for n in one.report["not_evaluable"])
    return [f for f in one.report["findings"] if f["severity"] == "error"]


@pytest.mark.parametrize(
    "rank",
    [
        pytest.param(0, id="one worker"),
        pytest.param(1, id="second of two", marks=pytest.mark.soak),
    ],
)
def test_each_fault_is_found_at_the_right_block(tmp_path: Path, rank: int) -> None:
    """And nothing else, in what is right before and between. Of two tensor-parallel workers each has
    a share of the same blocks: what is stored and loaded is told once, the bytes of each are read."""
    one = recorded(tmp_path, "24", "faults", rank=rank)
    found = _found(one)
    parts = Counter(e.data.get("part") for e in one.events if e.data["ev"] == "fingerprint")
    assert parts.keys() == ({None, "rank1"} if rank else {None})
    assert len(set(parts.values())) == 1
    assert [("part rank1" in f["message"]) for f in found] == [bool(rank)] * 3
    assert min(one.moments[at] for at in ("publish", "resume", "store", "load")) > 5
    full = [e.data["group"] for e in one.events if e.data["ev"] == "group"][2]
    changed, _ = one.met["changed bytes"]
    _, dropped = one.met["dropped page"]
    missed, _ = one.met["load elsewhere"]
    loaded = [
        block for e in one.events if e.data["ev"] == "load_begin" and e.data["group"] == full
        for block, place in zip(e.data["blocks"], e.data["peer"], strict=True) if place == dropped
    ]  # fmt: skip
    assert [(f["code"], f["group"], f["blocks"], one.ends(f)[:2]) for f in found] == [
        ("HKV906", full, [changed], ["publish", "resume"]),
        ("HKV906", full, [loaded[-1]], ["publish", "load"]),
        ("HKV906", full, [missed], ["publish", "load"]),
    ]


@pytest.mark.soak
def test_a_right_engine_is_silent_in_500_requests(tmp_path: Path) -> None:
    one = recorded(tmp_path, "500")
    assert _found(one) == []
    assert min(one.moments[at] for at in ("publish", "resume", "store")) > 200
