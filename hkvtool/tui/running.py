"""The application in a terminal, or as a picture without one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from hkvtool.model.errors import Exit, HkvError, TraceError
from hkvtool.tui.app import Tui
from hkvtool.tui.session import Session

_DEEP = 4
"""Times that the screen is drawn: what its size and its bars leave room for changes what is shown,
and that its bars."""


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
    """Wait until everything that was asked for is on the screen.

    A pilot's own pause goes by the clock: it takes a process that got no processor for one that
    has nothing to do."""
    drawn = 0
    while drawn < _DEEP and app.is_running:
        await _handled()
        drawn = drawn + 1 if app.quiet else 0
        await pilot.pause(0 if drawn else 0.02)


async def _handled() -> None:
    """Wait until all messages are handled, and those that these sent: the loop has nothing to run
    but for timers and threads."""
    loop: Any = asyncio.get_running_loop()
    while loop._ready:
        await asyncio.sleep(0)
