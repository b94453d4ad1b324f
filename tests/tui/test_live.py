"""A recording that is still being written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hkvtool.recorder.recording import Recording
from tests.tui.conftest import Driver


def start(folder: Path) -> Recording:
    made = Recording.start(folder)
    assert isinstance(made, Recording), made
    made.emit("trace", format="hkv/1", engine="test", evidence=["host"])
    made.emit("pool", pool="gpu", medium="gpu", blocks=64)
    made.emit("group", group="kv", form="compressed", pool="gpu", block_tokens=4)
    return made


async def until(d: Driver, there: Any) -> None:
    """Wait for something to come."""
    for _ in range(200):
        if there():
            return
        await d.pilot.pause(0.05)
    raise AssertionError(d.text)


def test_it_follows_and_can_be_held(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        d.has("● live", "event 3 of 3")
        recording.emit("alloc", req="r1", group="kv", blocks=[7, 8])
        await until(d, lambda: d.app.look.pos == 4)
        d.has("event 4 of 4", "2 held")
        # Held where it is, and nothing is lost meanwhile.
        await d.press("space")
        recording.emit("free", req="r1", group="kv", blocks=[7, 8])
        await until(d, lambda: d.app.session.last == 5)
        await d.settle()
        assert d.app.look.pos == 4
        d.has("❚❚ live", "event 4 of 5")
        await d.press("space")
        assert d.app.look.pos == 5
        # Whoever went back stays there.
        await d.press("[", "[")
        recording.emit("admit", req="r2")
        await until(d, lambda: d.app.session.last == 6)
        await d.settle()
        assert d.app.look.pos == 3
        recording.close()
        await until(d, lambda: d.app.session.live.over)
        await d.settle()
        d.has("recorded")

    drive(folder, talk)


def test_a_finding_comes_up_while_it_is_recorded(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        recording.emit("alloc", req="r1", group="kv", blocks=[7])
        for _ in range(2):
            recording.emit("free", req="r1", group="kv", blocks=[7])
        await until(d, lambda: d.app.roots)
        await d.press("4")
        d.has("704 refcount")

    drive(folder, talk)
    recording.close()


def test_what_was_recorded_is_checked_to_its_end(tmp_path: Path, drive, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("hkvtool.tui.following.AT_ONCE", 6)
    folder = tmp_path / "r.hkv"
    recording = start(folder)

    async def talk(d: Driver) -> None:
        assert d.app.session.report is not None and not d.app.roots
        recording.emit("alloc", req="r1", group="kv", blocks=[7])
        for _ in range(4):
            recording.emit("free", req="r1", group="kv", blocks=[7])
        await until(d, lambda: d.app.session.last == 8)
        await d.settle()
        d.has("checked to 3")
        recording.close()
        await until(d, lambda: d.app.roots)
        await d.settle()
        assert d.app.session.report.trace["events"] == 8
        assert "checked to" not in d.text

    drive(folder, talk)


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
