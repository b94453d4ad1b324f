"""Every command line in the documentation names a command, and options that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hkvtool.cli.group import root

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]*)`")
_CALL = re.compile(r"(?:^|\s|-- )hkvtool (?!hkvtool\b)([a-z].*)")


def calls(text: str) -> Iterator[str]:
    """What stands behind `hkvtool` in blocks of code and between backticks, comments left out."""
    for block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield from _CALL.findall(line.split(" # ")[0])
    for said in _INLINE.findall(_FENCE.sub("", text)):
        yield from _CALL.findall(" ".join(said.split()))


def wrong(call: str) -> list[str]:
    """The options of a call that its command does not have; the program behind `--` has its own."""
    group = root()
    context: Any = group.make_context("hkvtool", [], resilient_parsing=True)
    words = call.split(" -- ")[0].split(" | ")[0].replace("'", "").replace('"', "").split()
    command: Any = group.get_command(context, words[0].rstrip(",;.)"))
    if command is None:
        return [words[0]]
    while len(words) > 1 and words[1] in getattr(command, "commands", ()):
        command, words = command.commands[words[1]], words[1:]
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
    asked = [w.split("=")[0].rstrip(",;.)") for w in words[1:] if re.match(r"--?[a-z]", w)]
    return [option for option in asked if option not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(CHECKOUT).as_posix())
def test_a_page_s_command_lines_are_the_program_s(page: Path) -> None:
    found = list(calls(page.read_text("utf-8")))
    assert {call: options for call in found if (options := wrong(call))} == {}


def test_the_readme_has_some_and_a_wrong_one_is_seen() -> None:
    assert len(list(calls(PAGES[0].read_text("utf-8")))) > 20
    assert wrong("check run.duckdb --no-such-thing -- x --y") == ["--no-such-thing"]
    assert wrong("chekc run.duckdb") == ["chekc"]
    assert wrong("fleet check FOLDER --ray auto") == []
