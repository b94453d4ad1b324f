"""Amounts as people write them: `512M`, `24h`."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from hkvtool.model.errors import HkvError

DURATION = Annotated[
    str | None, typer.Option("--duration", help="So long, e.g. 10m; else until Ctrl-C.")
]
MAX_SIZE = Annotated[
    str | None,
    typer.Option("--max-size", help="Stop there; with --keep delete the oldest instead."),
]
KEEP = Annotated[str | None, typer.Option("--keep", help="Delete what is older, e.g. 24h.")]

_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TIMES = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


def size(text: str | None, option: str) -> int | None:
    """Bytes. Raises HkvError."""
    if text is None:
        return None
    match = _AMOUNT.fullmatch(text.strip())
    unit = match[2].upper().removesuffix("B").removesuffix("I") if match else "?"
    if match is None or unit not in _SIZES or float(match[1]) <= 0:
        raise HkvError(f"{option} {text}: not a size", hint="write 512M or 20G")
    return int(float(match[1]) * _SIZES[unit])


def seconds(text: str | None, option: str) -> float | None:
    """Seconds. Raises HkvError."""
    if text is None:
        return None
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match[2].lower() not in _TIMES or float(match[1]) <= 0:
        raise HkvError(f"{option} {text}: not a time", hint="write 90s, 15m, 24h or 7d")
    return float(match[1]) * _TIMES[match[2].lower()]


def shown_bytes(count: float) -> str:
    """Bytes in the largest unit that leaves a number from 1 on."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"
