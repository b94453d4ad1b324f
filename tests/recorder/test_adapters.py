"""Adapters are found by name, and one that is broken costs the engine nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.recorder import adapters, diagnosis
from hkvtool.recorder.adapter import Adapter, lacking
from hkvtool.recorder.attach_report import Report

GOOD = """
from hkvtool.recorder.attach_report import Report

class Adapter:
    engine = "an_engine"
    told = None

    def declare(self):
        return Report("1.0", ("alloc",), evidence=("host",), tried=True, not_seen=("steps",))

    def attach(self, recording):
        recording.emit("trace", format="hkv/1", engine="an engine 1.0", evidence=["host"])
        recording.emit("pool", pool="gpu", medium="gpu", blocks=4)
        self.told = recording
        import an_engine
        an_engine.told = lambda: recording.emit("alloc", pool="gpu", blocks=[1])

    def detach(self, recording):
        told, self.told = self.told, None
        return told is not None

    def geometry(self):
        return [{"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 4}] if self.told else []

ADAPTER = Adapter()
"""

BROKEN = {
    "cannot be loaded: ZeroDivisionError": "1 / 0",
    "cannot be loaded: SystemExit": "raise SystemExit(3)",
    "cannot be loaded: AttributeError": "OTHER = 1",
    "has no declare, attach, detach": "class ADAPTER: engine = 'an_engine'; geometry = staticmethod(list)",
    "has no engine": GOOD.replace('engine = "an_engine"', "engine = 3"),
    "a hook failed and is off: RuntimeError: not as I know it": GOOD.replace(
        "def attach(self, recording):", "def attach(self, recording):\n        raise RuntimeError('not as I know it')"
    ),
    "a hook failed and is off: SystemExit: 9": GOOD.replace(
        "def attach(self, recording):", "def attach(self, recording):\n        raise SystemExit(9)"
    ),
    r"not loaded\n\x1b[31m: a second line": "raise ValueError('not loaded\\n\\x1b[31m: a second line')",
    "a hook failed and is off: RuntimeError: stuck": GOOD.replace(
        "def detach(self, recording):", "def detach(self, recording):\n        raise RuntimeError('stuck')"
    ),
}  # fmt: skip

ENGINE = """
told = None
def work():
    if told is not None:
        told()
    return 42
"""

PROGRAM = """
import an_engine
print(an_engine.work())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An engine, a program that uses it, and an adapter that is installed as any other."""
    (tmp_path / "an_engine.py").write_text(ENGINE)
    (tmp_path / "program.py").write_text(PROGRAM)
    info = tmp_path / "an_adapter-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: an-adapter\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[hkvtool.adapters]\nmine = an_adapter:ADAPTER\n")
    return tmp_path


def run(
    folder: Path, adapter: str, *program: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    (folder / "an_adapter.py").write_text(textwrap.dedent(adapter))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")}
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-m", "hkvtool.recorder.with_adapters", *(program or ("program.py",))],
        cwd=folder, env={**environment, "PYTHONPATH": path, **variables},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def test_it_is_found_by_its_entry_point_and_attaches_behind_the_import(folder: Path) -> None:
    done = run(folder, GOOD, HKV_RECORD="t.hkv")
    assert done.stdout == "42\n" and done.returncode == 0, done.stderr
    assert not done.stderr
    assert list((folder / "t.hkv").glob("**/*.ring"))


def test_a_module_is_run_as_python_would(folder: Path) -> None:
    done = run(folder, GOOD, "-m", "program", HKV_RECORD="t.hkv")
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)


def test_nobody_asks_nothing_is_loaded(folder: Path) -> None:
    done = run(folder, "raise RuntimeError('loaded')")
    assert (done.stdout, done.stderr) == ("42\n", "")


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ("", ""),
        ("mine", "alloc"),
        ("vllm, mine", "alloc"),
        ("an_adapter:ADAPTER", "alloc"),
        ("sglang", ""),
        ("yours", "HKV_ADAPTERS: there is no adapter 'yours'; there are"),
    ],
)
def test_which_are_used_can_be_said(folder: Path, chosen: str, told: str) -> None:
    loud = GOOD.replace("told = recording\n", "told = recording; print('alloc')\n")
    done = run(folder, loud, HKV_RECORD="t.hkv", HKV_ADAPTERS=chosen)
    assert done.stdout.endswith("42\n") and done.returncode == 0
    said = done.stdout.removesuffix("42\n") + done.stderr
    assert told in said and bool(said) == bool(told), said


@pytest.mark.parametrize("why", BROKEN)
def test_one_that_is_broken_is_said_once_and_the_engine_goes_on(folder: Path, why: str) -> None:
    done = run(folder, BROKEN[why], HKV_RECORD="t.hkv")
    assert done.stdout == "42\n" and done.returncode == 0, done.stderr
    assert why in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_ours_are_not_replaced(folder: Path) -> None:
    names = folder / "an_adapter-1.dist-info" / "entry_points.txt"
    names.write_text("[hkvtool.adapters]\nvllm = an_adapter:ADAPTER\n")
    done = run(folder, "raise RuntimeError('loaded')", HKV_RECORD="t.hkv")
    assert done.stdout == "42\n"
    assert "the adapter vllm of an_adapter:ADAPTER is not used" in done.stderr


def test_without_a_program_it_says_how(folder: Path) -> None:
    for arguments in (["-m"], ["--what"]):
        done = run(folder, GOOD, *arguments)
        assert done.returncode == 1 and done.stderr.startswith("usage: ")


class Failing:
    engine = "json"

    def __init__(self) -> None:
        self.detached = 0

    def declare(self) -> Report:
        raise RuntimeError("no idea")

    def attach(self, recording: Any) -> None:
        raise RuntimeError("half way")

    def detach(self, recording: Any) -> bool:
        self.detached += 1
        return False

    def geometry(self) -> list[dict[str, Any]]:
        return []


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Failing]:
    made = Failing()
    monkeypatch.setattr(adapters, "_loaded", {"x:Y": made})
    monkeypatch.setattr(adapters, "names", lambda: {"mine": "x:Y"})
    yield made


def test_one_that_fails_half_way_is_taken_off_again(failing: Failing) -> None:
    with pytest.raises(RuntimeError, match="half way"):
        adapters.Follower(failing).start(object())
    assert failing.detached == 1


def test_doctor_tells_of_every_adapter(failing: Failing) -> None:
    told = {fact.name: fact.value for fact in diagnosis.diagnosis()}
    assert told["attaches to mine"] == "not found out: RuntimeError: no idea"


@pytest.mark.parametrize(
    ("declare", "why"),
    [(lambda: sys.exit(7), "SystemExit: 7"), (lambda: 5, "AttributeError: 'int' object has no")],
    ids=["exits", "no report"],
)
def test_doctor_outlives_every_adapter(
    failing: Failing, monkeypatch: pytest.MonkeyPatch, declare: Any, why: str
) -> None:
    monkeypatch.setattr(failing, "declare", declare)
    told = {fact.name: fact.value for fact in diagnosis.diagnosis()}
    assert told["attaches to mine"].startswith(f"not found out: {why}")


def test_ours_keep_the_interface() -> None:
    for name, value in adapters.OURS.items():
        found = adapters.load(name, value)
        assert isinstance(found, Adapter) and not lacking(found), name
        assert found.geometry() == []
        assert found.detach(None) is False  # type: ignore[arg-type]
