"""A recording that is still being written."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

from hkvtool.analyzers import check
from hkvtool.model.recording import is_recording
from hkvtool.recorder.recording import Recording
from hkvtool.state.fold import Fold
from hkvtool.state.view import block_state
from hkvtool.store import open_trace
from hkvtool.tui.live import Live
from tests.tui.conftest import Driver


def start(folder: Path) -> Recording:
    made = Recording.start(folder)
    assert isinstance(made, Recording), made
    made.emit("trace", format="hkv/1", engine="test", evidence=["host"])
    made.emit("pool", pool="gpu", medium="gpu", blocks=64)
    made.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=4)
    return made


def test_it_follows_and_can_be_held(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        d.has("● live", "event 3 of 3")
        recording.emit("alloc", req="r1", group="kv", blocks=[7, 8])
        await d.until(lambda: d.app.look.pos == 4)
        d.has("event 4 of 4", "2 held")
        # Held where it is, and nothing is lost meanwhile.
        await d.press("space")
        recording.emit("free", req="r1", group="kv", blocks=[7, 8])
        await d.until(lambda: d.app.session.last == 5)
        assert d.app.look.pos == 4
        d.has("❚❚ live", "event 4 of 5")
        await d.press("space")
        assert d.app.look.pos == 5
        # Whoever went back stays there.
        await d.press("[", "[")
        recording.emit("admit", req="r2")
        await d.until(lambda: d.app.session.last == 6)
        assert d.app.look.pos == 3
        recording.close()
        await d.until(lambda: d.app.session.live.over)
        d.has("recorded")

    drive(folder, talk)


def test_a_finding_comes_up_while_it_is_recorded(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        recording.emit("alloc", req="r1", group="kv", blocks=[7])
        for _ in range(2):
            recording.emit("free", req="r1", group="kv", blocks=[7])
        await d.until(lambda: d.app.roots)
        await d.press("4")
        d.has("704 refcount")

    drive(folder, talk)
    recording.close()


def test_what_was_recorded_is_checked_to_its_end(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    """What only the end of a trace tells comes at its end, as from a check of the whole."""
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        recording.emit("alloc", req="r1", group="kv", blocks=[7])
        recording.emit("load_begin", handle="h1", group="kv", blocks=[7])
        for _ in range(4):
            recording.emit("free", req="r1", group="kv", blocks=[7])
        await d.until(lambda: d.app.session.last == 9)
        await d.until(lambda: d.app.roots)
        recording.close()
        await d.until(lambda: d.app.session.live.over)
        whole = check(open_trace(folder).events())
        assert d.app.session.report.as_json() == whole.as_json()

    drive(folder, talk)


def test_a_long_recording_is_checked_when_asked_or_over(tmp_path: Path, drive, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("hkvtool.tui.live._TOO_MANY", 1)
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        assert d.app.session.report is None
        recording.emit("alloc", req="r1", group="kv", blocks=[7])
        for _ in range(4):
            recording.emit("free", req="r1", group="kv", blocks=[7])
        await d.until(lambda: d.app.session.last == 8)
        await d.press("r")
        assert d.app.roots and not d.app.session.live.over
        recording.emit("admit", req="r2")
        await d.until(lambda: d.app.session.last == 9)
        d.has("checked to 8")
        recording.close()
        await d.until(lambda: d.app.session.report.trace["events"] == 9)
        assert "checked to" not in d.text

    drive(folder, talk)


def test_the_state_is_that_of_the_fold_at_any_moment(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Whether its events are in memory or put down, and whichever copy it starts from."""
    monkeypatch.setattr("hkvtool.store.growing._HELD", 500)
    monkeypatch.setattr("hkvtool.store.seeking.COPY_EVERY", 64)
    rng, folder = Random(3), tmp_path / "r.hkv"
    recording = start(folder)
    events = recorded(rng, 3000)
    with closing(Live(str(folder))) as live:
        for number, (name, data) in enumerate(events):
            recording.emit(name, **data)
            if number % 97 == 0 or number == len(events) - 1:
                settle_tail(live, number + 4)
        for _ in range(60):
            pos = rng.randrange(1, live.trace.count + 1)
            fold = Fold()
            for event in live.trace.events(until=pos):
                fold.apply(event)
            here = live.moments.at(pos)
            for block in range(64):
                group = fold.declared.groups["kv"]
                mine = here.declared.groups["kv"]
                assert block_state(here, mine, block) == block_state(fold, group, block), pos
        # How its clock goes beside others is told of a recording as a whole.
        whole, read = (
            [{k: v for k, v in e.data.items() if k != "clock"} for e in trace.events()]
            for trace in (live.trace, open_trace(folder))
        )
        assert whole == read
        for block in (3, 17):
            part = live.session.life("gpu", block)[:5]
            assert live.session.life("gpu", block, part) == live.session.life("gpu", block)
        assert live.trace.control[-1].ev == "group" and live.axis().counts.sum() == len(whole)
    recording.close()


