"""The installed package is the checkout, whole."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

import hkvtool

CHECKOUT = Path(__file__).resolve().parents[2]
BESIDE = ("analyzers", "fixtures", "kernels", "recorder")
"""Rooms that lie beside `hkvtool/` in the checkout and inside it once installed."""
PASSED_OVER = ("__pycache__", ".mypy_cache", ".ruff_cache")
BUILT = (".c", ".so")
"""Sources that are compiled, and what is made of them."""


def files(folder: Path) -> dict[str, bytes]:
    return {
        f.relative_to(folder).as_posix(): f.read_bytes()
        for f in folder.rglob("*")
        if f.is_file() and not set(PASSED_OVER) & set(f.parts) and f.suffix not in BUILT
    }


def installed_package() -> Path:
    installed = Path(hkvtool.__file__).parent
    if (installed / "model").resolve().is_relative_to(CHECKOUT / "hkvtool"):
        pytest.skip("the package is the checkout itself")
    return installed


def test_install_holds_every_file_of_the_checkout() -> None:
    installed = installed_package()
    wanted = files(CHECKOUT / "hkvtool")
    for room in BESIDE:
        wanted |= {f"{room}/{name}": data for name, data in files(CHECKOUT / room).items()}
    found = files(installed)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []


def test_what_is_written_in_c_was_built_and_is_used() -> None:
    installed = installed_package()
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler here")
    assert [f.name for f in installed.rglob("*.so")] == ["_ring.abi3.so"]
    from hkvtool.recorder.native import compiled, missing

    assert compiled is not None or missing.startswith("HKV_NATIVE="), missing


def test_the_manual_page_is_where_man_looks() -> None:
    installed_package()
    page = Path(sys.prefix, "share", "man", "man1", "hkvtool.1")
    assert page.read_bytes() == (CHECKOUT / "docs" / "man" / page.name).read_bytes()
