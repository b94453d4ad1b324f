"""The tutorial's commands, run as they stand there."""

from __future__ import annotations

import os
import re
import shlex
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
    bin = tmp_path / "bin"
    bin.mkdir()
    for name, module in (("hkvtool", ["-m", "hkvtool"]), ("python", [])):
        script = bin / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *module])} "$@"\n')
        script.chmod(0o755)
    env = {**os.environ, "PATH": f"{bin}:{os.environ['PATH']}", "COLUMNS": "100"}
    said = {}
    told = commands(PAGE.read_text())
    assert len(told) == 12
    for line, code in told:
        run = subprocess.run(
            ["sh", "-c", line], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert run.returncode == code, f"{line}\n{run.stdout}{run.stderr}"
        said[line.partition("#")[0].strip()] = run.stdout + run.stderr
    assert "third resumes at token 256" in said["hkvtool check bug.duckdb"]
    assert "nobody else read it" in said["hkvtool why bug.duckdb third"]
    replayed = said["hkvtool replay bug.duckdb --finding F1"]
    assert "20 of 20" in replayed and "0 of 20" in replayed
    assert "3 of 335 events" in said["hkvtool minimize bug.duckdb --finding F1 -o small.jsonl"]
