"""Engines that record to one folder are told apart, and one that is started anew is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hkvtool.model.recording import ENGINES_PREFIX, is_recording
from hkvtool.recorder.engine_numbers import EngineNumbers
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.tell import Tell, beside

HOLDER = """
import sys
from hkvtool.recorder.engine_numbers import EngineNumbers
numbers = EngineNumbers(sys.argv[1])
print(*[numbers.of("vllm", key) for key in sys.argv[2:]], flush=True)
sys.stdin.read()
"""


Hold = Callable[..., tuple["subprocess.Popen[str]", list[int]]]


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Hold]:
    """Begins another process that holds the numbers of these engines, and says which they are."""
    begun: list[subprocess.Popen[str]] = []

    def holder(*keys: str) -> tuple[subprocess.Popen[str], list[int]]:
        command = [sys.executable, "-c", HOLDER, str(tmp_path), *keys]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        begun.append(process)
        assert process.stdout is not None
        return process, [int(n) for n in process.stdout.readline().split()]

    yield holder
    for process in begun:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_an_engine_has_one_number_in_all_its_processes(tmp_path: Path, hold: Hold) -> None:
    _, found = hold("a", "b")
    assert found == [0, 1]
    mine = EngineNumbers(str(tmp_path))
    assert [mine.of("vllm", key) for key in ("b", "a", "c", "a")] == [1, 0, 2, 0]
    assert mine.of("sglang", "c") == 0


def test_who_is_started_anew_goes_on_under_the_name(hold: Hold) -> None:
    one, first = hold("a")
    _, second = hold("b")
    end(one)
    _, third = hold("c")
    assert (first, second, third) == ([0], [1], [0])


def test_a_process_that_is_left_keeps_the_number_of_its_engine(hold: Hold) -> None:
    core, _ = hold("a")
    _, found = hold("a")
    end(core)
    _, its = hold("b")
    assert (found, its) == ([0], [1])


def test_what_is_held_ends_with_the_recording(tmp_path: Path) -> None:
    made = Recording.start(tmp_path / "t.hkv")
    assert isinstance(made, Recording)
    with made:
        assert made.engine_number("vllm", "a") == 0
        assert EngineNumbers(made.folder).of("vllm", "b") == 1
    assert EngineNumbers(made.folder).of("vllm", "c") == 0
    assert Recording.start(made.folder, force=True) is not None
    assert is_recording(made.folder)
    assert not [n for n in os.listdir(made.folder) if n.startswith(ENGINES_PREFIX)]


def test_where_files_cannot_be_locked_it_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert EngineNumbers(str(tmp_path / "gone")).of("vllm", "a") == 0
    monkeypatch.delattr("fcntl.F_OFD_SETLK")
    assert EngineNumbers(str(tmp_path)).of("vllm", "a") == 0


def test_a_forked_process_is_another_engine_where_each_has_its_own(tmp_path: Path) -> None:
    numbers = EngineNumbers(str(tmp_path))
    tell = Tell(list[object]().append, None, numbers.of)
    assert tell.engine_number("sglang") == 0
    into, out = os.pipe()
    child = os.fork()
    if not child:
        os.write(out, bytes((tell.engine_number("sglang"),)))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(into, 1) == b"\x01"
    os.close(into)
    os.close(out)
    assert [beside(n) for n in (0, 1)] == ["", "@e2"]
