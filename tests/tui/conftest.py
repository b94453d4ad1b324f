"""An application without a terminal, and what its screen says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hkvtool.cli.app import main
from hkvtool.tui.app import Tui
from hkvtool.tui.opening import opened
from hkvtool.tui.running import settle

Driven = Callable[["Driver"], Awaitable[None]]


class Driver:
    """Presses keys and reads the screen; each press waits until nothing is under way."""

    def __init__(self, app: Tui, pilot: Any) -> None:
        self.app, self.pilot = app, pilot

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.pilot.press(key)
            await settle(self.app, self.pilot)

    async def type(self, text: str) -> None:
        """Answer a prompt."""
        await self.pilot.press(*("space" if c == " " else c for c in text))
        await self.press("enter")

    async def settle(self) -> None:
        await settle(self.app, self.pilot)

    async def until(self, there: Callable[[], Any]) -> None:
        """Wait for something to come, and to be on the screen."""
        end = monotonic() + 100
        while not there():
            assert monotonic() < end, self.text
            await self.pilot.pause(0.05)
        await self.settle()

    @property
    def text(self) -> str:
        """The screen as text."""
        return screen_text(self.app)

    def has(self, *parts: str) -> None:
        """Assert that the screen says all of these."""
        text = self.text
        for part in parts:
            assert part in text, f"{part!r} is not in\n{text}"


def screen_text(app: Tui) -> str:
    """The lines of the screen, without what trails them."""
    lines = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in lines)


@asynccontextmanager
async def driving(
    path: Path, size: tuple[int, int] = (120, 40), *, wait: bool = False, **settings: Any
) -> AsyncIterator[Driver]:
    with opened(str(path), wait=wait) as session:
        app = Tui(
            session, name=path.name, **{"start": None, "view": None, "check": None} | settings
        )
        async with app.run_test(size=size) as pilot:
            await settle(app, pilot)
            yield Driver(app, pilot)


@pytest.fixture
def drive() -> Callable[..., None]:
    """Run a conversation with an application."""

    def run(path: Path, talk: Driven, size: tuple[int, int] = (120, 40), **settings: Any) -> None:
        async def whole() -> None:
            async with driving(path, size, **settings) as driver:
                await talk(driver)

        asyncio.run(asyncio.wait_for(whole(), 300))

    return run


@pytest.fixture
def trace_of(tmp_path: Path) -> Callable[..., Path]:
    """A JSON-lines file from objects."""

    def write(lines: list[Any], name: str = "t.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
        return path

    return write


@dataclass(frozen=True)
class Outcome:
    """What a command line left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def hkvtool(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process."""

    def run(*args: str) -> Outcome:
        capsys.readouterr()
        code = main(args)
        return Outcome(code, *capsys.readouterr())

    return run
