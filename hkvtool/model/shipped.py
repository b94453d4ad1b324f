"""Data that ships with the package: cases, small traces of the rules, workloads."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def shipped(*parts: str) -> Traversable:
    """A file or folder of `hkvtool/fixtures`, wherever the package is installed.

    The folder holds no code and is no package of its own, which is why it is looked up as a
    namespace: the one name that a wheel and an editable install both answer to.
    """
    found = files("hkvtool.fixtures")
    for part in parts:
        found = found.joinpath(part)
    return found
