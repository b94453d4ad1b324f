"""What runs from a finding: whatever the command says, and however it ends."""

from __future__ import annotations

import stat
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest

from hkvtool.tui.jobs import JOBS, MOST_BYTES, ending
from tests.tui.conftest import Driver


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """In place of hkvtool a shell script runs, which says in a file that it did."""

    def put(script: str) -> Path:
        ran, program = tmp_path / "ran", tmp_path / "program"
        program.write_text(f'#!/bin/sh\necho "$@" >> "{ran}"\n{script}\n')
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(program))
        return ran

    return put


def runs(pid: int) -> bool:
    """Whether a process goes on; one that has ended and was not waited for has no words."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return False


async def run(d: Driver, *keys: str) -> str:
    """Choose a job and wait for its end."""
    await d.press("4", "x")
    screen = d.app.screen
    await d.pilot.press(*keys)
    await d.until(lambda: screen.code is not None)
    await d.settle()
    return d.text


def test_what_is_said_without_an_end_is_cut(cases, drive, command) -> None:  # type: ignore[no-untyped-def]
    command(
        "head -c 300000 /dev/zero | tr '\\0' a; echo; echo the end; printf 'no newline'; exit 4"
    )

    async def talk(d: Driver) -> None:
        await run(d, "enter")
        said = [one.text for one in d.app.screen._said]
        assert said[-3:] == ["a" * MOST_BYTES, "the end", "no newline"]
        d.has("done: that cannot be told (4); esc goes back")

    drive(cases["B10"].bad, talk)


def test_a_key_that_is_pressed_twice_runs_it_once(cases, drive, command) -> None:  # type: ignore[no-untyped-def]
    ran = command("echo said")

    async def talk(d: Driver) -> None:
        await run(d, "enter", "enter")
        d.has("said", "done; esc goes back")
        await d.press("enter", "escape")
        assert d.app.screen is d.app.board
        await run(d, "down", "enter")

    drive(cases["B10"].bad, talk)
    first, second = ran.read_text().splitlines()
    assert first.split()[2] == "replay" and second.split()[2] == "explore"


def test_what_cannot_be_started_is_told(cases, drive, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))

    async def talk(d: Driver) -> None:
        await run(d, "enter")
        d.has("it cannot be started: No such file or directory; esc goes back")
        await d.press("escape")
        assert d.app.screen is d.app.board

    drive(cases["B10"].bad, talk)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_calling_it_off_ends_it_and_says_so(cases, drive, command, key) -> None:  # type: ignore[no-untyped-def]
    command("echo begun; exec sleep 100")

    async def talk(d: Driver) -> None:
        await d.press("4", "x")
        screen = d.app.screen
        await d.pilot.press("enter")
        await d.until(lambda: any(one.text == "begun" for one in screen._said))
        process = screen._process
        await d.press(key)
        assert d.app.screen is d.app.board
        await process.wait()
        assert process.returncode == -15
        assert any("replay was called off" in n.message for n in d.app._notifications)

    drive(cases["B10"].bad, talk)


def test_leaving_ends_what_runs(cases, drive, command) -> None:  # type: ignore[no-untyped-def]
    command("echo begun; exec sleep 100")
    processes = []

    async def talk(d: Driver) -> None:
        await d.press("4", "x")
        screen = d.app.screen
        await d.pilot.press("enter")
        await d.until(lambda: any(one.text == "begun" for one in screen._said))
        processes.append(screen._process)
        d.app.exit()

    drive(cases["B10"].bad, talk)
    end = monotonic() + 60
    while runs(processes[0].pid):
        assert monotonic() < end
        sleep(0.02)


def test_a_finding_without_a_block_is_explored_by_its_request() -> None:
    explore = next(job for job in JOBS if job.command == "explore")
    assert explore.arguments("t", "F1", "t") == ["explore", "t", "--finding", "F1"]
    assert explore.arguments("t", "F1", "t", "r{2}") == ["explore", "t", "--request", "r{2}"]
    replay = next(job for job in JOBS if job.command == "replay")
    assert "--request" not in replay.arguments("t", "F1", "t", "r2")


def test_how_it_ended_is_told() -> None:
    assert ending(0) == "done" and ending(1) == "done: it is there (1)"
    assert ending(2) == "it failed (2)" and ending(-9) == "it was ended by signal 9"


def test_whatever_lies_over_the_screen_is_left_as_everything_is(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        for opens in ("question_mark", "colon", "slash", "f", "x"):
            for leaves in ("ctrl+c", "ctrl+q", "escape"):
                await d.press("1" if opens == "f" else "4", opens)
                assert d.app.screen is not d.app.board
                await d.press(leaves)
                assert d.app.screen is d.app.board and d.app.is_running

    drive(cases["A01"].bad, talk)
