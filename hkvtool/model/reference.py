"""The reference pages, written from the tables so that they cannot say anything else.

``python -m hkvtool.model.reference docs/reference`` writes them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from hkvtool.model.events import EVENTS, EVIDENCE, FORMAT, EventSpec
from hkvtool.model.forms import MEDIA, NEEDS, ROUTES, Form
from hkvtool.model.keys import KeyType
from hkvtool.model.rules import FAMILIES, RULES, Rule

_COMMON = ("actor", "ts", "seq", "step", "req")


def pages() -> dict[str, str]:
    """Every page by file name."""
    made = {"events.md": _events(), "rules.md": _rules(), "forms.md": _forms()}
    note = "<!-- Made from the code by `make docs`; edit the tables in hkvtool/model instead. -->"
    return {name: "\n".join([note, "", *lines]).rstrip() + "\n" for name, lines in made.items()}


def _events() -> Iterator[str]:
    yield f"# Events of `{FORMAT}`"
    yield ""
    yield "One JSON object a line, one event an object. Keys in **bold** are required. Unknown keys"
    yield "are kept and ignored; an unknown `ev` is HKV905. `hkvtool schema` prints the same as a"
    yield "JSON Schema."
    yield ""
    yield "Any event may carry:"
    yield ""
    yield from _key_table(EVENTS["trace"], _COMMON)
    for spec in EVENTS.values():
        yield ""
        yield f"## `{spec.name}`"
        yield ""
        yield spec.doc
        own = [name for name, key in spec.keys.items() if name not in _COMMON or key.required]
        yield ""
        yield from _key_table(spec, own)
        yield ""
        yield f"Number in binary forms: {spec.code}."
    yield ""
    yield "## Evidence"
    yield ""
    yield "What a recorder could see, as `trace` and `evidence` name it: "
    yield ", ".join(f"`{name}`" for name in EVIDENCE) + "."


def _key_table(spec: EventSpec, names: Iterable[str]) -> list[str]:
    rows = ["| key | value | meaning |", "|---|---|---|"]
    for name in names:
        key = spec.keys[name]
        shown = f"**`{name}`**" if key.required else f"`{name}`"
        rows.append(f"| {shown} | {_value(key.type)} | {key.doc} |")
    return rows


def _value(kind: KeyType) -> str:
    options = kind.schema.get("enum")
    return ", ".join(f"`{o}`" for o in options) if options else kind.name


def _rules() -> Iterator[str]:
    yield "# Rules"
    yield ""
    yield "Every finding carries one of these codes, and a code never changes meaning. A rule"
    yield "whose evidence a trace lacks is reported as not evaluable, never as passed. `hkvtool"
    yield "rules CODE` shows the smallest traces that it fires on and does not."
    yield ""
    yield "Each picture is what `hkvtool explain` says of the former. Time goes down, a column is a"
    yield "lane, numbers are positions. The bar leads from the check to the use; it is red and"
    yield "dashed where no edge orders the two."
    for digit, family in FAMILIES.items():
        yield ""
        yield f"## {digit}xx: {family}"
        for rule in RULES.values():
            if rule.code[3] == str(digit):
                yield ""
                yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code} {rule.name}"
    yield ""
    yield f"- **Severity:** {rule.severity}"
    yield f"- **Fires when:** {rule.fires}"
    yield f"- **Evidence:** {', '.join(rule.missing(frozenset())) or 'none'}"
    yield f"- **Usual fix:** {rule.fix}"
    yield ""
    yield f"![{rule.code} on the smallest trace that it fires on](pictures/{rule.code}.svg)"


def _forms() -> Iterator[str]:
    yield "# Forms"
    yield ""
    yield "A group can resume at token position t when:"
    yield ""
    yield "| form | needs |"
    yield "|---|---|"
    for form in Form:
        yield f"| `{form}` | {NEEDS[form]} |"
    yield ""
    yield "`on_disk` is never declared: it is what a block becomes while its bytes are on a lower"
    yield "tier only, or on their way back."
    yield ""
    yield f"Media of a pool: {', '.join(f'`{m}`' for m in MEDIA)}; all but `gpu` are lower tiers."
    yield ""
    yield f"Recovery routes of a resume: {', '.join(f'`{r}`' for r in ROUTES)}."


def write(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
