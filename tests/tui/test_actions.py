"""Every action, by its keys, as a person would."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hkvtool.model.progress import PREFIX
from hkvtool.tui.actions import ACTIONS, VIEWS, keys_of
from hkvtool.tui.app import Tui
from hkvtool.tui.unused import unused
from tests.tui.conftest import Driver


def test_every_action_of_the_table_is_there_and_no_key_means_two_things() -> None:
    taken: dict[tuple[str, str], str] = {}
    for action in ACTIONS:
        name = action.name.partition("(")[0]
        assert name == "open" or hasattr(Tui, f"action_{name}"), name
        assert action.text and keys_of(action)
        for key in action.keys.split(","):
            for view in action.views or VIEWS:
                assert taken.setdefault((view, key), action.name) == action.name


def test_it_opens_on_the_most_severe_finding(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        assert d.app.current == "findings"
        d.has("F1 HKV102 fractured-prefix", "request r2 resumes at token 1024", "CHECK  at 38",
              "USE  at 44", "event 38 of 52")  # fmt: skip

    drive(cases["A01"].bad, talk)


def test_without_a_finding_it_opens_on_the_map(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        assert d.app.current == "map"
        d.has("gpu", "2,048 blocks", "were never used", "Every block of every pool")

    drive(cases["A01"].good, talk)


def test_views_by_number(cases, drive) -> None:  # type: ignore[no-untyped-def]
    says = {
        "map": "resumable", "block": "life", "hit": "first to fail", "findings": "what happened",
        "requests": "request status", "transfers": "dir   begin", "ratios": "lost between",
        "events": "lookup req=",
    }  # fmt: skip

    async def talk(d: Driver) -> None:
        for number, view in enumerate(VIEWS, 1):
            await d.press(str(number))
            assert d.app.current == view
            d.has(says[view])

    drive(cases["A01"].bad, talk)


def test_moving_in_time(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        pos = d.app.wanted_pos
        await d.press("]")
        assert d.app.look.pos == pos + 1
        await d.press("[", "[")
        assert d.app.look.pos == pos - 1
        await d.press("g")
        assert d.app.look.pos == 1
        await d.press("[")
        assert d.app.look.pos == 1
        await d.press(">")
        assert d.app.look.event.ev == "dispatch" and d.app.look.pos == 8
        await d.press(".", "<")
        assert d.app.look.pos == 8
        await d.press("h")
        assert d.app.look.event.ev == "lookup"
        await d.press("h", "H")
        assert d.app.look.event.ev == "lookup"
        await d.press("G")
        assert d.app.look.pos == 52
        await d.press("n")
        assert d.app.look.pos == 38

    drive(cases["A01"].bad, talk)


def test_stepping_by_version_follows_the_block(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        d.app.choose_block(("gpu", 13))
        await d.settle()
        await d.press("g", "}")
        assert (d.app.look.event.ev, d.app.look.pos) == ("alloc", 6)
        await d.press("}")
        assert (d.app.look.event.ev, d.app.look.pos) == ("write", 16)
        await d.press("{")
        assert d.app.look.pos == 6

    drive(cases["A01"].bad, talk)


@pytest.mark.parametrize(
    ("text", "pos"), [("12", 12), ("s503", 29), ("50%", 27), ("F1", 38), ("99999", 52)]
)
def test_jumping(cases, drive, text: str, pos: int) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("g", ":")
        await d.type(text)
        assert d.app.look.pos == pos

    drive(cases["A01"].bad, talk)


def test_jumping_to_a_time(trace_of, drive) -> None:  # type: ignore[no-untyped-def]
    lines = [
        {"ev": "pool", "pool": "gpu", "medium": "gpu", "blocks": 4, "ts": 1_000_000},
        *({"ev": "admit", "req": f"r{i}", "ts": 1_000_000 * (i + 2)} for i in range(20)),
    ]

    async def talk(d: Driver) -> None:
        await d.press(":")
        await d.type("7.5ms")
        assert d.app.look.pos == 8
        d.has("7.000 ms")

    drive(trace_of(lines), talk)


def test_a_place_that_is_none_is_told(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        before = d.app.look.pos
        for text in ("sideways", "1e999%", "nan%", "-3"):
            await d.press(":")
            await d.type(text)
        assert d.app.look.pos == before
        await d.press(":", "escape")

    drive(cases["A01"].bad, talk)


def test_playing_goes_on_and_stops(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("g", ")", "space")
        assert d.app._playing is not None
        await d.until(lambda: d.app.look.pos > 3)
        await d.press("space", "(")
        assert d.app._playing is None and d.app.speed == 1

    drive(cases["A01"].bad, talk)


def test_the_map_is_walked_and_zoomed(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        d.app.choose_block(("gpu", 11))
        await d.press("1", "right")
        assert d.app.block == ("gpu", 12)
        await d.press("left", "left")
        assert d.app.block == ("gpu", 10)
        d.has("gpu:10")
        wide = d.app.map_view(d.app.query_one("#mosaic"))
        await d.press("-", "-")
        assert d.app.map_view(d.app.query_one("#mosaic")).zoom == wide.zoom + 2
        d.has("a cell is 4 blocks")
        await d.press("+", "=", "0")
        assert d.app.map_view(d.app.query_one("#mosaic")) == wide
        for name in ("group", "request", "layer", "form"):
            await d.press("c")
            assert d.app.colouring == name

    drive(cases["A01"].bad, talk)


def test_filtering_and_letting_go(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("1", "f")
        await d.type("group=fa state=held")
        d.has("only group=fa state=held")
        await d.press("f")
        await d.pilot.press(*["backspace"] * 40)
        await d.type("colour=red")
        assert d.app.filter.text == "group=fa state=held"
        await d.press("escape")
        assert not d.app.filter

    drive(cases["A01"].bad, talk)


@pytest.mark.parametrize(
    ("text", "view", "says"),
    [
        ("gpu:41", "map", "gpu:41"), ("17", "map", "gpu:17"), ("r2", "requests", "why · r2"),
        ("F1", "findings", "HKV102"), ("hkv102", "findings", "HKV102"),
        ("e4328e98", None, "only hash=e4328e98"),
    ],
)  # fmt: skip
def test_finding_things(cases, drive, text: str, view: str | None, says: str) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("/")
        await d.type(text)
        if view:
            assert d.app.current == view
        d.has(says)

    drive(cases["A01"].bad, talk)


def test_from_a_finding_to_its_blocks_and_back(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("1")
        assert d.app.block == ("gpu", 17)
        d.has("named by", "F1 HKV702")
        await d.press("2")
        d.has("gpu:17", "life")
        await d.press("escape")
        assert d.app.finding is None
        await d.press("n")
        assert d.app.finding is not None

    drive(cases["B10"].bad, talk)


def test_the_mouse_chooses_views_cells_and_moments(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.pilot.click("#tabs", offset=(3, 0))
        await d.settle()
        assert d.app.current == "map"
        await d.pilot.click("#mosaic", offset=(9 + 3 * 12, 1))
        await d.settle()
        assert d.app.block == ("gpu", 12)
        axis = d.app.query_one("#axis")
        await d.pilot.click("#axis", offset=(axis.size.width - 1, 1))
        await d.settle()
        assert d.app.look.pos == 52
        await d.pilot.click("#tabs", offset=(32, 0))
        await d.settle()
        assert d.app.current == "findings"

    drive(cases["A01"].bad, talk)


def test_the_key_bar_is_clicked(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        bar = d.text.splitlines()[-1]
        pos = d.app.look.pos
        await d.pilot.click("#keys", offset=(bar.index("event"), 0))
        await d.settle()
        assert d.app.look.pos == pos + 1
        await d.pilot.click("#keys", offset=(bar.index("["), 0))
        await d.settle()
        assert d.app.look.pos == pos
        await d.pilot.click("#keys", offset=(bar.index("help"), 0))
        await d.settle()
        d.has("what lies between", "next engine step")

    drive(cases["A01"].bad, talk)


def test_scrubbing_by_keys(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        d.app.query_one("#axis").focus()
        pos = d.app.look.pos
        await d.press("right")
        assert d.app.look.pos > pos
        await d.press("left", "shift+left")
        assert d.app.look.pos < pos

    drive(cases["A01"].bad, talk)


def test_help_theme_and_command(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("1", "?")
        d.has("zoom in", "colour by form", "next engine step")
        await d.press("end")
        d.has("compressed: needs")
        await d.press("escape")
        await d.press("t")
        assert not d.app.palette.dark
        d.has("2,048 blocks")
        await d.press("t", "y")
        assert d.app.palette.dark

    drive(cases["A01"].bad, talk)


def test_a_request_opens_its_hit(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("5", "enter")
        assert d.app.current == "hit"
        d.has("request r2", "resumed at 1,024")

    drive(cases["A01"].bad, talk)


def test_a_loss_opens_its_finding(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("7", "down", "enter")
        assert d.app.current == "findings" and d.app.finding.code == "HKV102"

    drive(cases["A01"].bad, talk)


def test_events_step_the_cursor(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("8", "down", "enter")
        assert d.app.look.pos == 39

    drive(cases["A01"].bad, talk)


def test_a_picture_is_written(cases, drive, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    async def talk(d: Driver) -> None:
        await d.press("s")

    drive(cases["A01"].bad, talk)
    (picture,) = tmp_path.glob("*.svg")
    assert "HKV102" in picture.read_text()


def test_leaving(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.pilot.press("q")
        await d.until(lambda: not d.app.is_running)

    drive(cases["A01"].bad, talk)


@pytest.mark.parametrize(
    ("number", "code", "says", "left"),
    [
        (0, 1, "confirmed", None),
        (1, 1, "", None),
        (2, 0, "", "bad-F1.jsonl"),
        (3, 0, "", "test_bad_F1.py"),
        (4, 0, "", "bad-F1.zip"),
        (5, 0, "", None),
    ],
    ids=["confirm", "explore", "minimize", "export", "pack", "explain"],
)
def test_what_can_be_done_with_a_finding(  # type: ignore[no-untyped-def]
    cases, drive, tmp_path: Path, monkeypatch, number: int, code: int, says: str, left: str | None
) -> None:
    """Each job to its end, as it is chosen from the list; the screen goes on meanwhile."""
    monkeypatch.chdir(tmp_path)

    async def talk(d: Driver) -> None:
        await d.press("4", "x")
        d.has("what to do with it", "hkvtool replay TRACE", "minimize")
        await d.pilot.press(*["down"] * number, "enter")
        screen = d.app.screen
        await d.until(lambda: screen.code is not None)
        assert screen.code == code, d.text
        d.has("done", "esc goes back", says)
        await d.press("escape")
        assert d.app.screen is not screen

    drive(cases["B10"].bad, talk)
    assert left is None or (tmp_path / left).stat().st_size > 100


def test_what_a_job_writes_is_never_there_already(tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from hkvtool.tui.jobs import JOBS

    monkeypatch.chdir(tmp_path)
    writing = [job for job in JOBS if job.output is not None]
    assert [job.command for job in writing] == ["minimize", "export", "bundle"]
    for job in writing:
        names = []
        for _ in range(3):
            told = job.arguments("t.duckdb", "F1", "t")
            assert "--force" not in told
            names.append(told[told.index("-o") + 1])
            Path(names[-1]).write_text("mine")
        assert len(set(names)) == 3 and {Path(name).suffix for name in names} == {
            Path(names[0]).suffix
        }
    Path("loose.svg").symlink_to("nowhere")
    assert unused("loose.svg") == "loose-2.svg" and unused("free.svg") == "free.svg"


def test_a_picture_is_never_written_over_another(cases, drive, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)

    async def talk(d: Driver) -> None:
        await d.press("1", "s")
        await d.press("s")

    drive(cases["B10"].bad, talk)
    assert len(list(tmp_path.glob("hkvtool-map-*.svg"))) == 2


HELD = """#!{python}
import subprocess, sys, time
ran = subprocess.Popen(
    ["{python}", *sys.argv[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
)
for line in ran.stdout:
    print(line, end="", flush=True)
    if line.startswith({prefix!r}):
        ran.kill()
        time.sleep(600)
"""
"""Runs a command up to where it first says how far it is."""


def test_a_job_says_how_far_it_is(cases, drive, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from hkvtool.tui import jobs

    held = tmp_path / "held"
    held.write_text(HELD.format(python=sys.executable, prefix=PREFIX))
    held.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(held))
    long = jobs.Job("search", "explore", ("--finding", "{finding}", "--budget", "100000"))
    monkeypatch.setattr(jobs, "JOBS", (long,))

    async def talk(d: Driver) -> None:
        await d.press("4", "x")
        await d.pilot.press("enter")
        await d.until(lambda: "running … searching" in d.text)
        process = d.app.screen._process
        await d.press("escape")
        await process.wait()

    drive(cases["B10"].bad, talk)


def test_a_job_can_be_called_off(cases, drive, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    from hkvtool.tui import jobs

    sleep = jobs.Job("sleep", "replay", ("--finding", "{finding}", "--runs", "1000"))
    monkeypatch.setattr(jobs, "JOBS", (sleep,))

    async def talk(d: Driver) -> None:
        await d.press("x")
        await d.pilot.press("enter")
        await d.until(lambda: d.app.screen._process is not None)
        process = d.app.screen._process
        assert process is not None
        d.has("esc calls it off")
        await d.press("escape")
        await process.wait()
        assert process.returncode != 0

    drive(cases["B10"].bad, talk)


def test_what_comes_in_while_something_lies_over_the_board_is_drawn_on_it(cases, drive) -> None:  # type: ignore[no-untyped-def]
    apps: list[Tui] = []

    async def talk(d: Driver) -> None:
        apps.append(d.app)
        await d.press("question_mark")
        assert d.app.screen is not d.app.board
        d.app.error = "it broke off meanwhile"
        d.app.turn("requests")
        d.app.show_all()
        await d.press("escape")
        assert d.app.screen is d.app.board and d.app.current == "requests"
        d.has("it broke off meanwhile", "request status")

    drive(cases["A01"].bad, talk)
    assert not apps[0].drawable
    apps[0].show_all()
    apps[0].turn("map")
