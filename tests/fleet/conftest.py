"""A fleet of small reference engines, some with a bug in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hkvtool.cli.app import main

FAULTS = (("HKV303", 1), ("HKV704", 2), ("HKV101", 3), ("HKV105", 5), ("HKV102", 4))
"""One for every fourth engine, in turn, with a seed under which it finds a place."""

_REQUESTS = [(700, [0, 1]), (1200, [0, 1, 2]), (900, [3, 4]), (1500, [0, 1, 5])]
"""Prompt lengths, and the hashes of their 512-token blocks: three begin alike."""


def run_engine(path: Path, seed: int, fault: str | None = None) -> None:
    """One instance, recorded."""
    path.parent.mkdir(parents=True, exist_ok=True)
    workload = path.with_name("workload.txt")
    workload.write_text("".join(
        json.dumps({"timestamp": 2000 * i, "input_length": length, "output_length": 8,
                    "hash_ids": hashes}) + "\n"
        for i, (length, hashes) in enumerate(_REQUESTS)
    ))  # fmt: skip
    args = ["run", "--workload", str(workload), "--blocks", "400", "--seed", str(seed)]
    assert main([*args, *(["--fault", fault] if fault else []), "-o", str(path)]) == 0


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 engine instances on eight hosts."""
    root = tmp_path_factory.mktemp("fleet")
    for number in range(64):
        faulty = number % 4 == 3
        fault, seed = FAULTS[number // 4 % len(FAULTS)] if faulty else (None, number)
        path = root / f"host=h{number // 8}" / f"rank={number % 8}" / "engine.jsonl"
        run_engine(path, seed, fault)
    return root


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """A command of `hkvtool fleet`: its exit code and what it printed."""

    def started(*args: str | Path) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["fleet", *map(str, args)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return started
