"""Rooms import only what they may, checked on the installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import grimp
import pytest

import hkvtool

House = dict[str, frozenset[str]]
ELSEWHERE = frozenset(sys.stdlib_module_names) | {"hkvtool"}

PACKAGE = Path(hkvtool.__file__).parent


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("hkvtool", include_external_packages=True, cache_dir=None)


def contracts(house: House) -> str:
    """The house as an import-linter configuration."""
    lines = ["[importlinter]", "root_package = hkvtool"]
    for room, may in house.items():
        barred = sorted(set(house) - may - {room})
        if barred:
            lines += [
                f"[importlinter:contract:{room}]",
                f"name = {room} imports only: {' '.join(sorted(may)) or 'no other room'}",
                "type = forbidden",
                f"source_modules = hkvtool.{room}",
                "forbidden_modules =",
                *(f"    hkvtool.{other}" for other in barred),
                "allow_indirect_imports = true",
            ]
    return "\n".join(lines)


def lint(house: House, folder: Path, first_on_path: str = "") -> subprocess.CompletedProcess[str]:
    """Run import-linter from `folder`, which must not hold a package of our name."""
    (folder / "contracts.ini").write_text(contracts(house))
    code = (
        f"import sys; sys.path[:0] = [p for p in [{first_on_path!r}] if p]\n"
        "from importlinter.cli import lint_imports_command as lint\n"
        "lint(['--config', 'contracts.ini', '--no-cache'])"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)


def test_every_room_and_every_module_is_seen(graph: grimp.ImportGraph, house: House) -> None:
    # A checkout on the path, or an editable install, hides whole rooms, and every contract
    # about them would hold for want of anything to break it.
    rooms = {m.rpartition(".")[2] for m in graph.find_children("hkvtool")} - {"__main__"}
    assert rooms == set(house)
    walk = os.walk(PACKAGE, followlinks=True)
    files = [Path(folder, name) for folder, _, names in walk for name in names]
    paths = [f.relative_to(PACKAGE.parent) for f in files if f.suffix == ".py"]
    names = {".".join(p.with_suffix("").parts).removesuffix(".__init__") for p in paths}
    assert names == {m for m in graph.modules if m.partition(".")[0] == "hkvtool"}


def test_rooms_import_only_what_they_may(house: House, tmp_path: Path) -> None:
    run = lint(house, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("room", "line"),
    [("model", "import hkvtool.state"), ("store", "from hkvtool.analyzers import __doc__")],
)
def test_a_forbidden_import_is_caught(room: str, line: str, house: House, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(PACKAGE, copy / "hkvtool", ignore=shutil.ignore_patterns("fixtures"))
    with (copy / "hkvtool" / room / "__init__.py").open("a") as file:
        file.write(f"\n{line}\n")
    run = lint(house, tmp_path, str(copy))
    assert run.returncode == 1
    assert f"{room} imports only" in run.stdout


@pytest.mark.parametrize(("room", "besides"), [("model", ()), ("state", ("numba", "numpy"))])
def test_light_rooms_name_no_other_package(
    graph: grimp.ImportGraph, room: str, besides: tuple[str, ...]
) -> None:
    root = f"hkvtool.{room}"
    modules = {root, *graph.find_descendants(root)}
    named = {t for m in modules for t in graph.find_modules_directly_imported_by(m)}
    assert {t for t in named if t.partition(".")[0] not in ELSEWHERE} <= set(besides)


def test_hook_sets_know_nothing_of_each_other(graph: grimp.ImportGraph) -> None:
    # What they share lies beside them: an engine's hooks must not need another engine's.
    sets = [f"hkvtool.recorder.{engine}" for engine in ("vllm", "transformers", "sglang")]
    for one, other in permutations(sets, 2):
        chain = graph.find_shortest_chain(one, other, as_packages=True)
        assert chain is None, chain
