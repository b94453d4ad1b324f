"""What the static rules say of an engine's declarations, and what nobody could compare."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from hkvtool.analyzers.preflight import Pairing, Preflight
from hkvtool.importers.model_config import Derived
from hkvtool.model.rules import Severity
from hkvtool.model.text import shown
from hkvtool.report.checked import Checked
from hkvtool.report.table import MAX_WIDTH, Line, finding_lines


def preflight_lines(found: Preflight, checked: Checked, width: int) -> Iterator[Line]:
    """The findings, then each group with its consumers."""
    width = max(40, min(width, MAX_WIDTH))
    report = found.report
    groups = len({p.group for p in found.pairings})
    consumers = sum(p.kernel is not None for p in found.pairings)
    yield Line(f"{shown(checked.name)} · {groups} groups, {consumers} consumers"[:width], "bold")
    by_id = {f.id: f for f in report.findings}
    for finding in checked.roots:
        yield Line("")
        yield from finding_lines(finding, by_id, checked.events, width)
    yield Line("")
    alone = [shown(p.group) for p in found.pairings if p.kernel is None]
    for pairing in found.pairings:
        if pairing.kernel is not None:
            yield from _pairing(pairing, width)
    if alone:
        yield from _row("no consumer says what it expects of", ", ".join(alone), width, "yellow")
    lacking: dict[str, list[str]] = {}
    for pairing in found.pairings:
        groups_of = lacking.setdefault(", ".join(pairing.lacking), [])
        if pairing.lacking and shown(pairing.group) not in groups_of:
            groups_of.append(shown(pairing.group))
    for keys, names in lacking.items():
        if keys:
            text = f"{', '.join(names)} (without {keys})"
            yield from _row("alignment cannot be told of", text, width, "yellow")
    errors = report.count(Severity.ERROR)
    said = f"{errors} error{'s' * (errors != 1)}"
    if not errors:
        compared = any(p.compared or not p.lacking for p in found.pairings)
        said += ", as far as both sides say" if compared else ": nothing could be compared"
    yield Line(said, "bold")


def model_lines(model: Derived, width: int) -> Iterator[Line]:
    """The groups that a model's config comes to, what follows for hits, and what is not told."""
    width = max(40, min(width, MAX_WIDTH))
    yield Line("")
    head = f"{'group':<12}{'form':<12}{'layers':>6}{'block':>7}{'window':>8}{'row':>9}{'page':>12}"
    yield Line(head[:width], "bold")
    for cache in model.caches:
        row = "-" if cache.form == "recurrent" else f"{cache.row:,}"
        window = f"{cache.window:,}" if cache.window else "-"
        told = f"{shown(cache.name):<12}{cache.form:<12}{cache.layers:>6}{cache.block:>7}"
        yield Line(f"{told}{window:>8}{row:>9}{cache.page_bytes:>12,}"[:width])
    for note in model.notes:
        yield from _row("·", note, width)
    for unknown in model.unknown:
        yield from _row("not derived:", unknown, width, "yellow")


def _pairing(pairing: Pairing, width: int) -> Iterator[Line]:
    same = ", ".join(pairing.compared) or "nothing"
    label = f"{shown(pairing.group)} and {shown(pairing.kernel)}: compared"
    yield from _row(label, same, width)
    if pairing.one_sided:
        yield from _row("  only one side says", ", ".join(pairing.one_sided), width, "yellow")


def _row(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    for i, line in enumerate(textwrap.wrap(f"{label} {text}".rstrip(), width - 4)):
        yield Line(("" if i == 0 else "    ") + line, style)
