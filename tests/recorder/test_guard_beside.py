"""The guard that judges from outside says what the one in the engine's thread says."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from time import monotonic, monotonic_ns, sleep
from typing import Any

import pytest

from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.manifest import MANIFEST
from hkvtool.model.recording import read_recording
from hkvtool.model.recording_tail import BEHIND_NS
from hkvtool.model.shipped import shipped
from hkvtool.recorder import guard_beside, guard_following, guarded
from hkvtool.recorder.guard_following import Following
from hkvtool.recorder.guarded import Followed, Guarded, only_guarding
from hkvtool.recorder.recording import Recording
from hkvtool.recorder.sealer import Sealer
from hkvtool.recorder.violation import Violation
from tests.recorder.test_guard import BEGIN, BROKEN, alloc, free, told
from tests.variants.correct import correct_trace, random_options

Data = dict[str, Any]


def begun(folder: Path, **settings: Any) -> Recording:
    made = Recording.start(folder, **settings)
    assert isinstance(made, Recording)
    return made


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    with begun(tmp_path / "r.hkv", stamp=False) as made:
        yield made


def judged(recording: Recording, following: Following, events: Iterable[Data]) -> list[Violation]:
    found: list[Violation] = []
    following.guard.on_violation.append(found.append)
    for event in events:
        assert recording.emit_dict(event)
    until = monotonic_ns() + BEHIND_NS
    while monotonic_ns() <= until:
        # What is newer is held back, in case another thread tells of something earlier.
        following.advance()
    following.advance()
    assert following.guard.off is None
    return found


def verdicts(violations: Iterable[Violation]) -> list[tuple[Any, ...]]:
    return [(v.code, v.message, v.pos, v.blocks, v.request, len(v.events)) for v in violations]


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_is_found_in_the_recording_too(
    name: str, recording: Recording, said: list[str]
) -> None:
    story = [*BEGIN, *BROKEN[name][1]]
    following = Following(recording.folder, said.append)
    found = judged(recording, following, story)
    following.close()
    assert verdicts(found) == verdicts(told(story)) and len(found) == 1
    assert not said


def _examples() -> list[Path]:
    root = Path(str(shipped("rules")))
    return sorted([*root.glob("*.jsonl"), *root.glob("clauses/*.jsonl")])


def test_the_examples_of_the_rules_are_judged_alike(tmp_path: Path, said: list[str]) -> None:
    broken = 0
    for number, path in enumerate(_examples()):
        with path.open("rb") as stream:
            events = [dict(e.data) for e in read_jsonl(stream) if e.problem is None]
        if any(e["ev"] in ("dropped", "evidence") for e in events):
            # There the one that reads starts anew.
            continue
        with begun(tmp_path / f"{number}.hkv", stamp=False, ring_bytes=1 << 16) as made:
            assert all(map(made.emit_dict, events))
        following = Following(made.folder, said.append)
        found: list[Violation] = []
        following.guard.on_violation.append(found.append)
        following.advance()
        following.close()
        assert following.over
        assert verdicts(found) == verdicts(told(events)), path.name
        broken += bool(found)
    assert broken > 20
    assert not said


@pytest.mark.parametrize("seed", range(12))
def test_where_events_were_lost_nobody_is_accused(
    seed: int, recording: Recording, said: list[str]
) -> None:
    chance = Random(seed)
    story: list[Data] = []
    lost = 0
    for event in correct_trace(seed, random_options(Random(seed))):
        if chance.random() < 0.05 and event["ev"] not in ("trace", "pool", "group"):
            lost += 1
            continue
        if lost:
            story.append({"ev": "dropped", "count": lost})
            lost = 0
        story.append(dict(event))
    following = Following(recording.folder, said.append)
    assert not judged(recording, following, story)
    assert len(said) == sum(e["ev"] == "dropped" for e in story)
    following.close()


def test_what_was_sealed_before_it_was_read_is_not_judged_and_said(
    recording: Recording, said: list[str]
) -> None:
    following = Following(recording.folder, said.append)
    assert not judged(recording, following, [*BEGIN, alloc("a", 1), alloc("b", 2)])
    sealer = Sealer(recording.folder)
    for event in (free("a", 1), free("b", 2)):
        recording.emit_dict(event)
    sealer.poll(last=True)
    sealer.close()
    assert os.path.exists(os.path.join(recording.folder, MANIFEST))
    found = judged(recording, following, [alloc("c", 1), free("c", 1), free("c", 1)])
    following.close()
    assert [v.blocks for v in found] == [(1,)]
    assert len(said) == 1 and "could not be judged (the sealer was faster)" in said[0]


def test_one_that_is_behind_says_so_and_that_it_has_caught_up(
    recording: Recording, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = monotonic_ns()
    monkeypatch.setattr(guard_following, "monotonic_ns", lambda: now)
    long_ago = now - 7_000_000_000
    following = Following(recording.folder, said.append)
    story = [{**alloc("a", 1), "ts": long_ago}, {**free("a", 1), "ts": long_ago}] * 2000
    assert not judged(recording, following, [*BEGIN, *story])
    following.close()
    assert said == [
        "the guard is 7 s behind the engine", "the guard has caught up with the engine",
    ]  # fmt: skip


def test_what_only_the_guard_reads_makes_room(tmp_path: Path, said: list[str]) -> None:
    with begun(tmp_path / "r.hkv", ring_bytes=1 << 16) as made:
        following = Following(made.folder, said.append, drains=True)
        judged(made, following, BEGIN)
        for _ in range(20):
            assert not judged(made, following, [alloc("a", 1), free("a", 1)] * 200)
        assert following.guard.seen == len(BEGIN) + 8000
        following.close()
    assert not said


def test_a_second_process_starts_no_second_guard(tmp_path: Path) -> None:
    with begun(tmp_path / "r.hkv") as made:
        first = guard_beside.Beside.start(made.folder)
        second = guard_beside.Beside.start(made.folder)
        assert first is not None and second is not None
        assert first.process is not None and second.process is None
        first.wait()
    assert first.process.wait(60) == 0


@pytest.fixture
def guarded_by_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HKV_GUARD", "log")


@pytest.mark.usefixtures("guarded_by_log")
def test_where_no_process_can_be_started_the_engine_s_thread_judges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Recording] = []

    def private() -> Recording:
        begun_here = guard_beside.private_recording()
        assert begun_here is not None
        made.append(begun_here)
        return begun_here

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(guarded, "private_recording", private)
    assert isinstance(only_guarding(), Guarded)
    assert made and not Path(made[0].folder).parent.exists()


@pytest.mark.usefixtures("guarded_by_log")
def test_what_nobody_asked_to_record_leaves_nothing_behind() -> None:
    watched = only_guarding()
    assert isinstance(watched, Followed) and watched.recorded is not None
    assert watched.folder == ""
    place = Path(watched.recorded.folder)
    assert place.is_dir()
    watched.close()
    until = monotonic() + 60
    while place.parent.exists() and monotonic() < until:
        sleep(0.05)
    assert not place.parent.exists()


KILLED = """
import sys
from hkvtool.recorder.session import follow

