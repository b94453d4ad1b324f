"""`hkvtool rules`: the catalogue, and one rule explained with the traces that show it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkvtool.cli.console import console
from hkvtool.model.errors import HkvError
from hkvtool.model.event import Event
from hkvtool.model.jsonl import read_jsonl
from hkvtool.model.rules import FAMILIES, RULES, Rule
from hkvtool.model.shipped import shipped
from hkvtool.model.text import event_line, shown

if TYPE_CHECKING:
    from rich.table import Table

ARMS = {"fires": "Fires on", "silent": "Does not fire on"}
"""The two small traces that may ship with a rule, and their headings."""


class Format(str, Enum):
    """How to print."""

    TABLE = "table"
    JSON = "json"


def command(
    rule: Annotated[
        str, typer.Argument(metavar="CODE", help="A code or a name: HKV303, 303, window-missing.")
    ] = "",
    format: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TABLE,
) -> None:
    """List the rules, or explain one: when it fires, what it needs, what usually fixes it.

    Where the package ships them, the two smallest traces that it fires and does not fire on
    follow, with `>` before the events that make the difference.
    """
    if not rule:
        if format is Format.JSON:
            _print_json([_facts(r) for r in RULES.values()])
        else:
            _list()
        return
    found = _find(rule)
    if format is Format.JSON:
        traces = {arm: [dict(e.data) for e in events] for arm, events in _arms(found).items()}
        _print_json({**_facts(found), "traces": traces})
    else:
        _explain(found)


def _find(text: str) -> Rule:
    wanted = text.strip().lower()
    names = {r.name: r for r in RULES.values()}
    names |= {r.code.lower(): r for r in RULES.values()}
    names |= {r.code[3:]: r for r in RULES.values()}
    if wanted in names:
        return names[wanted]
    near = difflib.get_close_matches(wanted, names, n=1)
    hint = f"did you mean {names[near[0]].code} {names[near[0]].name}?" if near else ""
    raise HkvError(f"there is no rule {text!r}", hint=hint or "see `hkvtool rules`")


def _facts(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "name": rule.name,
        "family": rule.family,
        "severity": str(rule.severity),
        "fires": rule.fires,
        "needs": [list(alternatives) for alternatives in rule.needs],
        "fix": rule.fix,
    }


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _list() -> None:
    out = console()
    width = max(len(r.name) for r in RULES.values())
    for digit, family in FAMILIES.items():
        out.print(f"{digit}xx {family}", style="bold")
        for r in RULES.values():
            if r.code[3] == str(digit):
                out.print(f"  {r.code}  {r.name:{width}}  {r.severity!s:7}  {_needs(r)}")


def _explain(rule: Rule) -> None:
    out = console()
    out.print(f"{rule.code} {rule.name}", style="bold")
    out.print(
        _grid(
            ("family", rule.family),
            ("severity", str(rule.severity)),
            ("fires when", rule.fires),
            ("evidence", _needs(rule)),
            ("usual fix", rule.fix),
        )
    )
    arms = _arms(rule)
    for arm, events in arms.items():
        other = next((e for a, e in arms.items() if a != arm), events)
        out.print(f"\n{ARMS[arm]}", style="bold")
        for event in events:
            if "note" in event:
                out.print(f"  {shown(event['note'])}")
        rows = _marked(_lines(events), _lines(other))
        out.print(_grid(*((m, str(e.pos), t) for e, (m, t) in zip(events, rows, strict=True))))


def _lines(events: list[Event]) -> list[str]:
    """The events as text; what their `note` says stands above them."""
    bare = ({k: v for k, v in e.data.items() if k != "note"} for e in events)
    return [event_line(Event.of(e.pos, data)) for e, data in zip(events, bare, strict=True)]


def _marked(lines: list[str], other: list[str]) -> Iterator[tuple[str, str]]:
    """Each line, and `>` before those that the other trace does not have there."""
    matcher = difflib.SequenceMatcher(None, lines, other, autojunk=False)
    same = {i for start, _, n in matcher.get_matching_blocks() for i in range(start, start + n)}
    for i, line in enumerate(lines):
        yield (" " if i in same else ">"), line


def _needs(rule: Rule) -> str:
    return ", ".join(rule.missing(frozenset())) or "none"


def _grid(*rows: tuple[str, ...]) -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for row in rows:
        grid.add_row("", *row)
    return grid


def _arms(rule: Rule) -> dict[str, list[Event]]:
    """The small traces that ship with the rule, none where there are none."""
    found: dict[str, list[Event]] = {}
    for arm in ARMS:
        file = shipped("rules", f"{rule.code}.{arm}.jsonl")
        if file.is_file():
            with file.open("rb") as stream:
                found[arm] = list(read_jsonl(stream))
    return found
