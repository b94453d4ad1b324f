"""The tutorial's commands, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from hkvtool.model.shipped import shipped

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"# exits with (\d+)$")


def commands(page: str) -> list[tuple[str, int]]:
    """Each command of a page, and what it exits with."""
    found = []
    for block in _BLOCK.findall(page):
        for line in block.splitlines():
            said = _CODE.search(line)
            found.append((line, int(said.group(1)) if said else 0))
    return found


def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(str(shipped()))
    # As in the checkout, where what is not installed lies under the package's name.
    shutil.copy(PAGE.parents[1] / "pyproject.toml", tmp_path)
    (tmp_path / "hkvtool").mkdir()
    (tmp_path / "hkvtool" / "__init__.py").write_text("raise ImportError('the checkout itself')\n")
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, run in (("hkvtool", "hkvtool.__main__.main"), ("pytest", "pytest.main")):
        module, _, function = run.rpartition(".")
        script = bin / name
        script.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function} as run\nsys.exit(run())\n"
        )
        script.chmod(0o755)
    env = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "COLUMNS": "100"}
    said = {}
    told = commands(PAGE.read_text())
    assert len(told) == 12
    for line, code in told:
        done = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == code, f"{line}\n{done.stdout}{done.stderr}"
        said[line.partition("#")[0].strip()] = done.stdout + done.stderr
    assert "1 failed" in said["pytest -q test_fractured_prefix.py"]
    assert "third resumes at token 256" in said["hkvtool check bug.duckdb"]
    assert "nobody else read it" in said["hkvtool why bug.duckdb third"]
    replayed = said["hkvtool replay bug.duckdb --finding F1"]
    assert "20 of 20" in replayed and "0 of 20" in replayed
    assert "3 of 335 events" in said["hkvtool minimize bug.duckdb --finding F1 -o small.jsonl"]
