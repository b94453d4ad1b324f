"""The worked example is an adapter as any other, and asks nothing of where it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hkvtool-lmcache"

LOOKED_AT = """
import sys
sys.path.insert(0, {folder!r})
from hkvtool.recorder import adapters
adapter = adapters.load("example", {value!r})
print(adapter.engine, adapter.declare().version, adapter.geometry())
print(*sorted({{m.partition(".")[0] for m in sys.modules}} - sys.stdlib_module_names))
"""


def test_its_entry_point_is_an_adapter_and_imports_no_engine() -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    assert "dependencies" not in project["project"]
    (value,) = project["project"]["entry-points"]["hkvtool.adapters"].values()
    code = LOOKED_AT.format(folder=str(EXAMPLE), value=value)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not done.stderr
    said, modules = done.stdout.splitlines()
    if said.split()[1] != "None":
        pytest.skip("LMCache is here")
    assert said == "lmcache.v1.storage_backend.local_cpu_backend None []"
    assert set(modules.split()) & {"hkvtool", "hkvtool_lmcache", "lmcache", "torch"} == {
        "hkvtool", "hkvtool_lmcache",
    }  # fmt: skip


def test_the_page_names_what_is_there() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "add-an-engine.md").read_text()
    for file in ("pyproject.toml", "__init__.py", "adapter.py", "hooks.py", "memory_hooks.py"):
        assert file in page and list(EXAMPLE.rglob(file)), file
    assert "examples/hkvtool-lmcache/program.py" in page and (EXAMPLE / "program.py").exists()
