"""Traces that nobody meant well with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hkvtool.recorder.recording import Recording
from hkvtool.tui.actions import VIEWS
from tests.state.hostile import hostile
from tests.tui.conftest import Driver

EVIL = "[bold]x[/bold]\x1b[31mred\x1b]0;title\x07\r\n\u202e[@click=app.quit]y[/]"


async def tour(d: Driver) -> None:
    """Every view, at some moments."""
    for key in ("g", "]", "G", "n"):
        await d.press(key)
        for number in range(1, len(VIEWS) + 1):
            await d.press(str(number))
            assert all(c.isprintable() or c == "\n" for c in d.text)


@pytest.mark.parametrize("seed", range(8))
def test_any_stream_can_be_looked_at(trace_of, drive, seed: int) -> None:  # type: ignore[no-untyped-def]
    drive(trace_of(hostile(seed, 40)), tour, (100, 30))


def test_names_are_shown_and_not_obeyed(trace_of, drive) -> None:  # type: ignore[no-untyped-def]
    lines: list[dict[str, Any]] = [
        {"ev": "trace", "format": "hkv/1", "engine": EVIL, "note": EVIL, "evidence": ["host"]},
        {"ev": "pool", "pool": EVIL, "medium": "gpu", "blocks": 9},
        {"ev": "group", "group": EVIL, "form": "compressed", "pool": EVIL, "block_tokens": 4},
        {"ev": "alloc", "req": EVIL, "group": EVIL, "blocks": [1, 2]},
        {"ev": "free", "req": EVIL, "group": EVIL, "blocks": [1, 2]},
        {"ev": "free", "req": EVIL, "group": EVIL, "blocks": [1, 2]},
        {"ev": "lookup", "req": EVIL, "hit": {EVIL: 8}, "tokens": 9, "blocks": {EVIL: [1, 2]}},
        {"ev": "resume", "req": EVIL, "at": 8, "blocks": {EVIL: [1, 2]}},
    ]

    async def talk(d: Driver) -> None:
        await tour(d)
        await d.press("4")
        d.has("[bold]x[/bold]")

    drive(trace_of(lines), talk)


@pytest.mark.parametrize(
    "lines",
    [
        ["{", "nonsense", "[]"],
        [{"ev": "admit", "req": "r"}],
        [{"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 0}],
        [{"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 1 << 40}],
    ],
)  # fmt: skip
def test_traces_with_next_to_nothing(trace_of, drive, lines: list[Any]) -> None:  # type: ignore[no-untyped-def]
    drive(trace_of(lines), tour, (90, 26))


def test_what_cannot_be_read_is_told_before_anything_is_drawn(tmp_path: Path, hkvtool) -> None:  # type: ignore[no-untyped-def]
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    picture = tmp_path / "p.svg"
    found = hkvtool("tui", str(empty), "--screenshot", str(picture))
    assert found.code == 3 and "empty" in found.err
    assert not picture.exists()
    found = hkvtool("tui", str(tmp_path / "none.duckdb"), "--screenshot", str(picture))
    assert found.code == 3
    assert "Traceback" not in found.err


def test_a_terminal_is_needed(cases, hkvtool) -> None:  # type: ignore[no-untyped-def]
    found = hkvtool("tui", str(cases["A01"].bad))
    assert found.code == 2 and "--screenshot" in found.err
    assert hkvtool("tui", "-").code == 2
    assert hkvtool("tui", str(cases["A01"].bad), "--view", "mpa").code == 2
    assert hkvtool("tui", str(cases["A01"].bad), "--screenshot", "x.svg", "--size", "9").code == 2


def test_a_picture_without_a_terminal(cases, tmp_path: Path, hkvtool) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "a.svg"
    found = hkvtool("tui", str(cases["A01"].bad), "--screenshot", str(target), "--view", "hit")
    assert found.code == 0, found.err
    assert "first" in target.read_text()
    found = hkvtool("tui", str(cases["A01"].bad), "--screenshot", str(tmp_path / "no" / "a.svg"))
    assert found.code == 2 and "cannot write" in found.err


@pytest.mark.parametrize("size", [(40, 10), (20, 8), (300, 100)])
def test_any_size_while_it_runs(cases, drive, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.pilot.resize_terminal(*size)
        await d.settle()
        await tour(d)
        for key in ("4", "x", "escape", "?", "escape", ":", "escape", "f", "escape", "ctrl+p"):
            await d.press(key)
        await d.press("escape")
        await d.pilot.resize_terminal(120, 40)
        await d.settle()
        await d.press("1")
        d.has("quit", "time")

    drive(cases["A33"].bad, talk)


def test_a_recording_whose_names_are_hostile_is_followed(tmp_path: Path, drive) -> None:  # type: ignore[no-untyped-def]
    made = Recording.start(tmp_path / "r.hkv")
    assert isinstance(made, Recording)
    made.emit("trace", format="hkv/1", engine=EVIL, evidence=["host"])
    made.emit("pool", pool=EVIL, medium="gpu", blocks=9)
    made.emit("group", group=EVIL, form="compressed", pool=EVIL, block_tokens=4)
    made.emit("alloc", req=EVIL, group=EVIL, blocks=[1, 2])
    made.emit("alloc", req=EVIL, group="none of these", blocks=[1, 200])
    made.emit("nothing", req=7)
    made.emit("write", blocks="x")

    drive(tmp_path / "r.hkv", tour, (90, 26))
    made.close()
