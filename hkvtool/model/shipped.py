"""Data that ships with the package: cases, small traces of the rules, workloads."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def shipped(*parts: str) -> Traversable:
    """A file or folder of the fixtures, wherever the package is installed.

    A wheel holds them as `hkvtool/fixtures`. An editable install cannot map a folder without
    code, and in a checkout they lie beside `hkvtool/`.
    """
    found = files("hkvtool").joinpath("fixtures")
    if not found.is_dir():
        found = Path(__file__).resolve().parents[2] / "fixtures"
    for part in parts:
        found = found.joinpath(part)
    return found
