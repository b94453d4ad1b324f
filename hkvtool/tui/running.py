"""The application in a terminal, or as a picture without one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hkvtool.model.errors import Exit, HkvError, TraceError
from hkvtool.tui.app import Tui
from hkvtool.tui.session import Session


def run(session: Session, **settings: Any) -> Exit:
    """Run until it is left. What it fails of, it has told when it returns."""
    app = Tui(session, **settings)
    app.run()
    return Exit.INTERNAL if app.return_code else Exit.OK


def picture(session: Session, target: Path, size: tuple[int, int], **settings: Any) -> None:
    """Write what the application shows first as an SVG picture. Raises HkvError."""
    if target.is_dir():
        raise HkvError(f"{target} is a folder")
    os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
    asyncio.run(_picture(session, target, size, settings))


async def _picture(
    session: Session, target: Path, size: tuple[int, int], settings: dict[str, Any]
) -> None:
    app = Tui(session, **settings)
    async with app.run_test(size=size) as pilot:
        await settle(app, pilot)
        if app.look is None:
            raise TraceError(app.error or "the application ended before anything was read")
        app.save_picture(os.fspath(target), force=True)


async def settle(app: Tui, pilot: Any) -> None:
    """Wait until everything that was asked for is on the screen."""
    while not app.quiet and app.is_running:
        await pilot.pause(0.02)
    await pilot.pause()
