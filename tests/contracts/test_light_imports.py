"""What runs inside an engine needs the standard library only, and help needs nothing heavy."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "numba", "duckdb", "pyarrow", "textual", "numpy")

ONLY_STANDARD_LIBRARY = """
import importlib, pkgutil, sys

class Bar:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"hkvtool", *sys.stdlib_module_names}:
            raise ModuleNotFoundError(f"no {name} in an engine's environment", name=name)

sys.meta_path.insert(0, Bar())
"""


def run(code: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True)


@pytest.mark.parametrize("room", ["model", "recorder"])
def test_room_imports_with_the_standard_library_alone(room: str) -> None:
    every = f"""
import hkvtool.{room} as room
names = [m.name for m in pkgutil.walk_packages(room.__path__, room.__name__ + ".")]
for name in names:
    importlib.import_module(name)
"""
    found = run(ONLY_STANDARD_LIBRARY + every)
    assert found.returncode == 0, found.stderr


def test_state_imports_without_its_compiled_entry() -> None:
    every = """
import hkvtool.state as room
for m in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    try:
        importlib.import_module(m.name)
    except ModuleNotFoundError as e:
        print(m.name, e.name)
"""
    found = run(ONLY_STANDARD_LIBRARY + every)
    assert found.returncode == 0, found.stderr
    lacking = {line.split()[1].partition(".")[0] for line in found.stdout.splitlines()}
    assert lacking <= {"numba", "numpy"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["rules", "--help"], []])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    code = """
import sys
from hkvtool.cli.app import main
main(sys.argv[1:])
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
    found = run(code, *args)
    loaded = found.stdout.rpartition("loaded:")[2].split()
    assert "hkvtool" in loaded, found.stderr
    assert not set(loaded) & set(HEAVY)


def test_every_command_module_imports_nothing_heavy() -> None:
    code = """
import importlib, sys
from hkvtool.cli.commands import commands
for command in commands().values():
    importlib.import_module(command.module)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""
    found = run(code)
    assert found.returncode == 0, found.stderr
    assert not set(found.stdout.split()) & set(HEAVY)