def recorded(rng: Random, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Events of blocks that are taken, written, moved and freed."""
    held: list[int] = []
    free = list(range(64))
    found: list[tuple[str, dict[str, Any]]] = []
    for n in range(count):
        what = rng.randrange(5)
        if what == 0 and free:
            block = free.pop(rng.randrange(len(free)))
            held.append(block)
            found.append(("alloc", {"req": f"r{n % 11}", "group": "kv", "blocks": [block]}))
        elif what == 1 and held:
            block = held.pop(rng.randrange(len(held)))
            free.append(block)
            found.append(("free", {"group": "kv", "blocks": [block]}))
        elif what == 2 and held:
            blocks = [rng.choice(held)]
            found.append(("publish", {"group": "kv", "blocks": blocks, "hashes": [f"h{n}"]}))
        elif held:
            blocks = [rng.choice(held)]
            found.append(("write", {"group": "kv", "blocks": blocks, "tokens": [0, 4], "step": n}))
        else:
            found.append(("dispatch", {"step": n}))
    return found


def settle_tail(live: Live, count: int) -> None:
    """Read until so many events are there."""
    end = monotonic() + 100
    while live.trace.count < count:
        assert monotonic() < end, live.trace.count
        live.advance()


def test_a_finished_recording_is_just_a_trace(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r.hkv"
    with start(folder) as recording:
        recording.emit("alloc", req="r1", group="kv", blocks=[7])

    async def talk(d: Driver) -> None:
        d.has("1 held", "event 4 of 4")

    drive(folder, talk)


def test_a_recording_without_an_event_says_so(tmp_path: Path, hkvtool) -> None:  # type: ignore[no-untyped-def]
    made = Recording.start(tmp_path / "r.hkv")
    assert isinstance(made, Recording)
    found = hkvtool("tui", str(tmp_path / "r.hkv"), "--screenshot", str(tmp_path / "p.svg"))
    made.close()
    assert found.code == 3 and "no event" in found.err


TURNS = """
import sys
from hkvtool.cli.app import main
from hkvtool.engine.engine import Engine
turns = Engine.turns
def waiting(self, *args):
    for number, now in enumerate(turns(self, *args)):
        if number in (5, 12, 19):
            sys.stdin.readline()
        yield now
Engine.turns = waiting
sys.exit(main(sys.argv[1:]))
"""
"""The reference engine, which goes on only when somebody has seen what it did so far."""


def test_the_reference_engine_is_followed_from_outside(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    """A program that records, in a process of its own; the screen is there before its first event."""
    folder = tmp_path / "r.hkv"
    program = subprocess.Popen(
        [sys.executable, "-c", TURNS, "run", "--preset", "gemma3", "--requests", "6",
         "-o", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert program.stdin is not None
    told = program.stdin

    async def talk(d: Driver) -> None:
        live = d.app.session.live
        assert live is not None
        seen = 0
        for _ in range(3):
            await d.until(lambda seen=seen: d.app.session.last > seen)  # type: ignore[misc]
            seen = d.app.session.last
            assert not live.over
            told.write(b"\n")
            told.flush()
        await d.until(lambda: live.over)
        d.has("recorded")
        whole = list(open_trace(folder).events())
        assert seen < d.app.session.last == len(whole) == d.app.look.pos
        assert [dict(e.data) for e in live.trace.events()] == [dict(e.data) for e in whole]
        assert d.app.session.report.as_json() == check(whole).as_json()

    try:
        end = monotonic() + 120
        while not is_recording(folder) and monotonic() < end:
            sleep(0.02)
        drive(folder, talk, wait=True)
        assert program.wait(60) == 0
    finally:
        program.kill()
        program.communicate()
