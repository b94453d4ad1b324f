"""The root command: help, version, and what is said of a command line that makes no sense."""

from __future__ import annotations

import pkgutil
import subprocess
from collections.abc import Callable
from importlib import import_module

import pytest

import hkvtool.cli
from hkvtool import __version__
from hkvtool.cli.commands import Command, commands

Process = Callable[..., "subprocess.Popen[bytes]"]


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version(hkvtool, flag: str) -> None:
    assert hkvtool(flag).out == f"hkvtool {__version__}\n"


def test_version_among_other_arguments(hkvtool) -> None:
    found = hkvtool("--version", "rules")
    assert (found.code, found.out) == (0, f"hkvtool {__version__}\n")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_under_its_heading(hkvtool, flag: str) -> None:
    found = hkvtool(flag)
    assert (found.code, found.err) == (0, "")
    for command in commands().values():
        assert f"{command.section}:" in found.out
        assert f"\n  {command.name} " in found.out


def test_help_lines_fit_on_one_line(hkvtool) -> None:
    text = hkvtool("--help").out
    assert [c.name for c in commands().values() if c.line not in text] == []


def test_no_arguments_is_help_on_stderr(hkvtool) -> None:
    found = hkvtool()
    assert (found.code, found.out) == (2, "")
    assert "Usage: hkvtool" in found.err


@pytest.mark.parametrize("name", list(commands()))
def test_every_command_explains_itself(hkvtool, name: str) -> None:
    found = hkvtool(name, "--help")
    assert (found.code, found.err) == (0, "")
    assert f"Usage: hkvtool {name}" in found.out


def test_every_module_with_a_command_is_in_the_table() -> None:
    modules = [f"hkvtool.cli.{m.name}" for m in pkgutil.iter_modules(hkvtool_cli_path())]
    having = {name for name in modules if hasattr(import_module(name), "command")}
    assert having == {c.module for c in commands().values()}


def hkvtool_cli_path() -> list[str]:
    return list(hkvtool.cli.__path__)


@pytest.mark.parametrize(
    ("name", "module"),
    [("import", "import_"), ("check", "check"), ("two-words", "two_words")],
)
def test_module_of_a_command(name: str, module: str) -> None:
    assert Command(name, "", "").module == f"hkvtool.cli.{module}"


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        (["ruels"], "there is no command 'ruels'", "did you mean `hkvtool rules`?"),
        (["zzz"], "there is no command 'zzz'", "see `hkvtool --help`"),
        (["--bogus"], "no such option: --bogus", "see `hkvtool --help`"),
        (["rules", "--bogus"], "no such option: --bogus", "see `hkvtool rules --help`"),
        (["rules", "1", "2"], "got unexpected extra argument", "see `hkvtool rules --help`"),
        (
            ["rules", "--format", "xml"],
            "invalid value for '--format'",
            "see `hkvtool rules --help`",
        ),
    ],
)
def test_usage_errors(hkvtool, args: list[str], what: str, hint: str) -> None:
    found = hkvtool(*args)
    assert (found.code, found.out) == (2, "")
    first, last = found.err.splitlines()
    assert first.lower().startswith(f"error: {what}")
    assert last == f"  hint: {hint}"


def test_python_dash_m(process: Process) -> None:
    run = process("--version")
    assert run.communicate(timeout=60) == (f"hkvtool {__version__}\n".encode(), b"")
    assert run.returncode == 0


def test_completion_of_a_command_name(process: Process) -> None:
    run = process(_HKVTOOL_COMPLETE="complete_bash", COMP_WORDS="hkvtool rul", COMP_CWORD="1")
    assert run.communicate(timeout=60)[0].split() == [b"rules"]