follow(lambda recording: globals().update(R=recording), lambda recording: None)
R.emit("pool", pool="gpu", medium="gpu", blocks=4)
R.emit("alloc", pool="gpu", blocks=[1], owner="a")
R.emit("alloc", pool="gpu", blocks=[1], owner="b")
print("told", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_engine_told_is_judged(tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")}
    env |= {"HKV_GUARD": "log", "HKV_RECORD": str(tmp_path / "r.hkv")}
    engine = subprocess.Popen(
        [sys.executable, "-c", KILLED], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert engine.stdout is not None
    assert engine.stdout.readline() == "told\n"
    engine.send_signal(signal.SIGKILL)
    # The guard has the engine's stderr, which ends when both have.
    _, err = engine.communicate(timeout=60)
    assert err.count("handed out while it is still referenced") == 1
    assert [e.ev for e in read_recording(tmp_path / "r.hkv")] == ["pool", "alloc", "alloc"]


GUARDED = """
import sys
from hkvtool.recorder import guard_beside, guarded

guard_beside.MEMORY = sys.argv[1]
watched = guarded.only_guarding()
print(watched._beside.process.pid, watched.recorded.folder, flush=True)
sys.stdin.read()
"""


def test_what_is_left_where_engine_and_guard_were_killed_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HKV_")} | {"HKV_GUARD": "log"}

    def engine() -> tuple[subprocess.Popen[str], int, Path]:
        begun_now = subprocess.Popen(
            [sys.executable, "-c", GUARDED, str(tmp_path)], env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        assert begun_now.stdout is not None
        pid, folder = begun_now.stdout.readline().split()
        return begun_now, int(pid), Path(folder).parent

    (killed, beside, left), (runs, _, kept) = engine(), engine()
    with killed, runs:
        # First the guard: it would take the folder away when it sees that the engine has ended.
        ended = os.pidfd_open(beside)
        os.kill(beside, signal.SIGKILL)
        select.select([ended], [], [], 60)
        os.close(ended)
        killed.kill()
        killed.wait()
        assert left.parent == tmp_path and left.exists()
        monkeypatch.setattr(guard_beside, "MEMORY", str(tmp_path))
        mine = guard_beside.private_recording()
        assert mine is not None
        assert not left.exists() and kept.exists()
        mine.close()
        guard_beside.discard(mine.folder)
