"""What a command exits with is what its help and its page say, no more and no less."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hkvtool.cli
from hkvtool.cli.commands import commands
from hkvtool.cli.group import root
from hkvtool.model.errors import Exit

CHECKOUT = Path(__file__).resolve().parents[2]
CLI = "hkvtool.cli"
FOLDER = Path(str(hkvtool.cli.__file__)).parent

SAID = {Exit.FINDINGS, Exit.UNREADABLE, Exit.INCONCLUSIVE}
"""What a command says of itself, where it gives it; the others mean the same everywhere."""

PAGES = {"explore": "search.md", "replay": "replay.md", "probe": "probe.md"}
"""Pages that list the codes of one command."""

Place = tuple[str, str]
"""Module and function."""


def _parsed(module: str) -> ast.Module:
    return ast.parse((FOLDER / f"{module.rpartition('.')[2]}.py").read_text("utf-8"))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _imported(tree: ast.AST) -> dict[str, Place]:
    """What names stand for that come from other modules of the command line; a module for itself
    has no function."""
    found: dict[str, Place] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(CLI):
            for alias in node.names:
                name = alias.asname or alias.name
                inner = f"{node.module}.{alias.name}"
                whole = node.module == CLI and (FOLDER / f"{alias.name}.py").exists()
                found[name] = (inner, "") if whole else (str(node.module), alias.name)
    return found


def reached(start: Place) -> Iterator[ast.FunctionDef]:
    """A function of the command line, and those that it names, directly or not."""
    seen: set[Place] = set()
    waiting = [start]
    while waiting:
        module, name = place = waiting.pop()
        if place in seen or module == CLI:
            continue
        seen.add(place)
        tree = _parsed(module)
        functions, imported = _functions(tree), _imported(tree)
        function = functions.get(name)
        if function is None:
            continue
        yield function
        given_to_it = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in given_to_it:
                continue
            if isinstance(node, ast.Name) and node.id in functions:
                waiting.append((module, node.id))
            elif isinstance(node, ast.Name) and imported.get(node.id, ("", ""))[1]:
                waiting.append(imported[node.id])
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                other, whole = imported.get(node.value.id, ("", "x"))
                if not whole:
                    waiting.append((other, node.attr))


def given(start: Place) -> set[Exit]:
    """The codes that a command names on its way."""
    return {
        Exit[node.attr]
        for function in reached(start)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name) and node.value.id == "Exit"
    }  # fmt: skip


def told(text: str) -> set[Exit]:
    """The codes in the sentences of a help text or a page that are about them."""
    plain = " ".join(text.split())
    parts = re.findall(r"(?:Exits with|[Ee]xit codes?(?: is| and JSON)?:?) (.*?)\.(?: |$)", plain)
    values = {int(code) for part in parts for code in re.findall(r"\b(\d+)\b", part)}
    return {Exit(value) for value in values & {int(code) for code in Exit}}


def _each() -> dict[str, Place]:
    """Every command, and those below it, by the words that call it."""
    found: dict[str, Place] = {}
    group: Any = root()
    context = group.make_context("hkvtool", [], resilient_parsing=True)
    for name, command in commands().items():
        clicked: Any = group.get_command(context, name)
        below = getattr(clicked, "commands", {})
        for inner, one in below.items():
            found[f"{name} {inner}"] = command.module, one.callback.__name__
        if not below:
            found[name] = command.module, "command"
    return found


def _help(words: str) -> str:
    group: Any = root()
    command: Any = group.get_command(
        group.make_context("hkvtool", [], resilient_parsing=True), words.split()[0]
    )
    for word in words.split()[1:]:
        command = command.commands[word]
    return str(command.help)


@pytest.mark.parametrize("words", _each())
def test_a_command_exits_with_what_its_help_says(words: str) -> None:
    place = _each()[words]
    assert list(reached(place)), "the command is where it is looked for"
    codes, said = given(place), told(_help(words))
    if "Exit codes are those of" in _help(words):
        return
    assert codes & SAID == said & SAID - ({Exit.UNREADABLE} - codes), words
    assert Exit.INTERRUPTED not in codes or Exit.INTERRUPTED in said


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_the_help_says(name: str) -> None:
    page = told((CHECKOUT / "docs" / PAGES[name]).read_text("utf-8"))
    assert page | {Exit.OK, Exit.INTERRUPTED} == told(_help(name)) | {Exit.OK, Exit.INTERRUPTED}


def test_codes_are_seen_where_they_are() -> None:
    assert {Exit.FINDINGS, Exit.UNREADABLE, Exit.INCONCLUSIVE} <= given((f"{CLI}.check", "command"))
    assert Exit.FINDINGS in given((f"{CLI}.replay", "command"))
    assert given((f"{CLI}.rules", "command")) & SAID == set()
    assert told("Exits with 0 where x, 1 where y. And 3 more.") == {Exit.OK, Exit.FINDINGS}
