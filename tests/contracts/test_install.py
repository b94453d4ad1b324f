"""The installed package is the checkout, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import hkvtool

CHECKOUT = Path(__file__).resolve().parents[2]
BESIDE = ("analyzers", "fixtures", "kernels", "recorder")
"""Rooms that lie beside `hkvtool/` in the checkout and inside it once installed."""
PASSED_OVER = ("__pycache__", ".mypy_cache", ".ruff_cache")


def files(folder: Path) -> dict[str, bytes]:
    return {
        f.relative_to(folder).as_posix(): f.read_bytes()
        for f in folder.rglob("*")
        if f.is_file() and not set(PASSED_OVER) & set(f.parts)
    }


def test_install_holds_every_file_of_the_checkout() -> None:
    installed = Path(hkvtool.__file__).parent
    if (installed / "model").resolve().is_relative_to(CHECKOUT / "hkvtool"):
        pytest.skip("the package is the checkout itself")
    wanted = files(CHECKOUT / "hkvtool")
    for room in BESIDE:
        wanted |= {f"{room}/{name}": data for name, data in files(CHECKOUT / room).items()}
    found = files(installed)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
