"""The screens as text, at three sizes. ``HKV_GOLDEN=1`` writes them anew; look at what changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hkvtool.tui.actions import VIEWS
from tests.tui.conftest import Driver

FOLDER = Path(__file__).parent / "screens"

SHOTS = [
    *(("A01", size, view) for size in ((80, 24), (120, 40), (200, 60)) for view in VIEWS),
    ("B10", (120, 40), "findings"), ("B10", (200, 60), "map"), ("B10", (120, 40), "transfers"),
    ("A33", (200, 60), "findings"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "size", "view"), SHOTS)
def test_screen(cases, drive, case: str, size: tuple[int, int], view: str) -> None:  # type: ignore[no-untyped-def]
    found: list[str] = []

    async def talk(d: Driver) -> None:
        await d.press(str(VIEWS.index(view) + 1))
        found.append(d.text + "\n")

    drive(cases[case].bad, talk, size)
    golden = FOLDER / f"{case}-{view}-{size[0]}x{size[1]}.txt"
    if os.environ.get("HKV_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        golden.write_text(found[0], encoding="utf-8")
    assert found[0] == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("size", [(80, 24), (300, 100), (40, 12), (20, 8)])
def test_every_view_fits_any_screen(cases, drive, size: tuple[int, int]) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        for number in range(1, len(VIEWS) + 1):
            await d.press(str(number))
            lines = d.text.splitlines()
            assert len(lines) <= size[1]
            assert max(map(len, lines)) <= size[0]

    drive(cases["B10"].bad, talk, size)


def test_resizing_keeps_what_one_looks_at(cases, drive) -> None:  # type: ignore[no-untyped-def]
    async def talk(d: Driver) -> None:
        await d.press("1")
        for size in ((80, 24), (200, 60), (40, 12), (120, 40)):
            await d.pilot.resize_terminal(*size)
            await d.settle()
            assert d.app.block == ("gpu", 17)
            assert d.app.size == size
        d.has("gpu:17", "F1 HKV702")

    drive(cases["B10"].bad, talk)


def test_without_colour_letters_and_glyphs_say_it(cases, drive, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("NO_COLOR", "1")

    async def talk(d: Driver) -> None:
        await d.press("1")
        # Named by the finding, not resumable in layer 1, on the host.
        d.has("C!", "c1", "d·")

    drive(cases["B10"].bad, talk)
