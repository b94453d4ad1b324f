"""The manual page, written from the commands themselves so that it cannot say anything else.

``python -m hkvtool.cli.man_page docs/man`` writes it; a wheel puts it where ``man`` looks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from hkvtool import __version__
from hkvtool.cli.commands import commands
from hkvtool.cli.group import PROG, root
from hkvtool.model.errors import Exit

PAGE = f"{PROG}.1"

_ABOUT = "record, check and replay the KV cache of hybrid-attention inference engines"

_CODES = {
    Exit.OK: "No finding at or above what was asked for.",
    Exit.FINDINGS: "Findings, wrong bytes, or an order that fails.",
    Exit.USAGE: "The command line, or something that it names, cannot be used.",
    Exit.UNREADABLE: "A trace cannot be read.",
    Exit.INCONCLUSIVE: "No finding, but evidence was lost where a rule needed it.",
    Exit.INTERNAL: "A fault of hkvtool itself.",
    Exit.INTERRUPTED: "Ended by Ctrl-C.",
}

_FILES = {
    "NAME.duckdb": "A trace: one DuckDB file.",
    "NAME.hkv/": "A recording: rings and segments; every command reads it, also while it goes on.",
    "NAME.hkv/off": "While this file is there, nothing is recorded.",
    "NAME.jsonl": "A trace as JSON lines, hkv/1; with .gz behind it compressed.",
}

_ENVIRONMENT = {
    "HKV_RECORD": "Where an engine records that is started without `hkvtool record`.",
    "HKV_ATTACH": "1: an engine waits for `hkvtool attach`.",
    "HKV_GUARD": "log or raise: judge while the engine runs.",
    "HKV_DEBUG": "1: show the traceback of a fault of hkvtool itself.",
    "NO_COLOR, FORCE_COLOR, COLUMNS": "As elsewhere.",
}


def page() -> str:
    """The page in roff."""
    return "\n".join(_page()) + "\n"


def write(folder: Path) -> None:
    """Write the page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(page(), encoding="utf-8")


def _page() -> Iterator[str]:
    group = root()
    context = group.make_context(PROG, [], resilient_parsing=True)
    yield '.\\" Made from the code by `make docs`.'
    yield f'.TH {PROG.upper()} 1 "" "{PROG} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{PROG} \\- {_text(_ABOUT)}"
    yield ".SH SYNOPSIS"
    yield f"\\fB{PROG}\\fR [\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]..."
    yield ".SH DESCRIPTION"
    yield from _paragraphs(group.help)
    yield ".PP"
    yield _text(
        "Standard output is data, standard error is talk. `hkvtool COMMAND --help` says what"
    )
    yield _text("stands here.")
    yield ".SH OPTIONS"
    yield from _options(group, context)
    for section, rows in groupby(commands().values(), key=lambda c: c.section):
        yield f".SH {_text(section.upper())}"
        for row in rows:
            yield from _command(group.get_command(context, row.name), context, PROG)
    for title, facts in (
        ("EXIT STATUS", {str(int(code)): said for code, said in _CODES.items()}),
        ("FILES", _FILES),
        ("ENVIRONMENT", _ENVIRONMENT),
    ):
        yield f".SH {title}"
        for name, said in facts.items():
            yield from _item(name, said)


def _command(command: Any, above: Any, path: str) -> Iterator[str]:
    """One command, and those below it."""
    context = type(above)(command, info_name=command.name, parent=above)
    path = f"{path} {command.name}"
    yield f".SS {_text(path)}"
    usage = " ".join(_argument(p) for p in command.params if p.param_type_name == "argument")
    below = [command.get_command(context, n) for n in getattr(command, "commands", ())]
    yield f"\\fB{_text(path)}\\fR [\\fIOPTIONS\\fR] {'COMMAND' if below else _text(usage)}".rstrip()
    yield ".PP"
    yield from _paragraphs(command.help)
    yield from _options(command, context)
    for each in below:
        yield from _command(each, context, path)


def _argument(argument: Any) -> str:
    name = str(argument.metavar or argument.name.upper())
    if argument.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if argument.required else f"[{name}]"


def _options(command: Any, context: Any) -> Iterator[str]:
    for param in command.params:
        told = param.get_help_record(context)
        if told is None:
            continue
        name, said = told
        if param.param_type_name == "argument":
            name, said = _argument(param).strip("[]"), said.removesuffix("[required]").rstrip()
        yield from _item(name, said)


def _item(name: str, said: str) -> Iterator[str]:
    yield ".TP"
    yield f"\\fB{_text(name)}\\fR"
    yield _text(said or "")


def _paragraphs(text: str | None) -> Iterator[str]:
    for i, paragraph in enumerate((text or "").split("\n\n")):
        if i:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _text(plain: str) -> str:
    """Text as roff takes it: nothing in it is an instruction, all of it ASCII; `code` is bold."""
    safe = plain.replace("\\", "\\e").replace("-", "\\-")
    safe = re.sub(r"[^\x00-\x7f]", lambda m: f"\\[u{ord(m.group()):04X}]", safe)
    if safe.startswith((".", "'")):
        safe = "\\&" + safe
    return re.sub(r"`([^`]*)`", r"\\fB\1\\fR", safe)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
