"""The manual page is the commands' own help, and shells are told how to complete them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.commands import commands
from hkvtool.cli.man_page import PAGE, page, write

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "man" / PAGE
SHELLS = ("bash", "zsh", "fish")


@pytest.mark.soak
def test_the_page_is_up_to_date() -> None:
    assert COMMITTED.read_text("utf-8") == page(), "run `make docs` and commit docs/man"


def test_it_has_every_command_and_those_below(tmp_path: Path) -> None:
    write(tmp_path / "man")
    text = (tmp_path / "man" / PAGE).read_text("utf-8")
    assert [n for n in commands() if f"\n.SS hkvtool {n}\n" not in text] == []
    assert "\n.SS hkvtool fleet ingest\n" in text
    assert "\\fB\\-\\-fail\\-on <error|warning|info|never>\\fR" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_groff_has_nothing_to_say_against_it(tmp_path: Path) -> None:
    write(tmp_path)
    run = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(tmp_path / PAGE)],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")


def complete(shell: str, words: str, **more: str) -> str:
    """What is offered behind `words`, as that shell asks for it."""
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    return program(_HKVTOOL_COMPLETE=f"complete_{shell}", **asked, **more)


def program(*args: str, **env: str) -> str:
    run = subprocess.run(
        [sys.executable, "-m", "hkvtool", *args],
        env=os.environ | env, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_is_given_its_script(shell: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(program(_HKVTOOL_COMPLETE=f"source_{shell}"))
    assert f"complete_{shell}" in script.read_text()
    if shutil.which(shell) is not None:
        run = subprocess.run([shell, "-n", str(script)], capture_output=True, text=True)
        assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_choices_are_offered(shell: str) -> None:
    assert "explore" in complete(shell, "hkvtool exp")
    assert "--fail-on" in complete(shell, "hkvtool check --fa")
    offered: Any = complete(shell, "hkvtool check --format s")
    assert "sarif" in offered and "table" not in offered
    assert "ingest" in complete(shell, "hkvtool fleet i")
